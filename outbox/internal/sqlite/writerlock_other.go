//go:build !unix

// The writer lock where files have no such locks.

package sqlite

import (
	"context"
	"time"
)

// WriterLock does nothing here; SQLite's own wait has to do.
type WriterLock struct{}

func OpenWriterLock(string) *WriterLock { return nil }

func (*WriterLock) Acquire(context.Context) (leave func(), err error) { return func() {}, nil }
func (*WriterLock) recordWriter()                                     {}
func (*WriterLock) clearWriter()                                      {}
func (*WriterLock) writer() (pid int, since time.Time)                { return 0, since }
func (*WriterLock) Close()                                            {}
