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

	"github.com/mooring-rpc/mooring/internal/alarm"
)

const (
	// chunkBytes is how much is written at once: small enough for pings to get in between, and for the write deadline to
	// mean no progress.
	chunkBytes = 64 << 10
	// slowestBytes a second are enough for a single large message not to count as stalled, where the transport tells
	// nothing of its pieces.
	slowestBytes = 64 << 10
	// smallBytes is how little is worth waiting for more.
	smallBytes = 8 << 10
	// pieceBytes is how much the reader answers before it writes that, with more to be answered.
	pieceBytes = 4 << 10
	// holdTime is how long what is delivered, or written by the reader, may take before the others take over from it.
	holdTime = 2 * time.Millisecond
	// laterTime is how long what nobody waits for waits for something to leave with.
	laterTime = 2 * time.Millisecond
)

// outlet is the state of writing, guarded by Conn.mu.
type outlet struct {
	wake    chan struct{} // tells the writer that there is something for it
	written chan struct{} // closed when the writer has gone for good
	try     tryer         // nil if the transport is none
	idle    bool          // the writer waits for wake
	retire  bool          // it is to go home
	away    bool          // it has: the next to want it starts another
	busy    bool          // somebody writes
	reader  bool          // it is the reader
	hold    bool          // the reader will write what waits as soon as it has delivered
	stuck   bool          // somebody else wrote, and the writer has to go on
	spare   []byte        // to gather the next in
	paced   bool          // the transport tells of the pieces it writes
	pieces  uint64        // pieces and chunks that were written

	stalled alarm.Alarm   // ends the connection when a write makes no progress
	guard   alarm.Alarm   // ends hold
	later   alarm.Alarm   // sends what is not urgent
	leisure time.Duration // how long that may take
}

// enter takes the lock for an alarm, and says that the connection is not over.
func (c *Conn) enter() bool {
	c.mu.Lock()
	return !c.finished
}

func (c *Conn) initOutlet() {
	c.wake, c.written = make(chan struct{}, 1), make(chan struct{})
	c.stalled.Init(c.enter, c.unlock, func() {
		c.hit(LimitWriteTimeout)
		c.endLocked(ending{err: Disconnectedf("the peer does not read: a write made no progress"), code: closePolicy})
	})
	c.guard.Init(c.enter, c.unlock, c.endHold)
	c.later.Init(c.enter, c.unlock, func() { c.urgent = len(c.out) > 0 })
	c.leisure = laterTime
}

// handOut sees to it that what waits is written: by the writer, if the caller is to wake it; by the caller itself, if it gets
// something to write at once; or later, since it is not urgent. The lock is held.
func (c *Conn) handOut() (wake bool, atOnce []byte) {
	if !(c.outlet.idle || c.away) || c.busy || (len(c.out) == 0 && !c.stuck && c.ended == nil) {
		return false, nil
	}
	if len(c.out) > chunkBytes || c.stuck {
		c.urgent = true
	}
	if c.ended == nil && len(c.out) <= chunkBytes && (c.hold || !c.urgent) {
		if !c.hold && !c.later.IsSet() {
			c.later.Set(c.leisure)
		}
		return false, nil
	}
	alone := c.questions.n+len(c.answers) <= 1 // no other call is under way, and nothing would leave with what waits
	if alone && c.try != nil && !c.stuck && c.running && c.ended == nil && len(c.out) <= smallBytes {
		return false, c.takeOut()
	}
	if c.away {
		c.away = false
		c.workers++
		go c.write()
		return false, nil
	}
	c.outlet.idle = false
	return true, nil
}

// takeOut takes what waits, to be written. The lock is held.
func (c *Conn) takeOut() []byte {
	batch := c.out
	c.busy = true
	c.out, c.outlet.spare = c.outlet.spare[:0], nil
	c.urgent = false
	c.writing = len(batch)
	return batch
}

// wrote keeps the memory of what was written. The lock is held.
func (c *Conn) wrote(batch []byte) {
	poison(batch)
	if cap(batch) <= chunkBytes {
		c.outlet.spare = batch
	}
	c.busy, c.writing = false, 0
}

// tryWrite writes what was taken, and leaves to the writer what that would have to wait for.
func (c *Conn) tryWrite(batch []byte) {
	tried, done, err := c.try.TryWriteBatch(batch)
	c.mu.Lock()
	if err != nil {
		c.endLocked(lostEnding(err))
	}
	if !tried {
		batch, c.out = c.out, append(batch, c.out...)
	}
	c.stuck = err == nil && (!done || c.urgent) // what came up meanwhile is the writer's too
	c.wrote(batch)
	c.roomMade()
	c.unlock()
}

// rest has a connection that is silent give back what it can have again: the writer's goroutine, buffers, timers. The
// lock is held.
func (c *Conn) rest() {
	if !(c.outlet.idle || c.away) || c.busy || c.ended != nil || len(c.out) > 0 {
		return
	}
	if c.outlet.idle {
		c.outlet.idle, c.retire = false, true
		c.wakeWriter()
	}
	c.out, c.outlet.spare, c.spare = nil, nil, nil
	c.stalled.Rest()
	c.guard.Rest()
	c.later.Rest()
}

// write sends what nobody else does, until the connection ends.
func (c *Conn) write() {
	defer c.leave()
	c.mu.Lock()
	defer c.unlock()
	for {
		for c.busy || ((len(c.out) == 0 || !c.urgent) && !c.stuck && c.ended == nil) {
			c.outlet.idle = true
			c.unlock() // which sees to what is not urgent
			<-c.wake
			c.mu.Lock()
			c.outlet.idle = false
			if c.retire {
				c.retire = false
				if !c.urgent && !c.stuck && c.ended == nil {
					c.away = true
					return
				}
			}
		}
		last := c.ended != nil
		if last && (!c.ending.flush || len(c.out) == 0 && !c.stuck) {
			break
		}
		if !last && len(c.out) < smallBytes && c.questions.n+len(c.answers) > 2 {
			// Others are about to call or answer too: what they say can leave with it.
			c.busy = true
			c.unlock()
			runtime.Gosched()
			c.mu.Lock()
			c.busy = false
		}
		if err := c.writeOut(); err != nil || last {
			break
		}
	}
	close(c.written)
}

// writeOut writes what waits. Nobody else must be writing. The lock is held, and given up meanwhile.
func (c *Conn) writeOut() (err error) {
	batch, stuck := c.takeOut(), c.stuck
	c.stuck = false
	for rest := batch; (len(rest) > 0 || stuck) && err == nil; stuck = false {
		var chunk []byte
		chunk, rest = cutChunk(rest)
		patience := c.lim.WriteTimeout
		if !c.paced {
			patience += time.Duration(len(chunk)/slowestBytes) * time.Second
		}
		c.stalled.Set(patience)
		c.unlock()
		err = c.transport.WriteBatch(context.Background(), chunk)
		c.mu.Lock()
		c.stalled.Clear()
		c.pieces++
		if err != nil {
			c.endLocked(lostEnding(err))
		}
		c.writing -= len(chunk)
		c.roomMade()
	}
	c.wrote(batch) // after an error the rest of it is lost
	return err
}

// wrotePiece notes that a piece was written of what is being written.
func (c *Conn) wrotePiece() {
	c.mu.Lock()
	c.pieces++
	c.stalled.Set(c.lim.WriteTimeout)
	c.mu.Unlock()
}

// holdOutput leaves what is answered from now on for the reader to write, all together. The lock is held.
func (c *Conn) holdOutput() {
	c.hold = true
	c.guard.Set(holdTime)
}

// readerWrites has the reader write what waits. If that takes long, another takes over reading. The lock is held, and
// given up meanwhile.
func (c *Conn) readerWrites() {
	if c.ended != nil || c.busy || !c.urgent || len(c.out) > chunkBytes {
		return
	}
	gen := c.readerGen
	c.reader, c.readerAway = true, true
	_ = c.writeOut() // it has ended the connection
	c.reader = false
	if c.readerGen == gen {
		c.readerAway = false
	}
}

// writePiece has the reader, while it delivers, write what is answered so far if that is worth a write: the peer can go on
// with it meanwhile.
func (c *Conn) writePiece() {
	c.mu.Lock()
	if gen := c.readerGen; c.hold && len(c.out) >= pieceBytes {
		c.readerWrites()
		if c.readerGen == gen { // it still delivers
			c.readerAway = true
		}
	}
	c.unlock()
}

// endHold gives to the writer what the reader has not come to write, and to another reader what it has not come to read.
// The lock is held.
func (c *Conn) endHold() {
	c.hold = false
	if c.reader {
		c.relieveReader()
	}
}

// cutChunk takes as many whole messages as make a chunk, one at least.
func cutChunk(b []byte) (chunk, rest []byte) {
	if len(b) <= chunkBytes {
		return b, nil
	}
	n := 0
	for n < len(b) {
		size := ownFrameSize(b[n:])
		if n > 0 && n+size > chunkBytes {
			break
		}
		n += size
	}
	return b[:n], b[n:]
}
