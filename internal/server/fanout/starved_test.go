//go:build unix

// Subscriptions that find no room on their connection.

package fanout

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// What is large finds room beside what is small, of which there is always some under
// way.
func TestLargeDeliveryFindsRoom(t *testing.T) {
	t.Parallel()
	l := &Flow{maxInFlight: 1000}
	var small, large waiter
	reserves := func(bytes int, w *waiter, want bool) {
		t.Helper()
		if got := l.reserve(bytes, w, func() {}); got != want {
			t.Fatalf("%d bytes find room: %v, with %d under way and %d in line", bytes, got, l.inFlight, len(l.waiters))
		}
	}
	reserves(10, &small, true)
	reserves(2000, &large, false)
	reserves(10, &small, false) // comes behind it
	l.release(10)()
	if !l.isTurn(&large) || l.isWaiting(&large) || l.isTurn(&small) {
		t.Fatal("it is not the large one's turn when nothing is under way")
	}
	reserves(2000, &large, true)
	l.endTurn(&large)()
	if l.isTurn(&small) {
		t.Error("a small one is woken while there is no room")
	}
	l.release(2000)()
	reserves(10, &small, true)
	// A turn lasts as long as there is room, and who leaves has none.
	reserves(10, &small, true)
	reserves(2000, &large, false)
	l.endTurn(&small)()
	l.releaseAll(&large, 0)()
	reserves(10, &small, true)
	if len(l.waiters) != 0 || l.inFlight != 30 {
		t.Errorf("%d are in line, %d bytes under way", len(l.waiters), l.inFlight)
	}
}

// answering is a sink that answers after a while, which is another every time.
type answering struct {
	noting
	rng *rand.Rand
}

func (a *answering) Events(shown *session.Shown, done func(error)) {
	a.noting.Events(shown, func(error) {
		time.AfterFunc(time.Duration(a.rng.IntN(20))*time.Millisecond, func() { done(nil) })
	})
}

// Whatever the sizes of their events, and whoever leaves, nobody on a connection waits
// for ever.
func TestEverybodyOnAConnectionIsServed(t *testing.T) {
	seed := seed.Of(t)
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := &Flow{maxInFlight: 64 << 10, maxSubs: 100}
		var all []*answering
		for range 5 {
			log := newLogged()
			for range 100 {
				log.append(1 << rng.IntN(18))
			}
			owner, h := log.grant("owner", ""), hubOn(t, log)
			for i := range 5 {
				a := &answering{rng: rand.New(rand.NewPCG(seed, uint64(len(all))))}
				s := h.follow(t, owner, uint64(rng.IntN(100)), a, l)
				if i == 4 {
					time.AfterFunc(time.Duration(rng.IntN(500))*time.Millisecond, func() { s.End(nil) })
					continue
				}
				all = append(all, a)
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, a := range all {
			if a.at() != 101 {
				t.Errorf("one is at %d of 101", a.at())
			}
		}
		if l.inFlight != 0 || len(l.waiters) != 0 {
			t.Errorf("%d bytes are under way, %d are in line", l.inFlight, len(l.waiters))
		}
	})
}

// A turn is not kept by who needed it for a page of the log, once, and was then sent
// what was published.
func TestTurnEndsWithWhatWasPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, behind, n := newLogged(), &noting{}, &noting{}
		owner, hurried := log.grant("owner", ""), log.grant("hurried", "")
		log.grants[hurried.ref].Expires = 1 // the database's clock is at 0
		for range 5 {
			log.append(100)
		}
		h, narrow := hubOn(t, log), &Flow{maxInFlight: 1, maxSubs: 10}
		h.pageBytes = 1 // a page for each event
		h.follow(t, hurried, log.row.Cursor, n, narrow)
		synctest.Wait()
		var last, served uint64
		var first, next waiter
		narrow.reserve(1, &first, func() {})
		behind.err = func() error { // while the runner is at work for who is behind
			switch len(behind.calls) {
			case 1: // n finds no room, and is the first in line
				last = log.append(100)
				h.BeginCommit([]string{log.row.ID})
				h.EndCommit([]string{log.row.ID}, &session.Published{Sessions: []session.PublishedSession{{Row: log.row, Events: session.NewUnscopedEvents(log.events[last-1:])}}})
			case 2: // it is read for, and the page is of another place
				narrow.reserve(1, &next, func() { served = last })
				h.expire(1)
			case 4: // its turn
				narrow.release(1)()
			}
			return nil
		}
		h.follow(t, owner, 0, behind, wideConnState())
		synctest.Wait()
		if n.at() != last || served != last {
			t.Errorf("the first in line is at %d of %d, the second was served: %v", n.at(), last, served == last)
		}
	})
}

// A subscriber whose connection takes no more is left alone for a while, however
// many deliveries it was to get.
func TestBusySubscriberIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const looks = 10
		begun, log, n := time.Now(), newLogged(), &noting{}
		for range 20 {
			log.append(300 << 10) // deliveries of one event, three in a window
		}
		n.err = func() error {
			if time.Since(begun) < looks*wouldBlockPause && log.reads < 1000 {
				return ErrWouldBlock
			}
			return nil
		}
		h := hubOn(t, log)
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		time.Sleep(2 * looks * wouldBlockPause)
		synctest.Wait()
		if log.reads > 3*looks || n.at() != 21 {
			t.Errorf("the log was read %d times while the subscriber was busy for %d pauses; it is at %d of 21", log.reads, looks, n.at())
		}
	})
}
