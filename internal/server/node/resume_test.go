//go:build unix

// Going on where one was: whoever names the hash at its cursor is given nothing of a log
// that is not the one it has seen.

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// errEnough ends a test's subscription.
var errEnough = errors.New("enough")

// followed is the first event after a position, or why there is none.
func followed(ctx context.Context, h *objects.Capability, at fanout.Position) (*session.Event, error) {
	var first *session.Event
	err := h.Follow(ctx, at, nil, func(events []*session.Event) error {
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
		check := func(label string, h *objects.Capability, first uint64) {
			t.Helper()
			log, err := h.Events(ctx, fanout.Position{}, nil, 100)
			if err != nil {
				t.Fatal(err)
			}
			last := log.Events[len(log.Events)-1]
			if end := (fanout.Position{Cursor: last.Cursor, Hash: last.Hash}); last.Hash == (session.Hash{}) {
				t.Errorf("%s: the last event has no hash", label)
			} else if page, err := h.Events(ctx, end, nil, 10); err != nil || len(page.Events) != 0 {
				t.Errorf("%s: at the very end: %v", label, err)
			}
			for i, e := range log.Events[:len(log.Events)-1] {
				at, wrong := fanout.Position{Cursor: e.Cursor, Hash: e.Hash}, fanout.Position{Cursor: e.Cursor, Hash: session.Hash{1}}
				page, err := h.Events(ctx, at, nil, 1)
				if err != nil || len(page.Events) != 1 || page.Events[0].Cursor <= e.Cursor {
					t.Errorf("%s: a page after %d: %v", label, e.Cursor, err)
				}
				if next, err := followed(ctx, h, at); err != nil || next.Cursor <= e.Cursor {
					t.Errorf("%s: following after %d: %v", label, e.Cursor, err)
				}
				if _, err := h.Events(ctx, wrong, nil, 1); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: a page after another event %d: %v", label, e.Cursor, err)
				}
				if _, err := followed(ctx, h, wrong); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: following after another event %d: %v", label, e.Cursor, err)
				}
				if i == 0 && e.Cursor != first {
					t.Errorf("%s: the first event shown is %d", label, e.Cursor)
				}
			}
			for _, e := range log.Events {
				of, err := h.Snapshot(ctx, fanout.Position{Cursor: e.Cursor, Hash: e.Hash}, nil, false, func(*session.StateChunk) error { return nil })
				if err != nil || of != (fanout.Position{Cursor: e.Cursor, Hash: e.Hash}) {
					t.Errorf("%s: the state of %d is of %+v: %v", label, e.Cursor, of, err)
				}
				if _, err := h.Snapshot(ctx, fanout.Position{Cursor: e.Cursor, Hash: session.Hash{1}}, nil, false, func(*session.StateChunk) error { return nil }); !errors.Is(err, fault.ServerBehind) {
					t.Errorf("%s: the state of another event %d: %v", label, e.Cursor, err)
				}
			}
			if of, err := h.Snapshot(ctx, fanout.Position{}, nil, false, func(*session.StateChunk) error { return nil }); err != nil || of != (fanout.Position{Cursor: last.Cursor, Hash: last.Hash}) {
				t.Errorf("%s: the present state is of %+v: %v", label, of, err)
			}
			beyond := fanout.Position{Cursor: 99}
			if _, err := h.Events(ctx, beyond, nil, 1); !errors.Is(err, fault.ServerBehind) {
				t.Errorf("%s: a page from beyond the log: %v", label, err)
			}
		}
		caller := r.server.Caller(ctx, "192.0.2.1:1")
		check("the owner", caller.Assume(m.owner.ID), 1)
		check("who sees from 5 on", caller.Assume(late.ID), 5)
		check("who sees one message", caller.Assume(one.ID), 5)

		// What is let go of leaves the hash at the log's start.
		log, err := caller.Assume(m.owner.ID).Events(ctx, fanout.Position{}, nil, 100)
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
		if page, err := caller.Assume(m.owner.ID).Events(ctx, fanout.Position{Cursor: base, Hash: e.Hash}, nil, 1); err != nil || page.Events[0].Cursor != base+1 {
			t.Errorf("from the log's start: %v", err)
		}
		if _, err := followed(ctx, caller.Assume(m.owner.ID), fanout.Position{Cursor: base, Hash: session.Hash{1}}); !errors.Is(err, fault.ServerBehind) {
			t.Errorf("from another log's start: %v", err)
		}
		if _, err := followed(ctx, caller.Assume(m.owner.ID), fanout.Position{Cursor: base - 1, Hash: e.Hash}); !errors.Is(err, fault.CursorExpired) {
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
		all, err := caller.Assume(m.owner.ID).Events(t.Context(), fanout.Position{}, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Events {
			chain[e.Hash] = true
		}
		some, err := caller.Assume(one.ID).Events(t.Context(), fanout.Position{}, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some.Events {
			if chain[e.Hash] {
				t.Errorf("event %d (hidden: %t) has the chain's hash", e.Cursor, e.Hidden)
			}
		}
		row := rowOf(t, st, m.id)
		found, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, 100, nil, row.Cursor, 1, 77)
		if err != nil {
			t.Fatal(err)
		}
		page := found.Shown(&capability.Grant{})
		if page.Key == (session.HashKey{}) || len(page.Hashes) != 2 || page.Hashes[row.Cursor] != row.Head || page.Hashes[1] != all.Events[0].Hash {
			t.Errorf("the log has key %x and hashes %v: %v", page.Key, page.Hashes, err)
		}
	})
}
