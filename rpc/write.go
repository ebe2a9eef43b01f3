// Writing: all pending output is written together, by one goroutine at a time. That is the writer, unless another goroutine
// can write sooner, without the cost of waking it: the reader, which may wait, for the answers to the calls it has just
// delivered; and a goroutine that calls or answers while nothing else is in flight that could leave with its message, as
// far as that goes without waiting, so that a peer that does not read blocks no caller. Output that nobody waits for (a
// Finish after a Return, a Release) leaves with the next message, or a moment later.

package rpc

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
	// readerFlushBytes is how many bytes of answers make the reader write them while it has more calls to deliver.
	readerFlushBytes = 4 << 10
	// maxHold is how long a delivery, or a write by the reader, may take before other goroutines take over.
	maxHold = 2 * time.Millisecond
	// lazyFlushDelay is how long output that nobody waits for is delayed for other output to leave with.
	lazyFlushDelay = 2 * time.Millisecond
)

// writeState is the state of writing, guarded by Conn.mu.
type writeState struct {
	wake            chan struct{} // wakes the writer
	writerDone      chan struct{} // closed when the writer has exited for good
	tryWriter       tryWriter     // nil if the transport is none
	writerIdle      bool          // the writer waits for wake
	writerRetiring  bool          // it is to exit
	writerRetired   bool          // it has exited: the next wake starts another
	busy            bool          // a goroutine is writing
	byReader        bool          // it is the reader
	holdWrites      bool          // the reader writes pending output after it has delivered
	partlyWritten   bool          // another goroutine wrote a part, and the writer has to go on
	spareBuf        []byte        // to collect the next batch in
	reportsProgress bool          // the transport reports the pieces it writes
	chunksWritten   uint64        // pieces and chunks written

	stallTimer lazytimer.Timer // ends the connection when a write makes no progress
	holdTimer  lazytimer.Timer // ends holdWrites
	flushTimer lazytimer.Timer // sends output that is not urgent
	flushDelay time.Duration   // how long that may take
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
		c.endLocked(ending{err: Disconnectedf("the peer does not read: a write made no progress"), code: closePolicyViolation})
	})
	c.holdTimer.Init(c.lockUnlessFinished, c.unlockAndRun, c.endHold)
	c.flushTimer.Init(c.lockUnlessFinished, c.unlockAndRun, func() { c.urgent = len(c.out) > 0 })
	c.flushDelay = lazyFlushDelay
}

// scheduleWrite arranges that pending output is written: by the writer, if wake is set, which the caller then wakes; by the
// caller itself, if atOnce is not nil; or later, since it is not urgent. The lock is held.
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
	alone := c.questions.n+len(c.answers) <= 1 // no other call is in flight, and nothing would leave with the pending output
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

// takePending takes the pending output, to be written. The lock is held.
func (c *Conn) takePending() []byte {
	batch := c.out
	c.busy = true
	c.out, c.writeState.spareBuf = c.writeState.spareBuf[:0], nil
	c.urgent = false
	c.writingBytes = len(batch)
	return batch
}

// finishWrite reuses the memory of a written batch. The lock is held.
func (c *Conn) finishWrite(batch []byte) {
	poison(batch)
	if cap(batch) <= chunkBytes {
		c.writeState.spareBuf = batch
	}
	c.busy, c.writingBytes = false, 0
}

// tryWrite writes a batch as far as that goes without waiting, and leaves the rest to the writer.
func (c *Conn) tryWrite(batch []byte) {
	tried, done, err := c.tryWriter.TryWriteBatch(batch)
	c.mu.Lock()
	if err != nil {
		c.endLocked(transportEnding(err))
	}
	if !tried {
		batch, c.out = c.out, append(batch, c.out...)
	}
	c.partlyWritten = err == nil && (!done || c.urgent) // output that was added meanwhile is the writer's too
	c.finishWrite(batch)
	c.wakeLimitWaiters()
	c.unlockAndRun()
}

// releaseIdle releases what a silent connection can allocate again: the writer's goroutine, buffers, timers. The lock is
// held.
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

// write is the writer: it sends output that no other goroutine sends, until the connection ends.
func (c *Conn) write() {
	defer c.workerDone()
	c.mu.Lock()
	defer c.unlockAndRun()
	for {
		for c.busy || ((len(c.out) == 0 || !c.urgent) && !c.partlyWritten && c.ended == nil) {
			c.writeState.writerIdle = true
			c.unlockAndRun() // which schedules output that is not urgent
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

// writeFromReader writes pending output on the reader. If that takes long, another takes over reading. The lock is held,
// and released meanwhile.
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

// flushFromReader writes, between deliveries, the answers so far if they are worth a write: the peer can go on with them
// meanwhile.
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

// endHold gives the writer the output that the reader has not written yet, and another reader the input that it has not
// read. The lock is held.
func (c *Conn) endHold() {
	c.holdWrites = false
	if c.byReader {
		c.replaceReader()
	}
}

// splitChunk splits off as many whole messages as make a chunk, at least one.
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
