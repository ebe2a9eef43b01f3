//go:build !unix

// Turns between processes, where files have no such locks.

package outbox

import (
	"context"
	"time"
)

// turnstile: no such lock here; SQLite's own wait has to do.
type turnstile struct{}

func openTurnstile(string) *turnstile { return nil }

func (*turnstile) enter(context.Context) (leave func(), err error) { return func() {}, nil }
func (*turnstile) began()                                          {}
func (*turnstile) ended()                                          {}
func (*turnstile) writer() (pid int, since time.Time)              { return 0, since }
func (*turnstile) close()                                          {}
