package lazytimer

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An alarm rings once, when it was last set to: not for what has ended, and in time though a longer one was set before.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var rang []time.Duration
		var a Timer
		there := true
		a.Init(func() bool { mu.Lock(); return there }, mu.Unlock, func() { rang = append(rang, time.Since(start)) })
		at := func(when time.Duration, f func()) {
			time.Sleep(when - time.Since(start)) // of the bubble's clock
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		at(0, func() { a.Set(time.Hour); a.Clear(); a.Set(10 * time.Second) }) // rings at 10 s
		at(20*time.Second, func() { a.Set(time.Second) })
		at(20*time.Second+500*time.Millisecond, a.Clear)
		at(30*time.Second, func() { a.Set(10 * time.Second) })
		at(35*time.Second, func() { a.Set(10 * time.Second) }) // rings at 45 s
		at(2*time.Hour, a.Release)
		at(2*time.Hour, func() { a.Set(time.Second) }) // rings with another timer
		at(3*time.Hour, func() { a.Set(time.Second); a.Stop() })
		at(4*time.Hour, func() { a = Timer{lock: a.lock, unlock: a.unlock, fire: a.fire}; a.Set(time.Second); there = false })
		at(5*time.Hour, func() {
			if want := []time.Duration{10 * time.Second, 45 * time.Second, 2*time.Hour + time.Second}; !slices.Equal(rang, want) {
				t.Errorf("rang at %v, want %v", rang, want)
			}
		})
	})
}
