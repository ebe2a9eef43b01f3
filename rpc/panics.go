// Panics of a program's code: each is logged, and affects nothing else.

package rpc

import (
	"log/slog"
	"runtime/debug"
)

// logPanic logs a recovered panic: to c's logger, or the default one for calls within the vat, where c is nil.
func logPanic(c *Conn, what string, r any, more ...any) {
	log := slog.Default()
	if c != nil {
		log, more = c.log, append([]any{"peer", c.RemoteAddr()}, more...)
	}
	log.Error(what, append(more, "panic", r, "stack", string(debug.Stack()))...)
}

// notify runs a program's notification, on c's delivery goroutine or within the vat.
func notify(c *Conn, f func()) {
	defer func() {
		if r := recover(); r != nil {
			logPanic(c, "a notification panicked", r)
		}
	}()
	f()
}
