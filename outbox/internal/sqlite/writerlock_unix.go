//go:build unix

package sqlite

// The writer lock: turns between processes that write to one file. SQLite's own wait is a poll:
// a process that commits one transaction after the other would starve the others. The next
// writer therefore holds a file lock until its transaction has begun, and a process that has
// just committed waits for that lock before its next one.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// WriterLock is one process's end of a file's turns. A nil one, and one whose file cannot be
// locked, never blocks.
type WriterLock struct {
	File   *os.File
	record []byte // written by recordWriter; for one goroutine at a time

	Mu      sync.Mutex
	Waiting chan struct{} // closed by the goroutine that waits for the lock; nil if none does
	Wanted  bool          // a caller still waits for that goroutine's lock
}

// OpenWriterLock creates the file at path if it is not there.
func OpenWriterLock(path string) *WriterLock {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	return &WriterLock{File: f}
}

// Acquire waits for this process's turn until ctx ends, and returns the function that ends the
// turn. It is called by one goroutine at a time.
func (t *WriterLock) Acquire(ctx context.Context) (leave func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	t.Mu.Lock()
	if t.Waiting == nil {
		if syscall.Flock(int(t.File.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK {
			t.Mu.Unlock()
			return t.release, nil
		}
		t.Waiting = make(chan struct{})
		go t.wait(t.Waiting)
	}
	t.Wanted = true
	waiting := t.Waiting
	t.Mu.Unlock()
	select {
	case <-waiting:
		return t.release, nil
	case <-ctx.Done():
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if t.Waiting == nil { // the lock came all the same
		return t.release, nil
	}
	t.Wanted = false
	return nil, ctx.Err()
}

func (t *WriterLock) wait(got chan struct{}) {
	for syscall.Flock(int(t.File.Fd()), syscall.LOCK_EX) == syscall.EINTR {
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.Waiting = nil
	if !t.Wanted {
		t.release()
	}
	close(got)
}

func (t *WriterLock) release() { _ = syscall.Flock(int(t.File.Fd()), syscall.LOCK_UN) }

// WriterBytes is the length of the file's record of its writer.
const WriterBytes = 48

// recordWriter records in the file that this process's transaction has begun, for the processes
// that wait for it.
func (t *WriterLock) recordWriter() {
	if t == nil {
		return
	}
	t.record = fmt.Appendf(t.record[:0], "%-*s", WriterBytes, fmt.Sprintf("%d %d", os.Getpid(), time.Now().UnixMilli()))
	_, _ = t.File.WriteAt(t.record, 0)
}

// clearWriter clears the record, unless the next transaction has begun.
func (t *WriterLock) clearWriter() {
	if t == nil {
		return
	}
	var now [WriterBytes]byte
	if n, _ := t.File.ReadAt(now[:], 0); bytes.Equal(now[:n], t.record) {
		_, _ = t.File.WriteAt(bytes.Repeat([]byte(" "), WriterBytes), 0)
	}
}

// writer returns the living process whose transaction has begun last and has not ended, by its
// pid and start time; 0 for none.
func (t *WriterLock) writer() (pid int, since time.Time) {
	if t == nil {
		return 0, since
	}
	var now [WriterBytes]byte
	n, _ := t.File.ReadAt(now[:], 0)
	var ms int64
	if _, err := fmt.Sscan(string(now[:n]), &pid, &ms); err != nil || pid <= 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return 0, since
	}
	return pid, time.UnixMilli(ms)
}

// Close ends all turns. A goroutine that still waits ends when it gets the lock.
func (t *WriterLock) Close() {
	if t == nil {
		return
	}
	t.Mu.Lock()
	waiting := t.Waiting
	t.Mu.Unlock()
	if waiting != nil {
		go func() { <-waiting; _ = t.File.Close() }()
		return
	}
	_ = t.File.Close()
}
