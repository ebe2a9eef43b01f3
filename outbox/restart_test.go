package outbox

// Streams that cannot go on are left.

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
	"github.com/mooring-rpc/mooring/outbox/internal/writer"
)

// stopping is a server that answers what is sent of a session with an error, once told to.
type stopping struct {
	*fakeServer
	mu      sync.Mutex
	session string
	with    error
}

func newStopping() *stopping {
	s := &stopping{fakeServer: newFakeServer()}
	s.before = func(b *ledger.Batch) (error, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.Session == s.session {
			return s.with, false
		}
		return nil, false
	}
	return s
}

func (s *stopping) stopAt(session string, with error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session, s.with = session, with
}

// fresh has the server go on, and know nothing of a stream, as one that is shown another
// secret does.
func (s *stopping) fresh(session, outbox string) {
	s.stopAt("", nil)
	s.fakeServer.mu.Lock()
	defer s.fakeServer.mu.Unlock()
	delete(s.streams, session+outbox)
}

// What stops a stream for good, and what passes.
func TestHopeless(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]bool{
		fault.ServerBehind: true, fault.OutboxDiverged: true, fault.WrongOutbox: true, fault.OutboxDamaged: true,
		fault.None: false, fault.Revoked: false, fault.Incompatible: false, fault.Unavailable: false, fault.QuotaExceeded: false,
	} {
		if NeedsNewStream(code) != want {
			t.Errorf("%v: %t", code, !want)
		}
	}
}

// A stream is abandoned by another process than the one that sends, and no other session
// is harmed by it.
func TestAbandonGivesUpOneStream(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b, other := p.open(t, quick()), p.open(t, quick())
		srv := newStopping()
		stuck, spared := withSession(t, b), withSession(t, b)
		run(t, b, srv)
		first := commit(t, b, Batch{Session: stuck, Ops: []Op{put("0")}})
		wait(t, b, first)
		srv.stopAt(stuck, fault.ServerBehind.With("on request"))
		x := commit(t, b, Batch{Session: stuck, Ops: []Op{put("1"), put("2")}})
		y := commit(t, b, Batch{Session: stuck, Ops: []Op{put("3")}})
		needs := commit(t, b, Batch{Session: spared, Ops: []Op{{Method: "put", Args: []ledger.Arg{{Name: "v", Ref: &ledger.Ref{Op: y.Ops[0], Path: "cursor"}}}}, put("4")}})
		eventually(t, "the stream stops", func() bool {
			still, err := other.Stopped(ctx, stuck)
			return err == nil && still != nil && still.Code == fault.ServerBehind
		})
		if still, err := other.Stopped(ctx, spared); err != nil || still != nil {
			t.Errorf("the other session: %v, %v", still, err)
		}

		ops, err := other.Abandon(ctx, stuck)
		if want := append(slices.Clone(x.Ops), y.Ops...); err != nil || !slices.Equal(ops, want) {
			t.Fatalf("abandoned %v, %v; want %v", ops, err, want)
		}
		srv.fresh(stuck, b.ID())
		for _, ticket := range []Ticket{x, y} {
			for _, o := range wait(t, b, ticket) {
				if o.Status != ledger.Voided || !strings.Contains(o.Message, "abandoned") {
					t.Errorf("%+v", o)
				}
			}
		}
		if got := wait(t, b, needs); got[0].Status != ledger.Skipped || got[0].Cause != y.Ops[0] || got[1].Status != ledger.Applied {
			t.Errorf("what needs one of them: %+v", got)
		}
		rows, err := b.List(ctx, Filter{Session: stuck, States: []State{Void}})
		if err != nil || len(rows) != 3 {
			t.Errorf("%+v, %v", rows, err)
		}
		if still, err := b.Stopped(ctx, stuck); err != nil || still != nil {
			t.Errorf("afterwards: %v, %v", still, err)
		}

		// The session goes on in a stream of its own, from its first seq on.
		z := commit(t, other, Batch{Session: stuck, Ops: []Op{put("5")}})
		if got := wait(t, other, z); got[0].Status != ledger.Applied {
			t.Errorf("what comes next: %+v", got)
		}
		secrets := map[string]bool{}
		for _, req := range srv.openings() {
			if req.Session == stuck {
				secrets[req.Secret.RevealText()] = true
			}
		}
		if len(secrets) != 2 {
			t.Errorf("the server was shown %d secrets", len(secrets))
		}
		if ops, err := b.Abandon(ctx, stuck); err != nil || len(ops) > 0 {
			t.Errorf("again: %v, %v", ops, err)
		}
		if _, err := b.Abandon(ctx, newSession()); !errors.Is(err, fault.NotFound) {
			t.Errorf("of a session that is none: %v", err)
		}
	})
}

// An outcome of the stream before says nothing of the present one, however late it is
// stored.
func TestALateOutcomeIsOfTheStreamBefore(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		session := withSession(t, b)
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		if _, err := b.Abandon(ctx, session); err != nil {
			t.Fatal(err)
		}
		last := func(to writer.HighWater) (seq uint64) {
			t.Helper()
			err := b.w.Do(ctx, func(context.Context, sqlstore.Querier) error { b.w.Seqs.RaiseHighWater(session, to); return nil })
			if err == nil {
				err = b.read(ctx, "look", func(ctx context.Context, q sqlstore.Querier) error {
					st, err := b.t.Stream(ctx, q, session)
					seq = st.LastSeq
					return err
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			return seq
		}
		if seq := last(writer.HighWater{Seq: 9, Incarnation: 0}); seq != 0 {
			t.Errorf("the former stream's seq counts: %d", seq)
		}
		if seq := last(writer.HighWater{Seq: 2, Incarnation: 1}); seq != 2 {
			t.Errorf("the present stream's does not: %d", seq)
		}
	})
}

// What had stopped for good is known to, also while a new sender tries it again and its
// server is away.
func TestAStopIsRemembered(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newStopping()
		session := withSession(t, b)
		srv.stopAt(session, fault.OutboxDiverged.With("on request"))
		stop := run(t, b, srv)
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		stopped := func() *StreamStoppedError {
			still, err := b.Stopped(ctx, session)
			if err != nil {
				t.Fatal(err)
			}
			return still
		}
		eventually(t, "the stream stops", func() bool { return stopped() != nil })
		stop()
		srv.setDown(fault.Disconnected.With("nobody is there"))
		stop = run(t, b, srv)
		eventually(t, "it is tried again", func() bool { return onLoop(b, func(*machine.Machine) {}) })
		if still := stopped(); still == nil || still.Code != fault.OutboxDiverged || !strings.Contains(still.Error(), "on request") {
			t.Errorf("while the server is away: %v", still)
		}
		srv.fresh(session, b.ID())
		srv.setDown(nil)
		wait(t, b, x)
		eventually(t, "its answer is stored", func() bool { return stopped() == nil })
		stop()
	})
}
