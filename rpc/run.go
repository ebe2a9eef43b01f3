// Run: the thin loop around the core. One goroutine reads and delivers, and a timer pings. Delivery moves to a goroutine
// of its own only while something is delivered that did not come out of reading. How things are written: write.go.

package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Run serves the connection until it ends and says why: nil after Close or Drain on this side, ctx's error, or what
// went wrong (*Exception of type Disconnected for a lost or silent or closing peer, of type Failed for a broken
// protocol). When it returns, everything is released: promises are broken with Disconnected, no queued call runs any
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
		c.unlock()
		c.heard()
		stop := context.AfterFunc(ctx, func() {
			c.end(ending{err: ctx.Err(), code: closeAway, reason: "going away", flush: true})
		})
		defer stop()
		watch := c.startWatch()
		defer watch.Stop()
		go c.write()
		c.read()
		c.mu.Lock()
	}
	for !c.finished {
		for c.workers > 0 {
			c.idle.Wait()
		}
		if len(c.orphans) > 0 {
			c.mu.Unlock()
			c.sweep()
			c.mu.Lock()
			continue
		}
		c.finished = len(c.todo) == 0
		if !c.finished {
			c.unlock() // starts delivery
			c.mu.Lock()
		}
	}
	c.out, c.spare, c.outlet.spare = nil, nil, nil
	c.stalled.Stop()
	c.guard.Stop()
	c.later.Stop()
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
		defer c.leave()
		f()
	}()
	return true
}

// leave notes that a goroutine that Run waits for has ended.
func (c *Conn) leave() {
	c.mu.Lock()
	c.workers--
	if c.workers == 0 {
		c.idle.Broadcast()
	}
	c.mu.Unlock()
}

// read takes messages in and delivers what comes of them, until the connection ends or another reader has taken over
// while this one was delivering.
func (c *Conn) read() {
	defer c.leave()
	c.mu.Lock()
	gen := c.readerGen
	c.mu.Unlock()
	for {
		batch, err := c.transport.ReadBatch(context.Background())
		c.mu.Lock()
		if err != nil {
			c.hitBy(err)
			c.endLocked(lostEnding(err))
		} else {
			c.heard()
			c.lastRead.Store(c.lastHeard.Load())
		}
		c.takeBatch(batch)
		poison(batch)
		if !c.delivering && len(c.todo) > 0 {
			c.delivering, c.readerAway = true, true
			c.holdOutput()
			c.unlock()
			c.deliver(true)
			c.mu.Lock()
		}
		if c.readerGen == gen {
			c.readerAway = false
			if c.hold {
				c.hold = false
				c.readerWrites()
				if c.readerGen == gen { // else it is another reader's
					c.guard.Clear()
				}
			}
		}
		done := c.ended != nil || c.readerGen != gen
		c.unlock()
		if done {
			return
		}
	}
}

// relieveReader starts another reader if the present one is delivering, which may take long. The lock is held.
func (c *Conn) relieveReader() {
	if c.readerAway && c.ended == nil {
		c.readerAway, c.hold = false, false
		c.readerGen++
		c.workers++
		go c.read()
	}
}

// drain delivers until nothing is left. The caller has set delivering.
func (c *Conn) drain() { c.deliver(false) }

// deliver is drain, in which the reader writes now and then what is answered.
func (c *Conn) deliver(reader bool) {
	for {
		c.mu.Lock()
		if len(c.todo) == 0 {
			c.delivering = false
			c.unlock()
			return
		}
		batch := c.todo
		c.todo, c.spare = c.spare[:0], nil
		c.unlock()
		for i := range batch {
			c.runTask(batch[i])
			batch[i] = task{}
			if reader && i%8 == 7 {
				c.writePiece()
			}
		}
		c.mu.Lock()
		if cap(batch) <= 1024 {
			c.spare = batch[:0]
		}
		c.mu.Unlock()
	}
}

func (c *Conn) runTask(t task) {
	defer notificationPanics(c) // objects' panics do not come so far
	switch {
	case t.call != nil:
		t.call.deliver()
	case t.echo != nil:
		c.sendEcho(t.echo)
	default:
		t.run()
	}
}

// heard notes that the peer lives.
func (c *Conn) heard() { c.lastHeard.Store(int64(time.Since(c.start))) }

// startWatch looks after the connection: it pings whenever nothing was heard for Limits.PingInterval, and ends connections
// that are good for nothing.
func (c *Conn) startWatch() *time.Timer {
	began := time.Since(c.start)
	var timer *time.Timer
	var writing slowWrite
	timer = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		if c.ended != nil {
			c.mu.Unlock()
			return
		}
		if c.endUseless(began) {
			c.unlock()
			return
		}
		c.workers++
		c.relieveReader() // a handler that takes long is not the peer's fault
		if c.since(&c.lastRead) >= c.lim.PingInterval {
			c.rest()
		}
		busy, pieces := c.busy, c.pieces
		if c.paused { // nobody reads, so nobody would hear the answer to a ping
			c.heard()
		}
		c.unlock()
		defer c.leave()
		switch silent := c.since(&c.lastHeard); {
		case silent < c.lim.PingInterval:
			writing = slowWrite{}
		case busy && writing.goesOn(pieces):
			c.heard()
		case busy && silent < c.lim.PingInterval+c.lim.PingTimeout:
			timer.Reset(max(c.lim.PingTimeout/4, time.Millisecond))
			return
		case busy:
			c.endSilent(errors.New("a write made no progress"))
			return
		default:
			writing = slowWrite{}
			if !c.ping() {
				return
			}
		}
		timer.Reset(c.nextLook(began, time.Since(c.start)))
	})
	timer.Reset(c.nextLook(began, began))
	return timer
}

// slowWrite watches a write that is under way while nothing is heard of the peer. A ping would wait behind what is being
// written; but as long as that goes on, the peer takes it in.
type slowWrite struct {
	watched bool
	pieces  uint64 // at the last look
}

// goesOn says that pieces were written since the last look, if there was one.
func (w *slowWrite) goesOn(pieces uint64) bool {
	on := w.watched && pieces != w.pieces
	*w = slowWrite{watched: !on, pieces: pieces}
	return on
}

// ping asks the peer for a sign of life, and ends the connection if none comes.
func (c *Conn) ping() (alive bool) {
	last := c.lastHeard.Load()
	ctx, cancel := context.WithTimeout(context.Background(), c.lim.PingTimeout)
	err := c.transport.Ping(ctx)
	cancel()
	if err != nil && c.lastHeard.Load() == last { // else the answer comes behind a message that takes long
		c.endSilent(err)
		return false
	}
	c.heard()
	return true
}

func (c *Conn) endSilent(err error) {
	c.hit(LimitPingTimeout)
	c.end(ending{err: Disconnectedf("the peer is silent: %v", err), code: closePolicy, reason: "no answer to a ping"})
}

// since is how much time has gone by since lastHeard or lastRead.
func (c *Conn) since(at *atomic.Int64) time.Duration {
	return time.Since(c.start) - time.Duration(at.Load())
}

// nextLook is how long the watch may sleep from now on.
func (c *Conn) nextLook(began, now time.Duration) time.Duration {
	next := time.Duration(c.lastHeard.Load()) + c.lim.PingInterval
	if c.lastRead.Load() == 0 && c.lim.HandshakeTimeout > 0 {
		next = min(next, began+c.lim.HandshakeTimeout)
	}
	if idle := max(time.Duration(c.lastRead.Load()), began) + c.lim.IdleTimeout; idle > now {
		next = min(next, idle)
	}
	return max(next-now, time.Millisecond)
}

// endUseless ends a connection whose peer has said nothing since it began, or nothing for long while there is nothing
// that it could be waiting for; false if it is not one of those. The lock is held.
func (c *Conn) endUseless(began time.Duration) bool {
	now, read := time.Since(c.start), time.Duration(c.lastRead.Load())
	switch {
	case read == 0 && c.lim.HandshakeTimeout > 0 && now-began >= c.lim.HandshakeTimeout:
		c.hit(LimitHandshakeTimeout)
		c.endLocked(ending{err: Disconnectedf("the peer said nothing for %v", c.lim.HandshakeTimeout), code: closePolicy,
			reason: "no message came", flush: true})
	case c.lim.IdleTimeout > 0 && now-max(read, began) >= c.lim.IdleTimeout && c.holdsNothing():
		c.hit(LimitIdleTimeout)
		c.endLocked(ending{err: Disconnectedf("the connection was of no use for %v", c.lim.IdleTimeout), code: closeNormal,
			reason: "idle: nothing is held over this connection", flush: true, quiet: true})
	default:
		return false
	}
	return true
}

// holdsNothing says that neither side has a call unanswered or holds more of the other than a bootstrap interface.
func (co *core) holdsNothing() bool {
	exports := co.exports.n
	if co.boot != nil {
		if _, ok := co.exported[co.boot]; ok {
			exports--
		}
	}
	return exports == 0 && co.questions.n == 0 && len(co.answers) == 0 && len(co.imports) == 0 && len(co.out) == 0
}
