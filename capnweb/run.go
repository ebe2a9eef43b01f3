// Run: the thin loop around the core. One goroutine reads and delivers, and a timer pings. Delivery moves to a goroutine
// of its own only while something is delivered that did not come from reading. For writing see write.go.

package capnweb

import (
	"context"
	"errors"
	"runtime/debug"
	"time"
)

// Run reads and serves until the connection ends, and returns why: nil when either side closed it in an orderly way, ctx's
// error, or the failure (a *BrokenError, or the protocol violation). When it returns, everything is released:
// promises are broken, the contexts of running calls are cancelled and the goroutines of Call.Go have ended. Call it
// once.
func (c *Conn) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		panic("capnweb: Conn.Run called twice")
	}
	c.running = true
	if c.ended == nil {
		c.workers += 2
		c.unlockAndRun()
		c.markActivity()
		stop := context.AfterFunc(ctx, func() {
			c.end(ending{err: ctx.Err(), code: closeGoingAway, reason: "going away", flush: true})
		})
		defer stop()
		watch := c.startKeepalive()
		defer watch.Stop()
		go c.write()
		c.read()
		c.mu.Lock()
	}
	for !c.finished {
		for c.workers > 0 {
			c.workersDone.Wait()
		}
		if len(c.watchedCalls) > 0 {
			c.mu.Unlock()
			c.failUnanswered()
			c.mu.Lock()
			continue
		}
		c.finished = len(c.tasks) == 0 && c.drop == nil && len(c.drops)+len(c.afterUnlock) == 0
		if !c.finished {
			c.unlockAndRun() // starts delivery
			c.mu.Lock()
		}
	}
	c.out, c.writeState.spareQueue, c.messages = outQueue{}, outQueue{}, nil
	c.stallTimer.Stop()
	c.holdTimer.Stop()
	c.flushTimer.Stop()
	err := c.ending.err
	c.mu.Unlock()
	return err
}

// spawn runs f in a goroutine that Run waits for; false once the connection has ended.
func (c *Conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return false
	}
	c.workers++
	go func() {
		defer c.workerDone()
		f()
	}()
	return true
}

// workerDone records that a goroutine that Run waits for has ended.
func (c *Conn) workerDone() {
	c.mu.Lock()
	c.workers--
	if c.workers == 0 {
		c.workersDone.Broadcast()
	}
	c.mu.Unlock()
}

// read reads messages and delivers the calls in them, until the connection ends or another reader has taken over while
// this one was delivering.
func (c *Conn) read() {
	defer c.workerDone()
	c.mu.Lock()
	gen := c.readerGen
	c.mu.Unlock()
	var found taskBatch
	for {
		msg, err := c.transport.Read(context.Background())
		if err == nil {
			err = refusedRead(c.admitMessage(msg))
		}
		c.handlingMessage.Store(true)
		c.mu.Lock()
		if refused, ok := asRefusal(err); ok {
			c.endLocked(c.rejectEnding(refused))
		} else if err != nil {
			c.endLocked(transportEnding(err))
		}
		if c.ended != nil {
			c.unlockAndRun()
			return
		}
		c.markActivity()
		c.lastMessage.Store(c.lastActivity.Load())
		on := via{c: c}
		direct := !c.delivering
		if direct {
			c.delivering = true
			if !c.holdWrites { // output is held back for maxHold at most
				c.holdOutput()
			}
			on.tasks = &found
		}
		c.unlockAndRun()
		// First the message goes into the tables, however long that takes, and then its calls are delivered. Only
		// during delivery may another reader take over.
		err = c.handleMessage(msg, on)
		c.markActivity()
		c.handlingMessage.Store(false)
		c.mu.Lock()
		if err != nil {
			c.endLocked(abortEnding(err))
		}
		if direct {
			if len(found.tasks)+len(c.tasks) > 0 {
				c.readerBusy = true
				if !c.holdWrites { // handling the message took too long already
					c.holdTimer.Set(maxHold)
				}
				c.unlockAndRun()
				for i := range found.tasks {
					c.runTask(found.tasks[i])
					found.tasks[i] = task{}
				}
				if cap(found.tasks) > 64 {
					found.tasks = nil
				}
				found.tasks = found.tasks[:0]
				c.drainTasks()
				c.mu.Lock()
			} else {
				c.delivering = false
			}
		}
		if direct && c.readerGen == gen {
			c.readerBusy = false
			if !c.holdWrites {
				c.holdTimer.Clear()
			} else if !c.moreToRead() {
				c.holdWrites = false
				c.writeFromReader()
				if c.readerGen == gen { // else it is another reader's
					c.holdTimer.Clear()
				}
			}
		}
		done := c.ended != nil || c.readerGen != gen
		c.unlockAndRun()
		if done {
			return
		}
	}
}

// handleMessage is receive with panics, which are defects of ours, recovered.
func (c *Conn) handleMessage(msg []byte, on via) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a message caused a panic", "peer", c.RemoteAddr(), "panic", r, "stack", string(debug.Stack()))
			err = violation("internal error")
		}
	}()
	if c.cfg.Intake != nil {
		if c.messageCost = decodedBytes(msg); c.messageCost > minChargedMessage {
			if err := c.cfg.Intake.Grow(c.messageCost); err != nil {
				c.end(c.rejectEnding(err))
				return nil
			}
			defer c.cfg.Intake.Shrink(c.messageCost)
		}
	}
	return c.receive(msg, on)
}

// minChargedMessage is the size below which a message is not charged while it is handled: what results from it is charged.
const minChargedMessage = 64 << 10

// replaceReader starts another reader if the present one is delivering, which may take long. The lock is held.
func (c *Conn) replaceReader() {
	if c.readerBusy && c.ended == nil {
		c.readerBusy, c.holdWrites = false, false
		c.readerGen++
		c.workers++
		go c.read()
	}
}

// drainTasks delivers until nothing is left. The caller has set delivering.
func (c *Conn) drainTasks() {
	for {
		c.mu.Lock()
		if len(c.tasks) == 0 {
			c.delivering = false
			c.unlockAndRun()
			return
		}
		batch := c.tasks
		c.tasks = nil
		c.unlockAndRun()
		for _, t := range batch {
			c.runTask(t)
		}
	}
}

func (c *Conn) runTask(t task) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a delivery panicked", "peer", c.RemoteAddr(), "panic", r, "stack", string(debug.Stack()))
		}
	}()
	t.run()
}

// markActivity records a sign of life of the peer.
func (c *Conn) markActivity() { c.lastActivity.Store(int64(time.Since(c.start))) }

// startKeepalive starts the timer that pings whenever the peer was silent for Limits.PingInterval, and that ends unused
// connections.
func (c *Conn) startKeepalive() *time.Timer {
	began := time.Since(c.start)
	var timer *time.Timer
	var writing writeProgress
	timer = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		if c.ended != nil {
			c.mu.Unlock()
			return
		}
		if c.endIfUnused(began) {
			c.unlockAndRun()
			return
		}
		if c.readerPaused.Load() || c.handlingMessage.Load() { // nobody reads, so nobody would read the answer to a ping
			c.markActivity()
		}
		busy, pieces := c.busy, c.chunksWritten
		c.workers++
		c.replaceReader() // a handler that takes long is not the peer's fault
		c.unlockAndRun()
		defer c.workerDone()
		switch silent := time.Since(c.start) - time.Duration(c.lastActivity.Load()); {
		case silent < c.limits.PingInterval:
			writing = writeProgress{}
		case busy && writing.advanced(pieces):
			c.markActivity()
		case busy && silent < c.limits.PingInterval+c.limits.PingTimeout:
			timer.Reset(max(c.limits.PingTimeout/4, time.Millisecond))
			return
		case busy:
			c.endUnresponsive(errors.New("a write made no progress"))
			return
		default:
			writing = writeProgress{}
			if !c.ping() {
				return
			}
		}
		timer.Reset(c.nextCheck(began, time.Since(c.start)))
	})
	timer.Reset(c.nextCheck(began, began))
	return timer
}

// writeProgress watches a write that is under way while the peer is silent. A ping would wait behind it; but as long as
// pieces are written, the peer reads.
type writeProgress struct {
	watched bool
	chunks  uint64 // at the last check
}

// advanced reports whether pieces were written since the last check, if there was one.
func (w *writeProgress) advanced(pieces uint64) bool {
	on := w.watched && pieces != w.chunks
	*w = writeProgress{watched: !on, chunks: pieces}
	return on
}

// ping asks the peer for a sign of life, and ends the connection if none comes.
func (c *Conn) ping() (alive bool) {
	last := c.lastActivity.Load()
	ctx, cancel := context.WithTimeout(context.Background(), c.limits.PingTimeout)
	err := c.transport.Ping(ctx)
	cancel()
	// An answer may come behind a message that takes long to arrive, or to be handled.
	if err != nil && c.lastActivity.Load() == last && !c.handlingMessage.Load() {
		c.endUnresponsive(err)
		return false
	}
	c.markActivity()
	return true
}

func (c *Conn) endUnresponsive(err error) {
	c.countHit(LimitPingTimeout)
	c.end(ending{err: &BrokenError{Reason: "the peer is silent: " + err.Error(), Err: err}, code: closePolicyViolation,
		reason: "no answer to a ping"})
}

// nextCheck returns how long the keepalive timer may sleep.
func (c *Conn) nextCheck(began, now time.Duration) time.Duration {
	next := time.Duration(c.lastActivity.Load()) + c.limits.PingInterval
	if c.lastMessage.Load() == 0 && c.limits.HandshakeTimeout > 0 {
		next = min(next, began+c.limits.HandshakeTimeout)
	}
	if idle := max(time.Duration(c.lastMessage.Load()), began) + c.limits.IdleTimeout; idle > now {
		next = min(next, idle)
	}
	return max(next-now, time.Millisecond)
}

// endIfUnused ends a connection whose peer has sent nothing since it began, or nothing for long while it can be waiting for
// nothing; false if neither is true. The lock is held.
func (c *Conn) endIfUnused(began time.Duration) bool {
	now, read := time.Since(c.start), time.Duration(c.lastMessage.Load())
	switch {
	case read == 0 && c.limits.HandshakeTimeout > 0 && now-began >= c.limits.HandshakeTimeout:
		c.countHit(LimitHandshakeTimeout)
		c.endLocked(ending{err: &BrokenError{Reason: "the peer said nothing"}, code: closePolicyViolation, reason: "no message came",
			flush: true})
	case c.limits.IdleTimeout > 0 && now-max(read, began) >= c.limits.IdleTimeout && c.isUnused():
		c.countHit(LimitIdleTimeout)
		c.endLocked(ending{err: &BrokenError{Reason: "the connection was of no use"}, code: closeNormal,
			reason: "idle: nothing is held over this connection", flush: true, noLog: true})
	default:
		return false
	}
	return true
}

// isUnused reports whether neither side has a call unanswered or references more of the other than the main object.
func (c *Conn) isUnused() bool {
	return c.exportCount == 0 && len(c.imports) <= 1 && len(c.out.b) == 0
}
