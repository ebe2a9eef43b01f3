// Package fatal ends the process on panics that must not be recovered from.
package fatal

import (
	"fmt"
	"runtime/debug"
)

// OnPanic is deferred where a goroutine holds what others wait for, and may be a
// caller's: a panic ends the process also if someone further up would recover
// from it, and would leave the others waiting for ever.
func OnPanic() {
	if p := recover(); p != nil {
		stack := debug.Stack()
		go panic(fmt.Sprintf("%v\n\n%s", p, stack))
		select {}
	}
}
