//go:build unix

package outbox

// Turns between processes that write to one file. SQLite's own wait is a poll:
// a process that commits one transaction after the other would keep the others
// out for ever. Who is next therefore holds a file lock until its transaction
// has begun, and who has just committed meets that lock before its next one.

import (
	"context"
	"os"
	"sync"
	"syscall"
)

// turnstile is one process's end of a file's turns. A nil one, and one whose
// file cannot be locked, lets everybody through.
type turnstile struct {
	file *os.File

	mu      sync.Mutex
	waiting chan struct{} // closed by the goroutine that waits for the lock; nil if none does
	wanted  bool          // somebody still waits for what that goroutine gets
}

// openTurnstile makes the file at path if it is not there.
func openTurnstile(path string) *turnstile {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil
	}
	return &turnstile{file: f}
}

// enter waits for this process's turn until ctx ends, and returns what ends the
// turn. It is called by one goroutine at a time.
func (t *turnstile) enter(ctx context.Context) (leave func(), err error) {
	if t == nil {
		return func() {}, nil
	}
	t.mu.Lock()
	if t.waiting == nil {
		if syscall.Flock(int(t.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != syscall.EWOULDBLOCK {
			t.mu.Unlock()
			return t.leave, nil
		}
		t.waiting = make(chan struct{})
		go t.wait(t.waiting)
	}
	t.wanted = true
	waiting := t.waiting
	t.mu.Unlock()
	select {
	case <-waiting:
		return t.leave, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil { // it came all the same
		return t.leave, nil
	}
	t.wanted = false
	return nil, ctx.Err()
}

func (t *turnstile) wait(got chan struct{}) {
	for syscall.Flock(int(t.file.Fd()), syscall.LOCK_EX) == syscall.EINTR {
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = nil
	if !t.wanted {
		t.leave()
	}
	close(got)
}

func (t *turnstile) leave() { _ = syscall.Flock(int(t.file.Fd()), syscall.LOCK_UN) }

// close ends all turns. A goroutine that still waits ends when it gets the lock.
func (t *turnstile) close() {
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
