// Run: the thin loop around the core. One goroutine reads and delivers, and a timer pings. Delivery moves to a goroutine
// of its own only while something is delivered that did not come from reading. For writing see write.go.

package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Run serves the connection until it ends and returns why: nil after Close or Drain on this side, ctx's error, or the
// failure (*Exception of type Disconnected for a lost or silent or closing peer, of type Failed for a protocol
// violation). When it returns, everything is released: promises are broken with Disconnected, no queued call runs any
// more, the contexts of running calls are cancelled and the goroutines of Call.Go have ended. Call it once.
func (c *Conn) Run(ctx context.Context) error {
	c.mu.Lock()
	if c.running {
		c.mu.Unlock()
		panic("rpc: Conn.Run called twice")
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
		if len(c.orphans) > 0 {
			c.mu.Unlock()
			c.failOrphans()
			c.mu.Lock()
			continue
		}
		c.finished = len(c.tasks) == 0
		if !c.finished {
			c.unlockAndRun() // starts delivery
			c.mu.Lock()
		}
	}
	c.out, c.spareTasks, c.writeState.spareBuf = nil, nil, nil
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
	for {
		batch, err := c.transport.ReadBatch(context.Background())
		c.mu.Lock()
		if err != nil {
			c.countHitOf(err)
			c.endLocked(transportEnding(err))
		} else {
			c.markActivity()
			c.lastMessage.Store(c.lastActivity.Load())
		}
		c.receiveBatch(batch)
		poison(batch)
		if !c.delivering && len(c.tasks) > 0 {
			c.delivering, c.readerBusy = true, true
			c.holdOutput()
			c.unlockAndRun()
			c.deliver(true)
			c.mu.Lock()
		}
		if c.readerGen == gen {
			c.readerBusy = false
			if c.holdWrites {
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

// replaceReader starts another reader if the present one is delivering, which may take long. The lock is held.
func (c *Conn) replaceReader() {
	if c.readerBusy && c.ended == nil {
		c.readerBusy, c.holdWrites = false, false
		c.readerGen++
		c.workers++
		go c.read()
	}
}

// drain delivers until nothing is left. The caller has set delivering.
func (c *Conn) drain() { c.deliver(false) }

// deliver is drain; with reader set it writes answers between deliveries.
func (c *Conn) deliver(reader bool) {
	for {
		c.mu.Lock()
		if len(c.tasks) == 0 {
			c.delivering = false
			c.unlockAndRun()
			return
		}
		batch := c.tasks
		c.tasks, c.spareTasks = c.spareTasks[:0], nil
		c.unlockAndRun()
		for i := range batch {
			c.runTask(batch[i])
			batch[i] = task{}
			if reader && i%8 == 7 {
				c.flushFromReader()
			}
		}
		c.mu.Lock()
		if cap(batch) <= 1024 {
			c.spareTasks = batch[:0]
		}
		c.mu.Unlock()
	}
}

func (c *Conn) runTask(t task) {
	defer notificationPanics(c) // panics of objects are recovered before this
	switch {
	case t.call != nil:
		t.call.deliver()
	case t.disembargo != nil:
		c.returnDisembargo(t.disembargo)
	default:
		t.run()
	}
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
		c.workers++
		c.replaceReader() // a handler that takes long is not the peer's fault
		if c.since(&c.lastMessage) >= c.limits.PingInterval {
			c.releaseIdle()
		}
		busy, pieces := c.busy, c.chunksWritten
		if c.readerPaused { // nobody reads, so nobody would read the answer to a ping
			c.markActivity()
		}
		c.unlockAndRun()
		defer c.workerDone()
		switch silent := c.since(&c.lastActivity); {
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
	if err != nil && c.lastActivity.Load() == last { // else the answer comes behind a message that takes long
		c.endUnresponsive(err)
		return false
	}
	c.markActivity()
	return true
}

func (c *Conn) endUnresponsive(err error) {
	c.countHit(LimitPingTimeout)
	c.end(ending{err: Disconnectedf("the peer is silent: %v", err), code: closePolicyViolation, reason: "no answer to a ping"})
}

// since returns the time since lastActivity or lastMessage.
func (c *Conn) since(at *atomic.Int64) time.Duration {
	return time.Since(c.start) - time.Duration(at.Load())
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
		c.endLocked(ending{err: Disconnectedf("the peer said nothing for %v", c.limits.HandshakeTimeout), code: closePolicyViolation,
			reason: "no message came", flush: true})
	case c.limits.IdleTimeout > 0 && now-max(read, began) >= c.limits.IdleTimeout && c.isUnused():
		c.countHit(LimitIdleTimeout)
		c.endLocked(ending{err: Disconnectedf("the connection was of no use for %v", c.limits.IdleTimeout), code: closeNormal,
			reason: "idle: nothing is held over this connection", flush: true, noLog: true})
	default:
		return false
	}
	return true
}

// isUnused reports whether neither side has a call unanswered or references more of the other than a bootstrap interface.
func (co *core) isUnused() bool {
	exports := co.exports.n
	if co.boot != nil {
		if _, ok := co.exportIDs[co.boot]; ok {
			exports--
		}
	}
	return exports == 0 && co.questions.n == 0 && len(co.answers) == 0 && len(co.imports) == 0 && len(co.out) == 0
}
