// Writing: all pending output is written together, by one goroutine at a time. That is the writer, unless the reader can
// write sooner: the answers to the calls it has just delivered. Callers never write: a peer that does not read would block
// them. Output that nobody waits for (a release) leaves with the next message, or a moment later.

package capnweb

import (
	"context"
	"runtime"
	"time"

	"github.com/mooring-rpc/mooring/internal/lazytimer"
)

const (
	// chunkBytes is how much is written at once: small enough for pings to get in between, and for an expired write deadline
	// to mean no progress.
	chunkBytes = 64 << 10
	// minWriteRate is how many bytes a second are enough for a single large message not to count as stalled, where the
	// transport does not report pieces.
	minWriteRate = 64 << 10
	// coalesceBytes is the size below which the writer waits for more.
	coalesceBytes = 8 << 10
	// readerFlushBytes is how many bytes of answers make the reader write them while it has more to read: the peer can go on
	// with them meanwhile.
	readerFlushBytes = 4 << 10
	// maxHold is how long a delivery, or a write by the reader, may take before other goroutines take over.
	maxHold = 2 * time.Millisecond
	// lazyFlushDelay is how long output that nobody waits for is delayed for other output to leave with.
	lazyFlushDelay = 2 * time.Millisecond
)

// outQueue holds messages back to back, and where each ends.
type outQueue struct {
	b       []byte
	ends    []int
	writing int // bytes taken that are being written
}

func (q *outQueue) add(msg []byte) {
	q.b = append(q.b, msg...)
	q.ends = append(q.ends, len(q.b))
}

// size returns how many bytes the peer has not taken yet.
func (q *outQueue) size() int { return len(q.b) + q.writing }

// writeState is the state of writing, guarded by Conn.mu.
type writeState struct {
	wake       chan struct{} // wakes the writer
	writerDone chan struct{} // closed when the writer has exited for good
	writerIdle bool          // the writer waits for wake
	busy       bool          // a goroutine is writing
	byReader   bool          // it is the reader
	holdWrites bool          // the reader writes pending output after it has delivered
	urgent     bool          // somebody waits for a message in out
	overflowed bool          // too much output is pending: the connection is about to end
	spareQueue outQueue      // to collect the next batch in
	messages   [][]byte      // the argument of Transport.Write

	reportsProgress bool   // the transport reports the pieces it writes
	chunksWritten   uint64 // pieces and chunks written

	stallTimer lazytimer.Timer // ends the connection when a write makes no progress
	holdTimer  lazytimer.Timer // ends holdWrites
	flushTimer lazytimer.Timer // sends output that is not urgent
}

// lockUnlessFinished takes the lock for a timer, and reports whether the connection has not ended.
func (c *Conn) lockUnlessFinished() bool {
	c.mu.Lock()
	return !c.finished
}

func (c *Conn) initWriteState() {
	c.wake, c.writerDone = make(chan struct{}, 1), make(chan struct{})
	c.stallTimer.Init(c.lockUnlessFinished, c.unlockAndRun, func() {
		c.countHit(LimitWriteTimeout)
		c.endLocked(ending{err: &BrokenError{Reason: "the peer does not read: a write made no progress"}, code: closePolicyViolation})
	})
	c.holdTimer.Init(c.lockUnlessFinished, c.unlockAndRun, c.endHold)
	c.flushTimer.Init(c.lockUnlessFinished, c.unlockAndRun, func() { c.urgent = len(c.out.b) > 0 })
}

// scheduleWrite reports whether the writer is to be woken for pending output, and schedules a later write if that is not
// urgent. The lock is held.
func (c *Conn) scheduleWrite() bool {
	if !c.writerIdle || c.busy || (len(c.out.b) == 0 && c.ended == nil) {
		return false
	}
	if len(c.out.b) > chunkBytes {
		c.urgent = true
	}
	if c.ended == nil && len(c.out.b) <= chunkBytes && (c.holdWrites || !c.urgent) {
		if !c.holdWrites && !c.flushTimer.IsSet() {
			c.flushTimer.Set(lazyFlushDelay)
		}
		return false
	}
	c.writerIdle = false
	return true
}

func (c *Conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// write is the writer: it sends output that the reader does not send, until the connection ends.
func (c *Conn) write() {
	defer c.workerDone()
	c.mu.Lock()
	defer c.unlockAndRun()
	for {
		for c.busy || ((len(c.out.b) == 0 || !c.urgent) && c.ended == nil) {
			c.writerIdle = true
			c.unlockAndRun() // which schedules output that is not urgent
			<-c.wake
			c.mu.Lock()
			c.writerIdle = false
		}
		last := c.ended != nil
		if last && (!c.ending.flush || len(c.out.b) == 0) {
			break
		}
		if !last && len(c.out.b) < coalesceBytes && c.pendingPulls+c.calls > 2 {
			// Other goroutines are about to call or answer too: their messages can leave with it.
			c.busy = true
			c.unlockAndRun()
			runtime.Gosched()
			c.mu.Lock()
			c.busy = false
		}
		if err := c.writeOut(); err != nil || last {
			break
		}
	}
	close(c.writerDone)
}

// writeOut writes pending output. No other goroutine may be writing. The lock is held, and released meanwhile.
func (c *Conn) writeOut() (err error) {
	c.busy = true
	batch, messages := c.out, c.messages[:0]
	c.out = outQueue{b: c.spareQueue.b[:0], ends: c.spareQueue.ends[:0], writing: len(batch.b)}
	c.spareQueue, c.messages = outQueue{}, nil
	c.urgent = false
	for from, i := 0, 0; i < len(batch.ends) && err == nil; {
		start := from
		messages = messages[:0]
		for i < len(batch.ends) && (len(messages) == 0 || batch.ends[i]-start <= chunkBytes) {
			messages = append(messages, batch.b[from:batch.ends[i]])
			from = batch.ends[i]
			i++
		}
		size := from - start
		patience := c.limits.WriteTimeout
		if !c.reportsProgress {
			patience += time.Duration(size/minWriteRate) * time.Second
		}
		c.stallTimer.Set(patience)
		c.unlockAndRun()
		err = c.transport.Write(context.Background(), messages)
		c.mu.Lock()
		c.stallTimer.Clear()
		c.chunksWritten++
		if err != nil {
			c.endLocked(transportEnding(err))
		}
		c.out.writing -= size
		c.wakeLimitWaiters()
	}
	if cap(batch.b) <= chunkBytes && cap(batch.ends) <= 4096 {
		c.spareQueue = outQueue{b: batch.b, ends: batch.ends}
		c.messages = messages
	}
	c.busy, c.out.writing = false, 0 // after an error the rest of it is lost
	return err
}

// onWriteProgress records that a piece of the current write was written.
func (c *Conn) onWriteProgress() {
	c.mu.Lock()
	c.chunksWritten++
	c.stallTimer.Set(c.limits.WriteTimeout)
	c.mu.Unlock()
}

// holdOutput leaves further answers for the reader to write, all together. The lock is held.
func (c *Conn) holdOutput() {
	c.holdWrites = true
	c.holdTimer.Set(maxHold)
}

// moreToRead reports whether the reader has another message, so that a little pending output can leave with its answer. The
// lock is held.
func (c *Conn) moreToRead() bool {
	return c.peeker != nil && c.ended == nil && len(c.out.b) < readerFlushBytes && c.peeker.more()
}

// writeFromReader writes pending output on the reader. If that takes long, another takes over reading. The lock is held,
// and released meanwhile.
func (c *Conn) writeFromReader() {
	if c.ended != nil || c.busy || !c.urgent || len(c.out.b) > chunkBytes {
		return
	}
	gen := c.readerGen
	c.byReader, c.readerBusy = true, true
	_ = c.writeOut() // it has ended the connection
	c.byReader = false
	if c.readerGen == gen {
		c.readerBusy = false
	}
}

// endHold gives the writer the output that the reader has not written yet, and another reader the input that it has not
// read. The lock is held.
func (c *Conn) endHold() {
	c.holdWrites = false
	c.replaceReader()
}
