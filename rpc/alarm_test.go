package rpc

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// An alarm rings once, when it was last set to: not for what has ended, and in time though a longer one was set before.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, _ := Pipe()
		c := NewConn(near, Config{})
		start := time.Now()
		var rang []time.Duration
		var a alarm
		a.init(c, func() { rang = append(rang, time.Since(start)) })
		at := func(when time.Duration, f func()) {
			time.Sleep(when - time.Since(start))
			c.mu.Lock()
			f()
			c.mu.Unlock()
		}
		at(0, func() { a.set(time.Hour); a.clear(); a.set(10 * time.Second) }) // rings at 10 s
		at(20*time.Second, func() { a.set(time.Second) })
		at(20*time.Second+500*time.Millisecond, a.clear)
		at(30*time.Second, func() { a.set(10 * time.Second) })
		at(35*time.Second, func() { a.set(10 * time.Second) }) // rings at 45 s
		at(2*time.Hour, a.rest)
		at(2*time.Hour, func() { a.set(time.Second) }) // rings with another timer
		at(3*time.Hour, func() { a.set(time.Second); a.stop() })
		time.Sleep(time.Hour)
		c.mu.Lock()
		defer c.mu.Unlock()
		if want := []time.Duration{10 * time.Second, 45 * time.Second, 2*time.Hour + time.Second}; !slices.Equal(rang, want) {
			t.Errorf("rang at %v, want %v", rang, want)
		}
	})
}
