//go:build unix

// Going on where one was: whoever names the hash at its cursor is given nothing of a log
// that is not the one it has seen.

package objects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// errEnough ends a test's subscription.
var errEnough = errors.New("enough")

// followed is the first event after a position, or why there is none.
func followed(ctx context.Context, h *Capability, at Position) (*session.Event, error) {
	var first *session.Event
	err := h.Follow(ctx, at, func(events []*session.Event) error {
		first = events[0]
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return first, err
}

func TestAResumeNamesTheEventThatItStandsAt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		for n := range 8 { // 2 to 9
			p.must(m.stream, m.batch(put(n)))
		}
		one := p.share(m, "rights", []string{"read"}, "message", "msg_4") // shows event 6 alone
		late := p.share(m, "rights", []string{"read"}, "from", 5)
		ctx := within(t)
		check := func(what string, h *Capability, first uint64) {
			t.Helper()
			log, err := h.Events(ctx, Position{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			last := log.Events[len(log.Events)-1]
			if end := (Position{last.Cursor, last.Hash}); last.Hash == (session.Hash{}) {
				t.Errorf("%s: the last event has no hash", what)
			} else if page, err := h.Events(ctx, end, 10); err != nil || len(page.Events) != 0 {
				t.Errorf("%s: at the very end: %v", what, err)
			}
			for i, e := range log.Events[:len(log.Events)-1] {
				at, wrong := Position{e.Cursor, e.Hash}, Position{e.Cursor, session.Hash{1}}
				page, err := h.Events(ctx, at, 1)
				if err != nil || len(page.Events) != 1 || page.Events[0].Cursor <= e.Cursor {
					t.Errorf("%s: a page after %d: %v", what, e.Cursor, err)
				}
				if next, err := followed(ctx, h, at); err != nil || next.Cursor <= e.Cursor {
					t.Errorf("%s: following after %d: %v", what, e.Cursor, err)
				}
				if _, err := h.Events(ctx, wrong, 1); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: a page after another event %d: %v", what, e.Cursor, err)
				}
				if _, err := followed(ctx, h, wrong); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: following after another event %d: %v", what, e.Cursor, err)
				}
				if i == 0 && e.Cursor != first {
					t.Errorf("%s: the first event shown is %d", what, e.Cursor)
				}
			}
			for _, e := range log.Events {
				of, err := h.Snapshot(ctx, Position{e.Cursor, e.Hash}, func(*session.StateChunk) error { return nil })
				if err != nil || of != (Position{e.Cursor, e.Hash}) {
					t.Errorf("%s: the state of %d is of %+v: %v", what, e.Cursor, of, err)
				}
				if _, err := h.Snapshot(ctx, Position{e.Cursor, session.Hash{1}}, func(*session.StateChunk) error { return nil }); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: the state of another event %d: %v", what, e.Cursor, err)
				}
			}
			if of, err := h.Snapshot(ctx, Position{}, func(*session.StateChunk) error { return nil }); err != nil || of != (Position{last.Cursor, last.Hash}) {
				t.Errorf("%s: the present state is of %+v: %v", what, of, err)
			}
			beyond := Position{Cursor: 99}
			if _, err := h.Events(ctx, beyond, 1); !errors.Is(err, fault.ServerBehind) {
				t.Errorf("%s: a page from beyond the log: %v", what, err)
			}
		}
		caller := r.server.Caller(ctx, "192.0.2.1:1")
		check("the owner", caller.Assume(m.owner.ID), 1)
		check("who sees from 5 on", caller.Assume(late.ID), 5)
		check("who sees one message", caller.Assume(one.ID), 5)

		// What is let go of leaves the hash at the log's start.
		log, err := caller.Assume(m.owner.ID).Events(ctx, Position{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		var base uint64
		for base == 0 { // what was committed in this very moment is too young
			if _, err := st.Trim(ctx, m.id, time.Nanosecond, 6, 1<<20); err != nil {
				t.Fatal(err)
			}
			base = rowOf(t, st, m.id).Base
		}
		e := log.Events[base-1]
		if page, err := caller.Assume(m.owner.ID).Events(ctx, Position{base, e.Hash}, 1); err != nil || page.Events[0].Cursor != base+1 {
			t.Errorf("from the log's start: %v", err)
		}
		if _, err := followed(ctx, caller.Assume(m.owner.ID), Position{base, session.Hash{1}}); !errors.Is(err, fault.ServerBehind) {
			t.Errorf("from another log's start: %v", err)
		}
		if _, err := followed(ctx, caller.Assume(m.owner.ID), Position{base - 1, e.Hash}); !errors.Is(err, fault.CursorExpired) {
			t.Errorf("from before the log's start: %v", err)
		}
	})
}

// What a ref of one message is shown of the chain tells nothing: under another key it is
// something else, and it is never the chain's.
func TestHashesOfWhatIsHiddenAreKeyed(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(put(1), put(2)))
		one := p.share(m, "rights", []string{"read"}, "message", "msg_1")
		caller := r.server.Caller(within(t), "192.0.2.1:1")
		chain := map[session.Hash]bool{}
		all, err := caller.Assume(m.owner.ID).Events(t.Context(), Position{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Events {
			chain[e.Hash] = true
		}
		some, err := caller.Assume(one.ID).Events(t.Context(), Position{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some.Events {
			if chain[e.Hash] {
				t.Errorf("event %d (hidden: %t) has the chain's hash", e.Cursor, e.Hidden)
			}
		}
		row := rowOf(t, st, m.id)
		page, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, 100, nil, row.Cursor, 1, 77)
		if err != nil || page.Key == (session.HashKey{}) || len(page.Hashes) != 2 || page.Hashes[row.Cursor] != row.Head || page.Hashes[1] != all.Events[0].Hash {
			t.Errorf("the log has key %x and hashes %v: %v", page.Key, page.Hashes, err)
		}
	})
}

// chained is a log whose events have hashes; restore puts it back to a cursor.
type chained struct{ *logged }

func (c chained) append(key string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &session.Event{Session: c.row.ID, Cursor: c.row.Cursor + 1, Key: key, Payload: []byte("{}")}
	e.Hash = session.HashEvent(c.row.Head, e)
	c.events = append(c.events, e)
	c.row.Cursor, c.row.Head = e.Cursor, e.Hash
	return e.Cursor
}

func (c chained) restore(cursor uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = c.events[:cursor:cursor]
	c.row.Cursor, c.row.Head = cursor, c.events[cursor-1].Hash
}

// publish tells the hub of the log's last events as a commit of its own replica does.
func (c chained) publish(h *hub, n int) {
	h.beginCommit([]string{c.row.ID})
	h.endCommit([]string{c.row.ID}, &session.Published{Sessions: []session.PublishedSession{{Row: c.row, Events: c.events[len(c.events)-n:]}}})
}

// A database that is put back under a server takes nobody along who follows: neither by
// what the server reads, nor by what it has just committed itself.
func TestALogThatIsPutBackIsNotGoneOnWith(t *testing.T) {
	for what, c := range map[string]struct {
		since   int // events, after 3
		publish int // of these
	}{"read": {3, 0}, "published": {3, 1}, "as long as it was": {2, 0}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := chained{newLogged()}
				log.events[0].Session = log.row.ID
				log.events[0].Hash = session.HashEvent(session.Hash{}, log.events[0])
				log.row.Head = log.events[0].Hash
				h := hubOn(t, log.logged)
				took, loses := &noting{}, &noting{}
				h.follow(t, log.grant("owner", ""), 0, took, wideConnState())
				follow := func(sink *noting, after uint64) { h.follow(t, log.grant("other", ""), after, sink, wideConnState()) }
				follow(loses, 0)
				for range 4 {
					log.append("message/a")
				}
				log.publish(h, 4)
				synctest.Wait()
				if took.at() != 5 || loses.at() != 5 {
					t.Fatalf("they have events up to %d and %d", took.at(), loses.at())
				}
				log.restore(3)
				for range c.since { // 4 and 5 are others now
					log.append("message/b")
				}
				if c.publish > 0 {
					log.publish(h, c.publish)
				} else {
					h.notify(log.row.ID, log.row.Cursor, 2)
				}
				synctest.Wait()
				for _, s := range []*noting{took, loses} {
					if s.at() != 5 || s.why == nil || s.why.Code != fault.ServerBehind {
						t.Errorf("who has events up to 5 was given those up to %d: %v", s.at(), s.why)
					}
				}
				fresh := &noting{}
				follow(fresh, 3)
				synctest.Wait()
				if fresh.at() != log.row.Cursor || fresh.why != nil {
					t.Errorf("who follows from before has events up to %d: %v", fresh.at(), fresh.why)
				}
			})
		})
	}
}

// Who was busy goes on from what it has, and from the hash of that.
func TestWhoWasBusyGoesOnWithItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := chained{newLogged()}
		log.events[0].Session = log.row.ID
		log.events[0].Hash = session.HashEvent(session.Hash{}, log.events[0])
		log.row.Head = log.events[0].Hash
		h, n, busy := hubOn(t, log.logged), &noting{}, 0
		n.err = func() error {
			if busy--; busy >= 0 {
				return errWouldBlock
			}
			return nil
		}
		h.follow(t, log.grant("owner", ""), 0, n, wideConnState())
		synctest.Wait()
		for range 4 {
			log.append("message/a")
		}
		busy = 2
		log.publish(h, 4)
		time.Sleep(3 * wouldBlockPause)
		synctest.Wait()
		if n.at() != 5 || n.why != nil {
			t.Errorf("it has events up to %d: %v", n.at(), n.why)
		}
	})
}
