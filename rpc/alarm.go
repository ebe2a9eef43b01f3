// alarm: a timer for what is begun and ended often.

package rpc

import "time"

// alarm calls a function when something takes too long. Its timer is not set and stopped every time, but looks again
// when it goes off too early, and exists only while it is needed. Conn.mu guards it.
type alarm struct {
	c     *Conn
	ring  func() // with the lock held
	timer *time.Timer
	armed bool
	at    time.Duration // when the timer goes off, since Conn.start
	due   time.Duration // when it is to ring; 0 for not at all
}

func (a *alarm) init(c *Conn, ring func()) {
	a.c, a.ring = c, ring
}

// rest gives the timer up until it is needed again.
func (a *alarm) rest() {
	if !a.armed {
		a.timer = nil
	}
}

// stop is the end of it.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// set has the alarm ring in d, unless it is cleared or set anew before.
func (a *alarm) set(d time.Duration) {
	a.due = time.Since(a.c.start) + d
	if !a.armed || a.due < a.at {
		a.arm(d)
	}
}

func (a *alarm) arm(d time.Duration) {
	a.armed, a.at = true, time.Since(a.c.start)+d
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.look)
	} else {
		a.timer.Reset(d)
	}
}

func (a *alarm) clear() { a.due = 0 }

func (a *alarm) look() {
	a.c.mu.Lock()
	defer a.c.unlock()
	a.armed = false
	if a.due == 0 || a.c.finished {
		return
	}
	if early := a.due - time.Since(a.c.start); early > 0 {
		a.arm(early)
		return
	}
	a.due = 0
	a.ring()
}
