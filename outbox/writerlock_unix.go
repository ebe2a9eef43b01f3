//go:build unix

package outbox

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

// writerLock is one process's end of a file's turns. A nil one, and one whose file cannot be
// locked, never blocks.
type writerLock struct {
	file   *os.File
	record []byte // written by recordWriter; for one goroutine at a time

	mu      sync.Mutex
	waiting chan struct{} // closed by the goroutine that waits for the lock; nil if none does
	wanted  bool          // a caller still waits for that goroutine's lock
}

// openWriterLock creates the file at path if it is not there.
func openWriterLock(path string) *writerLock {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	return &writerLock{file: f}
}

// acquire waits for this process's turn until ctx ends, and returns the function that ends the
// turn. It is called by one goroutine at a time.
func (t *writerLock) acquire(ctx context.Context) (leave func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	t.mu.Lock()
	if t.waiting == nil {
		if syscall.Flock(int(t.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK {
			t.mu.Unlock()
			return t.release, nil
		}
		t.waiting = make(chan struct{})
		go t.wait(t.waiting)
	}
	t.wanted = true
	waiting := t.waiting
	t.mu.Unlock()
	select {
	case <-waiting:
		return t.release, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil { // the lock came all the same
		return t.release, nil
	}
	t.wanted = false
	return nil, ctx.Err()
}

func (t *writerLock) wait(got chan struct{}) {
	for syscall.Flock(int(t.file.Fd()), syscall.LOCK_EX) == syscall.EINTR {
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = nil
	if !t.wanted {
		t.release()
	}
	close(got)
}

func (t *writerLock) release() { _ = syscall.Flock(int(t.file.Fd()), syscall.LOCK_UN) }

// writerBytes is the length of the file's record of its writer.
const writerBytes = 48

// recordWriter records in the file that this process's transaction has begun, for the processes
// that wait for it.
func (t *writerLock) recordWriter() {
	if t == nil {
		return
	}
	t.record = fmt.Appendf(t.record[:0], "%-*s", writerBytes, fmt.Sprintf("%d %d", os.Getpid(), time.Now().UnixMilli()))
	_, _ = t.file.WriteAt(t.record, 0)
}

// clearWriter clears the record, unless the next transaction has begun.
func (t *writerLock) clearWriter() {
	if t == nil {
		return
	}
	var now [writerBytes]byte
	if n, _ := t.file.ReadAt(now[:], 0); bytes.Equal(now[:n], t.record) {
		_, _ = t.file.WriteAt(bytes.Repeat([]byte(" "), writerBytes), 0)
	}
}

// writer returns the living process whose transaction has begun last and has not ended, by its
// pid and start time; 0 for none.
func (t *writerLock) writer() (pid int, since time.Time) {
	if t == nil {
		return 0, since
	}
	var now [writerBytes]byte
	n, _ := t.file.ReadAt(now[:], 0)
	var ms int64
	if _, err := fmt.Sscan(string(now[:n]), &pid, &ms); err != nil || pid <= 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return 0, since
	}
	return pid, time.UnixMilli(ms)
}

// close ends all turns. A goroutine that still waits ends when it gets the lock.
func (t *writerLock) close() {
	if t == nil {
		return
	}
	t.mu.Lock()
	waiting := t.waiting
	t.mu.Unlock()
	if waiting != nil {
		go func() { <-waiting; _ = t.file.Close() }()
		return
	}
	_ = t.file.Close()
}
