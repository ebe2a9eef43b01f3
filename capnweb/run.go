// Run: the thin loop around the core. One goroutine reads and delivers, and a timer pings. Delivery moves to a goroutine
// of its own only while something is delivered that did not come out of reading. How things are written: write.go.

package capnweb

import (
	"context"
	"runtime/debug"
	"time"
)

// Run reads and serves until the connection ends, and returns why: nil when either side closed it in good order, ctx's
// error, or what went wrong (a *BrokenError, or what broke the protocol). When it returns, everything is released:
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
		if len(c.watched) > 0 {
			c.mu.Unlock()
			c.sweep()
			c.mu.Lock()
			continue
		}
		c.finished = len(c.todo) == 0 && c.drop == nil && len(c.drops)+len(c.after) == 0
		if !c.finished {
			c.unlock() // starts delivery
			c.mu.Lock()
		}
	}
	c.out, c.outlet.spare, c.messages = outQueue{}, outQueue{}, nil
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
	var found batch
	for {
		msg, err := c.transport.Read(context.Background())
		if err == nil {
			err = refusedRead(c.admitMessage(msg))
		}
		c.taking.Store(true)
		c.mu.Lock()
		if refused, ok := asRefusal(err); ok {
			c.endLocked(c.refusedEnding(refused))
		} else if err != nil {
			c.endLocked(lostEnding(err))
		}
		if c.ended != nil {
			c.unlock()
			return
		}
		c.heard()
		c.lastRead.Store(c.lastHeard.Load())
		on := via{c: c}
		direct := !c.delivering
		if direct {
			c.delivering = true
			if !c.hold { // what is held for longer than holdTime is not held any more
				c.holdOutput()
			}
			on.batch = &found
		}
		c.unlock()
		// First the message goes into the tables, however long that takes, and then what comes of it is delivered. Only
		// while that is done may another reader take over.
		err = c.take(msg, on)
		c.heard()
		c.taking.Store(false)
		c.mu.Lock()
		if err != nil {
			c.endLocked(abortEnding(err))
		}
		if direct {
			if len(found.tasks)+len(c.todo) > 0 {
				c.readerAway = true
				if !c.hold { // taking the message in took long already
					c.guard.Set(holdTime)
				}
				c.unlock()
				for i := range found.tasks {
					c.runTask(found.tasks[i])
					found.tasks[i] = task{}
				}
				if cap(found.tasks) > 64 {
					found.tasks = nil
				}
				found.tasks = found.tasks[:0]
				c.drainTodo()
				c.mu.Lock()
			} else {
				c.delivering = false
			}
		}
		if direct && c.readerGen == gen {
			c.readerAway = false
			if !c.hold {
				c.guard.Clear()
			} else if !c.moreToRead() {
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

// take is receive that survives its own defects.
func (c *Conn) take(msg []byte, on via) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("a message caused a panic", "peer", c.RemoteAddr(), "panic", r, "stack", string(debug.Stack()))
			err = violation("internal error")
		}
	}()
	if c.cfg.Intake != nil {
		if c.cost = decodedBytes(msg); c.cost > smallCost {
			if err := c.cfg.Intake.Grow(c.cost); err != nil {
				c.end(c.refusedEnding(err))
				return nil
			}
			defer c.cfg.Intake.Shrink(c.cost)
		}
	}
	return c.receive(msg, on)
}

// smallCost is what is not worth charging for as long as a message is taken in: what comes of it is charged.
const smallCost = 64 << 10

// relieveReader starts another reader if the present one is delivering, which may take long. The lock is held.
func (c *Conn) relieveReader() {
	if c.readerAway && c.ended == nil {
		c.readerAway, c.hold = false, false
		c.readerGen++
		c.workers++
		go c.read()
	}
}

// drainTodo delivers until nothing is left. Who calls it has set delivering.
func (c *Conn) drainTodo() {
	for {
		c.mu.Lock()
		if len(c.todo) == 0 {
			c.delivering = false
			c.unlock()
			return
		}
		batch := c.todo
		c.todo = nil
		c.unlock()
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

// heard notes that the peer lives.
func (c *Conn) heard() {
	c.lastHeard.Store(int64(time.Since(c.start)))
	c.owed.Store(0)
}

// startWatch pings whenever nothing was heard for Limits.PingInterval, and ends connections that are good for nothing.
func (c *Conn) startWatch() *time.Timer {
	began := time.Since(c.start)
	var timer *time.Timer
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
		if c.paused.Load() {
			c.heard()
		}
		writes := c.busy // as long as that takes, pings would not get through: the write has a time of its own
		c.workers++
		c.relieveReader() // a handler that takes long is not the peer's fault
		c.unlock()
		defer c.leave()
		if last := c.lastHeard.Load(); !writes && time.Since(c.start)-time.Duration(last) >= c.lim.PingInterval {
			// The answer comes behind what is under way to the peer.
			owed := time.Duration(min(c.owed.Load(), mostOwed)/slowestBytes) * time.Second
			ctx, cancel := context.WithTimeout(context.Background(), c.lim.PingTimeout+owed)
			err := c.transport.Ping(ctx)
			cancel()
			if err != nil && c.lastHeard.Load() == last && !c.taking.Load() {
				c.hit(LimitPingTimeout)
				c.end(ending{err: &BrokenError{Reason: "the peer is silent", Err: err}, code: closePolicy,
					reason: "no answer to a ping"})
				return
			}
			c.heard()
		}
		next := c.nextLook(began, time.Since(c.start))
		if writes {
			next = max(next, c.lim.PingInterval/4)
		}
		timer.Reset(next)
	})
	timer.Reset(c.nextLook(began, began))
	return timer
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
		c.endLocked(ending{err: &BrokenError{Reason: "the peer said nothing"}, code: closePolicy, reason: "no message came",
			flush: true})
	case c.lim.IdleTimeout > 0 && now-max(read, began) >= c.lim.IdleTimeout && c.holdsNothing():
		c.hit(LimitIdleTimeout)
		c.endLocked(ending{err: &BrokenError{Reason: "the connection was of no use"}, code: closeNormal,
			reason: "idle: nothing is held over this connection", flush: true, quiet: true})
	default:
		return false
	}
	return true
}

// holdsNothing says that neither side has a call unanswered or holds more of the other than the main object.
func (c *Conn) holdsNothing() bool {
	return c.handed == 0 && len(c.imports) <= 1 && len(c.out.b) == 0
}
