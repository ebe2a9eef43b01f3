// State: what a Loop is doing, for tests of its owners.

package peerconn

import "time"

// State is what a Loop is doing.
type State struct {
	WriterIdle, WriterRetired bool // the writer waits; it has exited, to be started again
	Writing                   bool // a goroutine is writing
	FlushPending              bool // a timer will send output that is not urgent
	ReaderBusy                bool // the reader delivers, or writes
	Buffers                   bool // memory is kept for output
	LastActivity, LastMessage time.Duration
}

// State returns the present state.
func (l *Loop) State() State {
	return State{l.writerIdle, l.writerRetired, l.busy, l.flushTimer.IsSet(), l.readerBusy, l.out.Bytes != nil,
		time.Duration(l.lastActivity.Load()), time.Duration(l.lastMessage.Load())}
}

// SetFlushDelay sets how long output that is not urgent may wait for other output; 0 is the default.
func (l *Loop) SetFlushDelay(d time.Duration) {
	if d == 0 {
		d = lazyFlushDelay
	}
	l.flushDelay = d
}

// Flush ends the wait for other output now.
func (l *Loop) Flush() { l.flushTimer.Set(0) }
