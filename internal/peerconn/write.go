// Writing: all pending output is written together, by one goroutine at a time. That is the writer, unless another goroutine
// can write sooner, without the cost of waking it: the reader, which may wait, for the answers to the calls it has just
// delivered; and, where the transport is a TryWriter, a goroutine that calls or answers while nothing else is in flight that
// could leave with its message, as far as that goes without waiting, so that a peer that does not read blocks no caller.
// Output that nobody waits for leaves with the next message, or a moment later.

package peerconn

import (
	"errors"
	"runtime"
	"time"

	"github.com/mooring-rpc/mooring/internal/lazytimer"
)

const (
	// ChunkBytes is how much is written at once: small enough for pings to get in between, and for an expired write deadline
	// to mean no progress.
	ChunkBytes = 64 << 10
	// minWriteRate is how many bytes a second are enough for a peer not to count as silent while written bytes are on their way
	// to it, and for a single large message not to count as stalled where the transport does not report pieces.
	minWriteRate = 64 << 10
	// coalesceBytes is the size below which the writer waits for more.
	coalesceBytes = 8 << 10
	// readerFlushBytes is how many bytes of answers make the reader write them while it has more calls to deliver, or to read.
	readerFlushBytes = 4 << 10
	// maxHold is how long a delivery, or a write by the reader, may take before other goroutines take over.
	maxHold = 2 * time.Millisecond
	// lazyFlushDelay is how long output that nobody waits for is delayed for other output to leave with.
	lazyFlushDelay = 20 * time.Millisecond
)

// writeState is the state of writing.
type writeState struct {
	wake            chan struct{} // wakes the writer
	writerDone      chan struct{} // closed when the writer has exited for good
	tryWriter       TryWriter     // nil if the transport is none
	peeker          Peeker        // nil if the transport is none
	writerIdle      bool          // the writer waits for wake
	writerRetiring  bool          // it is to exit
	writerRetired   bool          // it does not run: when it is needed it is started
	busy            bool          // a goroutine is writing
	byReader        bool          // it is the reader
	holdWrites      bool          // the reader writes pending output after it has delivered
	partlyWritten   bool          // another goroutine wrote a part, and the writer has to go on
	reportsProgress bool          // the transport reports the pieces it writes
	chunksWritten   uint64        // pieces and chunks written

	stallTimer lazytimer.Timer // ends the connection when a write makes no progress
	holdTimer  lazytimer.Timer // ends holdWrites
	flushTimer lazytimer.Timer // sends output that is not urgent
	flushDelay time.Duration   // how long that may take
}

func (l *Loop) initWriteState() {
	l.wake, l.writerDone, l.writerRetired = make(chan struct{}, 1), make(chan struct{}), true
	l.timer(&l.stallTimer, func() {
		l.CountHit(LimitWriteTimeout)
		l.EndLocked(Ending{Err: l.codec.Disconnected(errors.New("the peer does not read: a write made no progress")), Code: ClosePolicyViolation})
	})
	l.timer(&l.holdTimer, l.endHold)
	l.timer(&l.flushTimer, func() { l.out.Urgent = l.out.pending() > 0 })
	l.flushDelay = lazyFlushDelay
}

// scheduleWrite arranges that pending output is written: by the writer, if wake is set, which the caller then wakes; by the
// caller itself, if atOnce is not nil; or later, since it is not urgent.
func (l *Loop) scheduleWrite() (wake bool, atOnce *buffer) {
	n := l.out.pending()
	if !l.running || !(l.writerIdle || l.writerRetired) || l.busy || (n == 0 && !l.partlyWritten && !l.ended) {
		return false, nil
	}
	if n > ChunkBytes || l.partlyWritten {
		l.out.Urgent = true
	}
	if !l.ended && n <= ChunkBytes && (l.holdWrites || !l.out.Urgent) {
		if !l.holdWrites && !l.flushTimer.IsSet() {
			l.flushTimer.Set(l.flushDelay)
		}
		return false, nil
	}
	if l.tryWriter != nil && !l.partlyWritten && !l.ended && n <= coalesceBytes && l.codec.InFlight() <= 1 {
		l.workers++ // no other call is in flight, and nothing would leave with the pending output
		return false, l.takePending()
	}
	if l.writerRetired {
		l.writerRetired = false
		l.workers++
		go l.write()
		return false, nil
	}
	l.writerIdle = false
	return true, nil
}

func (l *Loop) wakeWriter() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// takePending takes pending output, to be written.
func (l *Loop) takePending() *buffer {
	batch := l.out.take()
	l.busy = true
	l.out.writing = len(batch.b)
	return batch
}

// finishWrite reuses the memory of a written batch, if there is one.
func (l *Loop) finishWrite(batch *buffer) {
	l.busy, l.out.writing = false, 0
	switch {
	case batch == nil:
	case l.cfg.Freed != nil:
		l.cfg.Freed(batch.b)
	default:
		batch.free()
	}
}

// tryWrite writes a batch as far as that goes without waiting, and leaves the rest to the writer. The lock is not held.
func (l *Loop) tryWrite(batch *buffer) {
	tried, done, err := l.tryWriter.TryWriteBatch(batch.b)
	l.lockAfter(err)
	if tried {
		l.written(len(batch.b))
	} else {
		l.out.putBack(batch)
		batch = nil
	}
	l.partlyWritten = err == nil && (!done || l.out.Urgent) // output that was added meanwhile is the writer's too
	l.finishWrite(batch)
	l.codec.Wrote()
	l.workerDone()
	l.codec.UnlockAndRun()
}

// releaseIdle releases what a silent connection can allocate again: the writer's goroutine, timers.
func (l *Loop) releaseIdle() {
	if !(l.writerIdle || l.writerRetired) || l.busy || l.ended || l.out.pending() > 0 {
		return
	}
	if l.writerIdle {
		l.writerIdle, l.writerRetiring = false, true
		l.wakeWriter()
	}
	l.spareTasks = nil
	l.stallTimer.Release()
	l.holdTimer.Release()
	l.flushTimer.Release()
}

// write is the writer: it sends output that no other goroutine sends, until the connection ends.
func (l *Loop) write() {
	defer l.WorkerDone()
	l.mu.Lock()
	defer l.codec.UnlockAndRun()
	for {
		for l.busy || ((l.out.pending() == 0 || !l.out.Urgent) && !l.partlyWritten && !l.ended) {
			l.writerIdle = true
			l.codec.UnlockAndRun() // which schedules output that is not urgent
			<-l.wake
			l.mu.Lock()
			l.writerIdle = false
			if l.writerRetiring {
				l.writerRetiring = false
				if !l.out.Urgent && !l.partlyWritten && !l.ended {
					l.writerRetired = true
					return
				}
			}
		}
		last := l.ended
		if last && (!l.ending.Flush || l.out.pending() == 0 && !l.partlyWritten) {
			break
		}
		if !last && l.out.pending() < coalesceBytes && l.codec.InFlight() > 2 {
			// Other goroutines are about to call or answer too: their messages can leave with it.
			l.busy = true
			l.codec.UnlockAndRun()
			runtime.Gosched()
			l.mu.Lock()
			l.busy = false
		}
		if err := l.writeOut(); err != nil {
			break
		}
	}
	close(l.writerDone)
}

// writeOut writes a chunk of pending output, and what another goroutine has left of one. No other goroutine may be writing. The
// lock is released meanwhile.
func (l *Loop) writeOut() error {
	batch := l.takePending()
	l.partlyWritten = false
	patience := l.cfg.Timeouts.Write
	if !l.reportsProgress {
		patience += time.Duration(len(batch.b)/minWriteRate) * time.Second
	}
	l.stallTimer.Set(patience)
	l.codec.UnlockAndRun()
	err := l.codec.Write(batch.b, batch.ends)
	l.lockAfter(err)
	l.stallTimer.Clear()
	l.chunksWritten++
	l.written(len(batch.b))
	l.finishWrite(batch)
	l.codec.Wrote()
	return err
}

// onWriteProgress records that a piece of the current write was written. The lock is not held.
func (l *Loop) onWriteProgress() {
	l.mu.Lock()
	l.chunksWritten++
	l.stallTimer.Set(l.cfg.Timeouts.Write)
	l.mu.Unlock()
}

// HoldOutput leaves further answers for the reader to write, all together.
func (l *Loop) HoldOutput() {
	l.holdWrites = true
	l.holdTimer.Set(maxHold)
}

// writeFromReader writes pending output on the reader. If that takes long, another takes over reading. The lock is released
// meanwhile.
func (l *Loop) writeFromReader() {
	if l.ended || l.busy || !l.out.Urgent || l.out.pending() > ChunkBytes {
		return
	}
	gen := l.readerGen
	l.byReader, l.readerBusy = true, true
	_ = l.writeOut() // it has ended the connection
	l.byReader = false
	if l.readerGen == gen {
		l.readerBusy = false
	}
}

// flushFromReader writes, between deliveries, the answers so far if they are worth a write: the peer can go on with them
// meanwhile. The lock is not held.
func (l *Loop) flushFromReader() {
	l.mu.Lock()
	if gen := l.readerGen; l.holdWrites && l.out.pending() >= readerFlushBytes {
		l.writeFromReader()
		if l.readerGen == gen { // it still delivers
			l.readerBusy = true
		}
	}
	l.codec.UnlockAndRun()
}

// endHold gives the writer the output that the reader has not written yet, and another reader the input that it has not
// read.
func (l *Loop) endHold() {
	l.holdWrites = false
	if l.byReader || l.cfg.RelieveDelivery {
		l.replaceReader()
	}
}
