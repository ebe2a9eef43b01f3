// Reading and delivering. One goroutine reads and delivers. Delivery moves to a goroutine of its own only while something is
// delivered that did not come from reading; another reader takes over when the present one is made to wait.

package peerconn

import (
	"context"
	"runtime/debug"
)

// Reading is the state of one reader.
type Reading struct {
	// Found are tasks that Codec.Receive found while it had claimed delivery: they are delivered before those of Output.
	Found []Task

	claimed bool // this reader delivers
	gen     int  // its number
}

// ClaimDelivery makes the reader the one that delivers, before a message is handled without the lock: what others post
// meanwhile waits. False if another goroutine is delivering.
func (l *Loop) ClaimDelivery(r *Reading) bool {
	if l.delivering {
		return false
	}
	l.delivering, r.claimed = true, true
	if !l.holdWrites { // output is held back for maxHold at most
		l.HoldOutput()
	}
	return true
}

// read reads messages and delivers the calls in them, until the connection ends or another reader has taken over while
// this one was delivering; gen is its number. A connection at rest waits here, on a stack of its own: little is on it.
func (l *Loop) read(gen int) {
	defer l.WorkerDone()
	r := &Reading{gen: gen}
	for more := true; more; {
		batch, err := l.codec.Read()
		more = l.handle(r, batch, err)
	}
}

// handle handles what was read; false when the reader is to end.
func (l *Loop) handle(r *Reading, batch []byte, err error) (more bool) {
	l.lockAfter(err)
	if l.ended {
		l.codec.UnlockAndRun()
		return false
	}
	l.heard()
	l.lastMessage.Store(l.lastActivity.Load())
	l.codec.Receive(batch, r)
	if !r.claimed && len(l.out.Tasks) > 0 {
		l.ClaimDelivery(r)
	}
	if r.claimed {
		r.claimed = false
		if len(r.Found)+len(l.out.Tasks) > 0 {
			l.readerBusy = true
			if !l.holdWrites { // handling the message took too long already
				l.holdTimer.Set(maxHold)
			}
			l.codec.UnlockAndRun()
			l.deliver(r.Found, true)
			if r.Found = r.Found[:0]; cap(r.Found) > 64 {
				r.Found = nil
			}
			l.mu.Lock()
		} else {
			l.delivering = false
		}
	}
	if l.readerGen == r.gen {
		l.readerBusy = false
		if !l.holdWrites {
			l.holdTimer.Clear()
		} else if !l.moreToRead() {
			l.holdWrites = false
			l.writeFromReader()
			if l.readerGen == r.gen { // else it is another reader's
				l.holdTimer.Clear()
			}
		}
	}
	more = !l.ended && l.readerGen == r.gen
	l.codec.UnlockAndRun()
	return more
}

// moreToRead reports whether the reader has another message, so that a little pending output can leave with its answer.
func (l *Loop) moreToRead() bool {
	return l.peeker != nil && !l.ended && l.out.pending() < readerFlushBytes && l.peeker.More()
}

// replaceReader starts another reader if the present one is delivering, which may take long.
func (l *Loop) replaceReader() {
	if l.readerBusy && !l.ended {
		l.readerBusy, l.holdWrites = false, false
		l.readerGen++
		l.workers++
		go l.read(l.readerGen)
	}
}

// SetPaused says whether nobody reads, so that nobody would read the answer to a ping.
func (l *Loop) SetPaused(paused bool) {
	l.readerPaused = paused
	if !paused {
		l.restartSilence()
	}
}

// PauseReader makes the reader wait as long as on reports true. The error is ctx's.
func (l *Loop) PauseReader(ctx context.Context, on func() bool) error {
	l.SetPaused(true)
	defer l.SetPaused(false)
	for !l.ended && on() {
		if err := l.WaitForRoom(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Post queues a task for the delivery goroutine, which Unlock starts; false if there is none any more.
func (l *Loop) Post(t Task) bool {
	if l.finished {
		return false
	}
	l.out.Tasks = append(l.out.Tasks, t)
	return true
}

// IsDelivering reports whether tasks are being delivered, or are to be.
func (l *Loop) IsDelivering() bool { return l.delivering || len(l.out.Tasks) > 0 }

// Deliver delivers until nothing is left, for tests of a core that no goroutine runs. The lock is not held.
func (l *Loop) Deliver() {
	l.mu.Lock()
	l.delivering = true
	l.mu.Unlock()
	l.deliver(nil, false)
}

// deliver delivers the first tasks, and then those of Output until nothing is left; with reader set it writes answers in
// between. The caller has set delivering. The lock is not held.
func (l *Loop) deliver(first []Task, reader bool) {
	l.runTasks(first, reader)
	for {
		l.mu.Lock()
		if len(l.out.Tasks) == 0 {
			l.delivering = false
			l.codec.UnlockAndRun()
			return
		}
		batch := l.out.Tasks
		l.out.Tasks, l.spareTasks = l.spareTasks[:0], nil
		l.codec.UnlockAndRun()
		l.runTasks(batch, reader)
		l.mu.Lock()
		if cap(batch) <= 1024 {
			l.spareTasks = batch[:0]
		}
		l.mu.Unlock()
	}
}

func (l *Loop) runTasks(tasks []Task, reader bool) {
	for i := range tasks {
		l.RunTask(tasks[i])
		tasks[i] = nil
		if reader && i%8 == 7 {
			l.flushFromReader()
		}
	}
}

// RunTask runs a task. A panic is logged: those of objects are recovered before. The lock is not held.
func (l *Loop) RunTask(t Task) {
	defer func() {
		if r := recover(); r != nil {
			l.log.Error("a notification panicked", "peer", l.cfg.Transport.RemoteAddr(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	t.Run()
}
