//go:build !unix

// The writer lock where files have no such locks.

package outbox

import (
	"context"
	"time"
)

// writerLock does nothing here; SQLite's own wait has to do.
type writerLock struct{}

func openWriterLock(string) *writerLock { return nil }

func (*writerLock) acquire(context.Context) (leave func(), err error) { return func() {}, nil }
func (*writerLock) recordWriter()                                     {}
func (*writerLock) clearWriter()                                      {}
func (*writerLock) writer() (pid int, since time.Time)                { return 0, since }
func (*writerLock) close()                                            {}
