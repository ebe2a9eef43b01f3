// Package lazytimer has a timer for timeouts that are set and cleared often, as for each write and each delivery of a
// connection.
package lazytimer

import "time"

// Timer calls a function when an operation takes too long. Its time.Timer is not set and stopped every time, but set again
// when it fires too early, and exists only while it is needed. A Timer belongs to an owner whose lock guards it: all
// methods are called with that lock held.
type Timer struct {
	lock    func() bool
	unlock  func()
	fire    func()
	timer   *time.Timer
	armed   bool
	firesAt time.Time // when the time.Timer fires
	due     time.Time // the deadline; zero for none
}

// Init sets the owner, before anything else is called: enter takes the owner's lock and reports whether the owner is still
// running, leave releases the lock in any case, and ring is called in between at the deadline.
func (a *Timer) Init(enter func() bool, leave, ring func()) {
	a.lock, a.unlock, a.fire = enter, leave, ring
}

// Set sets the deadline to d from now, replacing an earlier one.
func (a *Timer) Set(d time.Duration) {
	a.due = time.Now().Add(d)
	if !a.armed || a.due.Before(a.firesAt) {
		a.arm(d)
	}
}

// IsSet reports whether there is a deadline.
func (a *Timer) IsSet() bool { return !a.due.IsZero() }

// Clear removes the deadline.
func (a *Timer) Clear() { a.due = time.Time{} }

// Release frees the time.Timer, unless it is running, until it is needed again.
func (a *Timer) Release() {
	if !a.armed {
		a.timer = nil
	}
}

// Stop stops the time.Timer for good.
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
