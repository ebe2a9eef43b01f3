// Panics of a program's code: each is logged, and hurts nothing else.

package rpc

import (
	"log/slog"
	"runtime/debug"
)

// logPanic logs what was recovered from a panic. What is within the vat, where c is nil, has the program's own log.
func logPanic(c *Conn, what string, r any, more ...any) {
	log := slog.Default()
	if c != nil {
		log, more = c.log, append([]any{"peer", c.RemoteAddr()}, more...)
	}
	log.Error(what, append(more, "panic", r, "stack", string(debug.Stack()))...)
}

// notify runs a program's notification, on c's delivery goroutine or within the vat.
func notify(c *Conn, f func()) {
	defer notificationPanics(c)
	f()
}

func notificationPanics(c *Conn) {
	if r := recover(); r != nil {
		logPanic(c, "a notification panicked", r)
	}
}
