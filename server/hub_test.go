//go:build unix

// The hub against everything it may hear: late, repeated, overtaken and wrong
// news must cost a look at most, never an event.

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

func TestHubDeliversOnceAndInOrderWhateverItHears(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	st := sqliteStore(t)
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	h := r.server.hub
	var all []*recorder
	for i := range 8 {
		k := newRecorder()
		all = append(all, k)
		promise := p.subscribing(m.sess, k, 0, uint32(i%4)*8<<10, false)
		defer promise.Release()
	}

	const events = 120
	stop := make(chan struct{})
	var noise sync.WaitGroup
	for i := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		noise.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				page, err := st.ReadLog(t.Context(), m.id, 0, 1<<20, events+10, nil)
				if err != nil {
					t.Errorf("read log: %v", err)
					return
				}
				switch rng.IntN(4) {
				case 0: // a notification, or a wrong one
					h.heard(m.id, rng.Uint64N(events+20), 0)
				case 1: // a poll that was overtaken
					h.heard(m.id, page.Row.Cursor, page.Row.AuthGen)
				default: // somebody's commit, told late or again
					n := len(page.Events)
					from := rng.IntN(n)
					to := from + 1 + rng.IntN(n-from)
					row := *page.Row
					row.Cursor = page.Events[to-1].Cursor
					told := &session.Published{Sessions: []session.PublishedSession{{Row: row, Events: page.Events[from:to], AuthChanged: rng.IntN(5) == 0}}}
					h.committing([]string{m.id})
					h.committed([]string{m.id}, told)
				}
			}
		})
	}
	for n := 0; n < events; n += 3 {
		p.must(m.stream, m.batch(put(n), put(n+1), put(n+2)))
	}
	close(stop)
	noise.Wait()
	for _, k := range all {
		k.untilCursor(t, events+1)
		k.consecutive(t, 0)
	}
}

func TestAuditIsBoundedAndLosesNoCount(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	cfg := DefaultConfig()
	cfg.Store = st
	a := newAuditor(cfg)
	target, total := capability.SessionPrefix+ulid.Make().String(), 0
	for i := range 3 * auditKinds {
		a.denied(capability.AuditRow{Target: target, Act: capability.AuditStranger, Ref: fmt.Sprintf("ref %d", i), Reason: fault.UnknownRef})
		total++
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	a.flush(gone, true) // cannot be written: it is kept
	if n := len(a.rows); n > auditKinds+1 {
		t.Errorf("%d kinds are kept", n)
	}
	a.flush(t.Context(), true)
	counted := 0
	for _, target := range []string{"", target} {
		page, err := st.ReadAudit(t.Context(), target, 0, 10*auditKinds, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			counted += int(row.Count)
			if row.Reason != fault.UnknownRef {
				t.Errorf("audited as %+v", row)
			}
		}
	}
	if counted != total {
		t.Errorf("%d denials were counted as %d", total, counted)
	}
}

// silent is a sink whose peer never answers.
type silent struct{ done func(error) }

func (s *silent) events(_ []*session.Event, done func(error)) { s.done = done }
func (s *silent) ended(*fault.Error) bool                     { return true }

// TestUnansweredDeliveryKeepsNoEvents: they are sent, and what they hold may be far more than a window counts.
func TestUnansweredDeliveryKeepsNoEvents(t *testing.T) {
	t.Parallel()
	sink := &silent{}
	sub := &subscription{topic: &topic{}, sink: sink}
	sent := func() weak.Pointer[session.Event] {
		e := &session.Event{Payload: make([]byte, 100)}
		sub.topic.deliver(delivery{sub: sub, events: []*session.Event{e}})
		return weak.Make(e)
	}()
	runtime.GC()
	if sink.done == nil || sent.Value() != nil {
		t.Error("the event is kept until there is an answer")
	}
	runtime.KeepAlive(sub)
}
