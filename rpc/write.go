// Writing: all that waits goes out together, and one writes at a time. That is the writer's goroutine, but where somebody
// else can do it sooner, without the cost of waking it: the reader, which may wait, for the answers to what it has just
// delivered; and whoever calls or answers while nothing else is under way that could leave with it, as far as that goes
// without waiting, so that a peer that does not read holds nobody up. What nobody waits for (a Finish behind a Return, a
// Release) leaves with the next message, or a moment later.

package rpc

import (
	"context"
	"runtime"
	"time"

	"github.com/mooring-rpc/mooring/internal/lazytimer"
)

const (
	// chunkBytes is how much is written at once: small enough for pings to get in between, and for the write deadline to
	// mean no progress.
	chunkBytes = 64 << 10
	// minWriteRate a second are enough for a single large message not to count as stalled, where the transport tells
	// nothing of its pieces.
	minWriteRate = 64 << 10
	// coalesceBytes is how little is worth waiting for more.
	coalesceBytes = 8 << 10
	// readerFlushBytes is how much the reader answers before it writes that, with more to be answered.
	readerFlushBytes = 4 << 10
	// maxHold is how long what is delivered, or written by the reader, may take before the others take over from it.
	maxHold = 2 * time.Millisecond
	// lazyFlushDelay is how long what nobody waits for waits for something to leave with.
	lazyFlushDelay = 2 * time.Millisecond
)

// writeState is the state of writing, guarded by Conn.mu.
type writeState struct {
	wake            chan struct{} // tells the writer that there is something for it
	writerDone      chan struct{} // closed when the writer has gone for good
	tryWriter       tryWriter     // nil if the transport is none
	writerIdle      bool          // the writer waits for wake
	writerRetiring  bool          // it is to go home
	writerRetired   bool          // it has: the next to want it starts another
	busy            bool          // somebody writes
	byReader        bool          // it is the reader
	holdWrites      bool          // the reader will write what waits as soon as it has delivered
	partlyWritten   bool          // somebody else wrote, and the writer has to go on
	spareBuf        []byte        // to gather the next in
	reportsProgress bool          // the transport tells of the pieces it writes
	chunksWritten   uint64        // pieces and chunks that were written

	stallTimer lazytimer.Timer // ends the connection when a write makes no progress
	holdTimer  lazytimer.Timer // ends hold
	flushTimer lazytimer.Timer // sends what is not urgent
	flushDelay time.Duration   // how long that may take
}

// lockUnlessFinished takes the lock for an alarm, and says that the connection is not over.
func (c *Conn) lockUnlessFinished() bool {
	c.mu.Lock()
	return !c.finished
}

func (c *Conn) initWriteState() {
	c.wake, c.writerDone = make(chan struct{}, 1), make(chan struct{})
	c.stallTimer.Init(c.lockUnlessFinished, c.unlockAndRun, func() {
		c.countHit(LimitWriteTimeout)
		c.endLocked(ending{err: Disconnectedf("the peer does not read: a write made no progress"), code: closePolicyViolation})
	})
	c.holdTimer.Init(c.lockUnlessFinished, c.unlockAndRun, c.endHold)
	c.flushTimer.Init(c.lockUnlessFinished, c.unlockAndRun, func() { c.urgent = len(c.out) > 0 })
	c.flushDelay = lazyFlushDelay
}

// scheduleWrite sees to it that what waits is written: by the writer, if the caller is to wake it; by the caller itself, if it gets
// something to write at once; or later, since it is not urgent. The lock is held.
func (c *Conn) scheduleWrite() (wake bool, atOnce []byte) {
	if !(c.writeState.writerIdle || c.writerRetired) || c.busy || (len(c.out) == 0 && !c.partlyWritten && c.ended == nil) {
		return false, nil
	}
	if len(c.out) > chunkBytes || c.partlyWritten {
		c.urgent = true
	}
	if c.ended == nil && len(c.out) <= chunkBytes && (c.holdWrites || !c.urgent) {
		if !c.holdWrites && !c.flushTimer.IsSet() {
			c.flushTimer.Set(c.flushDelay)
		}
		return false, nil
	}
	alone := c.questions.n+len(c.answers) <= 1 // no other call is under way, and nothing would leave with what waits
	if alone && c.tryWriter != nil && !c.partlyWritten && c.running && c.ended == nil && len(c.out) <= coalesceBytes {
		return false, c.takePending()
	}
	if c.writerRetired {
		c.writerRetired = false
		c.workers++
		go c.write()
		return false, nil
	}
	c.writeState.writerIdle = false
	return true, nil
}

// takePending takes what waits, to be written. The lock is held.
func (c *Conn) takePending() []byte {
	batch := c.out
	c.busy = true
	c.out, c.writeState.spareBuf = c.writeState.spareBuf[:0], nil
	c.urgent = false
	c.writingBytes = len(batch)
	return batch
}

// finishWrite keeps the memory of what was written. The lock is held.
func (c *Conn) finishWrite(batch []byte) {
	poison(batch)
	if cap(batch) <= chunkBytes {
		c.writeState.spareBuf = batch
	}
	c.busy, c.writingBytes = false, 0
}

// tryWrite writes what was taken, and leaves to the writer what that would have to wait for.
func (c *Conn) tryWrite(batch []byte) {
	tried, done, err := c.tryWriter.TryWriteBatch(batch)
	c.mu.Lock()
	if err != nil {
		c.endLocked(transportEnding(err))
	}
	if !tried {
		batch, c.out = c.out, append(batch, c.out...)
	}
	c.partlyWritten = err == nil && (!done || c.urgent) // what came up meanwhile is the writer's too
	c.finishWrite(batch)
	c.wakeLimitWaiters()
	c.unlockAndRun()
}

// releaseIdle has a connection that is silent give back what it can have again: the writer's goroutine, buffers, timers. The
// lock is held.
func (c *Conn) releaseIdle() {
	if !(c.writeState.writerIdle || c.writerRetired) || c.busy || c.ended != nil || len(c.out) > 0 {
		return
	}
	if c.writeState.writerIdle {
		c.writeState.writerIdle, c.writerRetiring = false, true
		c.wakeWriter()
	}
	c.out, c.writeState.spareBuf, c.spareTasks = nil, nil, nil
	c.stallTimer.Release()
	c.holdTimer.Release()
	c.flushTimer.Release()
}

// write sends what nobody else does, until the connection ends.
func (c *Conn) write() {
	defer c.workerDone()
	c.mu.Lock()
	defer c.unlockAndRun()
	for {
		for c.busy || ((len(c.out) == 0 || !c.urgent) && !c.partlyWritten && c.ended == nil) {
			c.writeState.writerIdle = true
			c.unlockAndRun() // which sees to what is not urgent
			<-c.wake
			c.mu.Lock()
			c.writeState.writerIdle = false
			if c.writerRetiring {
				c.writerRetiring = false
				if !c.urgent && !c.partlyWritten && c.ended == nil {
					c.writerRetired = true
					return
				}
			}
		}
		last := c.ended != nil
		if last && (!c.ending.flush || len(c.out) == 0 && !c.partlyWritten) {
			break
		}
		if !last && len(c.out) < coalesceBytes && c.questions.n+len(c.answers) > 2 {
			// Others are about to call or answer too: what they say can leave with it.
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

// writeOut writes what waits. Nobody else must be writing. The lock is held, and given up meanwhile.
func (c *Conn) writeOut() (err error) {
	batch, stuck := c.takePending(), c.partlyWritten
	c.partlyWritten = false
	for rest := batch; (len(rest) > 0 || stuck) && err == nil; stuck = false {
		var chunk []byte
		chunk, rest = splitChunk(rest)
		patience := c.limits.WriteTimeout
		if !c.reportsProgress {
			patience += time.Duration(len(chunk)/minWriteRate) * time.Second
		}
		c.stallTimer.Set(patience)
		c.unlockAndRun()
		err = c.transport.WriteBatch(context.Background(), chunk)
		c.mu.Lock()
		c.stallTimer.Clear()
		c.chunksWritten++
		if err != nil {
			c.endLocked(transportEnding(err))
		}
		c.writingBytes -= len(chunk)
		c.wakeLimitWaiters()
	}
	c.finishWrite(batch) // after an error the rest of it is lost
	return err
}

// onWriteProgress notes that a piece was written of what is being written.
func (c *Conn) onWriteProgress() {
	c.mu.Lock()
	c.chunksWritten++
	c.stallTimer.Set(c.limits.WriteTimeout)
	c.mu.Unlock()
}

// holdOutput leaves what is answered from now on for the reader to write, all together. The lock is held.
func (c *Conn) holdOutput() {
	c.holdWrites = true
	c.holdTimer.Set(maxHold)
}

// writeFromReader has the reader write what waits. If that takes long, another takes over reading. The lock is held, and
// given up meanwhile.
func (c *Conn) writeFromReader() {
	if c.ended != nil || c.busy || !c.urgent || len(c.out) > chunkBytes {
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

// flushFromReader has the reader, while it delivers, write what is answered so far if that is worth a write: the peer can go on
// with it meanwhile.
func (c *Conn) flushFromReader() {
	c.mu.Lock()
	if gen := c.readerGen; c.holdWrites && len(c.out) >= readerFlushBytes {
		c.writeFromReader()
		if c.readerGen == gen { // it still delivers
			c.readerBusy = true
		}
	}
	c.unlockAndRun()
}

// endHold gives to the writer what the reader has not come to write, and to another reader what it has not come to read.
// The lock is held.
func (c *Conn) endHold() {
	c.holdWrites = false
	if c.byReader {
		c.replaceReader()
	}
}

// splitChunk takes as many whole messages as make a chunk, one at least.
func splitChunk(b []byte) (chunk, rest []byte) {
	if len(b) <= chunkBytes {
		return b, nil
	}
	n := 0
	for n < len(b) {
		size := trustedFrameSize(b[n:])
		if n > 0 && n+size > chunkBytes {
			break
		}
		n += size
	}
	return b[:n], b[n:]
}
