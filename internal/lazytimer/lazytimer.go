// Package lazytimer has a timer for what is begun and ended often, as each write and each delivery of a connection is.
package lazytimer

import "time"

// Timer calls a function when something takes too long. Its timer is not set and stopped every time, but looks again
// when it goes off too early, and exists only while it is needed. It belongs to an owner whose lock guards it: all
// methods are called with that lock held.
type Timer struct {
	lock    func() bool
	unlock  func()
	fire    func()
	timer   *time.Timer
	armed   bool
	firesAt time.Time // when the timer goes off
	due     time.Time // when it is to ring; zero for not at all
}

// Init says whose alarm it is, before anything else is called: enter takes the owner's lock and reports whether the
// owner is still there, leave gives the lock up in any case, and ring is called in between.
func (a *Timer) Init(enter func() bool, leave, ring func()) {
	a.lock, a.unlock, a.fire = enter, leave, ring
}

// Set has the alarm ring in d, unless it is cleared or set anew before.
func (a *Timer) Set(d time.Duration) {
	a.due = time.Now().Add(d)
	if !a.armed || a.due.Before(a.firesAt) {
		a.arm(d)
	}
}

// IsSet says that it is to ring.
func (a *Timer) IsSet() bool { return !a.due.IsZero() }

// Clear has it not ring.
func (a *Timer) Clear() { a.due = time.Time{} }

// Release gives the timer up until it is needed again.
func (a *Timer) Release() {
	if !a.armed {
		a.timer = nil
	}
}

// Stop is the end of it.
func (a *Timer) Stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (a *Timer) arm(d time.Duration) {
	a.armed, a.firesAt = true, time.Now().Add(d)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.expire)
	} else {
		a.timer.Reset(d)
	}
}

func (a *Timer) expire() {
	there := a.lock()
	defer a.unlock()
	a.armed = false
	if !there || a.due.IsZero() {
		return
	}
	if early := time.Until(a.due); early > 0 {
		a.arm(early)
		return
	}
	a.due = time.Time{}
	a.fire()
}
