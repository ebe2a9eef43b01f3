//go:build unix

// Whatever a hub hears and whatever its followers do, each of them gets its part of the
// log once and in order, up to the end or the cut, and is told of its end once. And what
// a commit or a notification tells is delivered without any poll. The world of this is
// in hub_story_test.go and hub_follower_test.go.

package fanout

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
)

var (
	hubStories = flag.Int("stories", seed.Cases(3000), "how many random stories of a hub are told")
)

func TestHubStories(t *testing.T) {
	first := seed.Of(t)
	for i := range *hubStories {
		if faults := hubStory(t, first+uint64(i)); faults != "" {
			t.Fatalf("%s\nSEED=%d -run HubStories -stories 1 tells it again", faults, first+uint64(i))
		}
	}
}

// hubStory tells one story and gives what was wrong, with all that happened.
func hubStory(t *testing.T, seed uint64) (faults string) {
	synctest.Test(t, func(*testing.T) {
		s := newStory(seed)
		defer s.h.Close()
		chapters := 1 + s.dice.n(3)
		for i := range chapters {
			s.chapter()
			if i == chapters-1 && s.dice.chance(50) {
				s.end()
			}
			s.settle()
		}
		s.end()
		s.settle()
		if len(s.faults) > 0 {
			faults = strings.Join(s.notes, "\n") + "\n\n" + strings.Join(s.faults, "\n")
		}
	})
	return faults
}

// chapter has things happen at once, one after the other, and after a while.
func (s *story) chapter() {
	for range 3 + s.dice.n(50) {
		s.happen(s.dice)
		switch n := s.dice.n(10); {
		case n < 6:
			synctest.Wait()
			s.accounts(false)
		case n < 8:
			time.Sleep(time.Duration(s.dice.n(100)) * time.Millisecond)
		}
	}
}

// end has the hub end.
func (s *story) end() {
	s.note("the hub ends")
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.h.EndAll(fault.Draining.With("the server is stopping"))
	synctest.Wait()
	for _, f := range s.followers {
		if f.holding && !f.finished() {
			s.fault("%s waits for its snapshot still", f.name)
		}
	}
}

// settle has everything become good, and holds what has come of it against the promises.
func (s *story) settle() {
	s.note("all becomes good")
	s.mu.Lock()
	s.calm = true
	s.news = nil // these were not told
	s.mu.Unlock()
	for s.advance(s.dice) {
	}
	for _, f := range s.followers {
		f.answer(s.dice, len(f.held))
	}
	time.Sleep(20 * time.Second)
	synctest.Wait()
	s.promises(false)
	s.poll()
	s.h.expire(clock())
	time.Sleep(20 * time.Second)
	synctest.Wait()
	s.promises(true)
	s.accounts(true)
	s.mu.Lock()
	s.calm = false
	s.followers = slices.DeleteFunc(s.followers, func(f *follower) bool { return f.ends > 0 })
	s.mu.Unlock()
}

// promises holds each follower against what its log's hub was told: by now, or by a poll
// and the look for expired refs as well.
func (s *story) promises(polled bool) {
	for _, f := range s.followers {
		c := f.of
		row, _ := c.now(f.ref)
		cut := f.cut()
		over := f.ends > 0
		switch {
		case over && f.ends > 1, f.began > 1, over && f.began == 0:
			s.fault("%s was told %d times of its begin, %d times of its end", f.name, f.began, f.ends)
		case over:
		case f.began == 0:
			s.fault("%s was not told whether it may follow", f.name)
		case s.ended, f.left, f.failed, polled && (cut > 0 || f.expired()):
			s.fault("%s, at %d, was not told that it is over", f.name, f.at)
		case f.expired():
		case cut > 0 && (c.gen >= c.changes[cut] || c.cursor >= cut && c.cursor >= f.from):
			s.fault("%s, at %d, was not told of its end at %d, which was told to the hub (%d, authority %d)", f.name, f.at, cut, c.cursor, c.gen)
		case cut > 0:
		case f.at < c.cursor, polled && f.at != max(row.Cursor, f.from-1):
			s.fault("%s is at %d of %d, the hub was told of %d (polled: %v)", f.name, f.at, row.Cursor, c.cursor, polled)
		}
	}
	if len(s.faults) > 0 {
		s.show()
	}
	if limit := 100 + 20*s.stirs; s.reads > limit {
		s.fault("%d reads after %d causes", s.reads, s.stirs)
	}
}

// accounts holds what is under way over the links against their limits, and what is left
// in the end.
func (s *story) accounts(settled bool) {
	for _, c := range s.logs {
		if t := s.h.fanout(c.row.ID); t != nil && t.keeps() {
			s.fault("%s: events are kept for nobody", c.name)
			s.show()
		}
	}
	for i, l := range s.conns {
		living, calls := 0, 0
		for _, f := range s.followers {
			if f.sub.conn != l || f.ends > 0 {
				continue
			}
			if living++; !f.finished() { // else what is under way was given back
				calls += f.calls
			}
		}
		l.mu.Lock()
		underway, line, subs, turn := l.inFlight, len(l.waiters), l.subs, (*waiter)(nil)
		if line > 0 && l.waiters[0].wake == nil {
			turn = l.waiters[0]
		}
		l.mu.Unlock()
		switch {
		case turn != nil && !slices.ContainsFunc(s.followers, func(f *follower) bool { return &f.sub.waiter == turn && f.stopped() }):
			s.fault("link %d: the first in line keeps its turn", i)
		case settled && (underway != 0 || line != 0 || subs != living):
			s.fault("link %d: %d bytes under way, %d in line, %d subscriptions of %d", i, underway, line, subs, living)
		case underway < 0 || underway > l.maxInFlight && calls > 1:
			s.fault("link %d: %d bytes under way in %d calls, its limit is %d", i, underway, calls, l.maxInFlight)
		}
	}
}

// keeps says that t has a tail that nobody is going to be sent.
func (t *sessionFanout) keeps() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.subs {
		if s.paused || s.inSnapshot {
			return false
		}
	}
	return t.tail.Len() > 0 && !t.running && len(t.ready) == 0
}

// stopped says that f's topic, or f, waits for a time or for the log.
func (f *follower) stopped() bool {
	t := f.sub.fanout
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running || t.failedReads > 0 || f.sub.paused
}

func (f *follower) finished() bool {
	f.sub.fanout.mu.Lock()
	defer f.sub.fanout.mu.Unlock()
	return f.sub.finished
}

// show notes how the hub stands with everybody.
func (s *story) show() {
	for _, c := range s.logs {
		if t := s.h.fanout(c.row.ID); t != nil {
			s.note("%s: thought to be at %d, authority %d, %d ready, running %v, %d reads failed, %d events kept", c.name, t.cursor, t.gen, len(t.ready), t.running, t.failedReads, t.tail.Len())
		}
	}
	for i, l := range s.conns {
		s.note("link %d: %d bytes under way, %d in line", i, l.inFlight, len(l.waiters))
	}
	for _, f := range s.followers {
		t := f.sub
		s.note("%s of %s, link %d: at %d, %d under way, queued %v, passed %v, resting %v, holding %v, finished %v, place in line %d, waits %v", f.name, f.of.name,
			slices.Index(s.conns, t.conn), t.cursor, t.inFlight, t.queued, t.skipped, t.paused, t.inSnapshot, t.finished,
			slices.Index(t.conn.waiters, &t.waiter), t.conn.isWaiting(&t.waiter))
	}
}
