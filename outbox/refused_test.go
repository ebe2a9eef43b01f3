package outbox

// A server that makes no stream for a ref that can change nothing.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// refuser is a fakeServer that makes no stream under some refs.
type refuser struct {
	*fakeServer
	refs  map[string]fault.Code
	early bool // the opening itself says so, not the first answer
	cuts  atomic.Int64
}

func (s *refuser) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	through := req.Ref.ID
	if req.SpaceRef != nil {
		through = req.SpaceRef.ID
	}
	s.mu.Lock()
	made := s.streams[req.Session+req.Outbox] != nil
	s.mu.Unlock()
	code, dead := s.refs[through]
	switch {
	case made || !dead:
		return s.fakeServer.OpenStream(ctx, req)
	case s.early:
		return nil, code.With("no new stream")
	}
	return &refusedStream{why: code.With("no new stream"), cut: s.cuts.Add(-1) >= 0, done: make(chan struct{})}, nil
}

// refusedStream is one whose opening turns out to have been refused.
type refusedStream struct {
	why  *fault.Error
	cut  bool // the answer does not arrive
	done chan struct{}
}

func (s *refusedStream) Apply(_ *ledger.Batch, done func(Reply)) {
	if s.cut {
		done(Reply{Err: fault.Disconnected.With("the link broke")})
		return
	}
	done(Reply{Err: s.why})
}
func (s *refusedStream) Acknowledge(uint64)                     {}
func (s *refusedStream) Opened(context.Context) (uint64, error) { return 0, s.why }
func (s *refusedStream) Done() <-chan struct{}                  { return s.done }
func (s *refusedStream) Close()                                 {}

// What was to go through the stream is denied as the server would have recorded it; what goes another
// way goes on, with the seqs that were never used.
func TestRefusedStreamDeniesItsOps(t *testing.T) {
	for name, c := range map[string]struct {
		early bool
		cuts  int64
	}{"at once": {early: true}, "behind what was sent": {}, "after a link that broke": {cuts: 2}} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, p place) {
				b := p.open(t, quick())
				session := withSession(t, b)
				reader := testRef(t, b, session, RefMeta{Role: Shared})
				srv := &refuser{fakeServer: newFakeServer(), refs: map[string]fault.Code{reader.ID: fault.MissingRight}, early: c.early}
				srv.cuts.Store(c.cuts)
				x := commit(t, b, Batch{Session: session, Via: reader.ID, Ops: []Op{put("1"), put("2")}})
				needs := commit(t, b, Batch{Session: session, Via: reader.ID, Ops: []Op{depends(x), put("3")}})
				whole := commit(t, b, Batch{Session: session, Via: reader.ID, Atomic: true, Ops: []Op{put("4"), put("5")}})
				good := commit(t, b, Batch{Session: session, Ops: []Op{put("6")}})
				later := commit(t, b, Batch{Session: session, Via: reader.ID, Ops: []Op{put("7")}})
				other := commit(t, b, Batch{Session: withSession(t, b), Ops: []Op{depends(x), put("8")}})
				st, err := b.Status(limited(t))
				if err != nil {
					t.Fatal(err)
				}
				was := st.Incarnation
				stop := run(t, b, srv)
				for i, want := range [][]ledger.Status{
					{ledger.Denied, ledger.Denied}, {ledger.Skipped, ledger.Denied}, {ledger.BatchAborted, ledger.BatchAborted},
					{ledger.Applied}, {ledger.Applied}, {ledger.Skipped, ledger.Applied},
				} {
					outs := wait(t, b, []Ticket{x, needs, whole, good, later, other}[i])
					if got := statuses(outs); !slices.Equal(got, want) {
						t.Errorf("batch %d: %v, want %v", i, got, want)
					}
					if o := outs[0]; o.Status != ledger.Applied && (o.Reason != fault.MissingRight || o.Message == "") {
						t.Errorf("batch %d: %+v", i, o)
					}
				}
				if err := b.Drain(limited(t), nil); err != nil {
					t.Fatal(err)
				}
				stop()
				again := p.open(t, quick()) // it is durable
				for ticket, seq := range map[*Ticket]uint64{&x: 0, &needs: 0, &whole: 0, &good: 1, &later: 2} {
					rows, err := again.List(limited(t), Filter{Batch: ticket.Batch})
					if err != nil || len(rows) == 0 || rows[0].Seq != seq || !rows[0].State.Finished() || rows[0].Outcome == nil {
						t.Errorf("%+v, %v, want seq %d", rows, err, seq)
					}
				}
				if st, err = again.Status(limited(t)); err != nil || st.Unfinished() != 0 || len(st.Streams) != 0 || st.Incarnation < was+2 {
					t.Errorf("%+v, %v; incarnation %d before", st, err, was)
				}
				if log := srv.log(session); len(log) != 2 || log[0].op != good.Ops[0] || log[1].op != later.Ops[0] {
					t.Errorf("the session has %+v", log)
				}
			})
		})
	}
}

// A sender that takes over does not know under which ref what it finds was sent, unless its batch names that.
func TestPossiblySentOpsAreNotDenied(t *testing.T) {
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named ", named), func(t *testing.T) {
			both(t, func(t *testing.T, p place) {
				b := p.open(t, quick())
				session := withSession(t, b)
				ref := testRef(t, b, session, RefMeta{Role: Shared, Label: "best"})
				via := ""
				if named {
					via = ref.ID
				}
				srv := &refuser{fakeServer: newFakeServer()}
				sent := make(chan struct{})
				srv.before = func(*ledger.Batch) (error, bool) {
					select {
					case <-sent:
					default:
						close(sent)
					}
					return nil, true
				}
				stop := run(t, b, srv)
				x := commit(t, b, Batch{Session: session, Via: via, Ops: []Op{put("1")}})
				<-sent
				stop()
				all := map[string]fault.Code{}
				for _, r := range refsOf(t, b) {
					all[r] = fault.Revoked
				}
				run(t, b, &refuser{fakeServer: newFakeServer(), refs: all})
				outs, err := b.Wait(limited(t), x.Batch)
				if named && (err != nil || outs[0].Status != ledger.Denied) || !named && !errors.Is(err, fault.Revoked) {
					t.Errorf("%v, %v", outs, err)
				}
			})
		})
	}
}

func refsOf(t *testing.T, b *Box) (ids []string) {
	t.Helper()
	refs, err := b.Refs(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refs {
		ids = append(ids, r.ID)
	}
	return ids
}

// A session that a ref may not make is not made, and what was to be done in it is answered the same way.
func TestASessionThatAServerMakesNoStreamFor(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		space, better := testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner}), testRef(t, b, newSpace(), RefMeta{Role: SpaceOwner})
		srv := &refuser{fakeServer: newFakeServer(), refs: map[string]fault.Code{space.ID: fault.Revoked}}
		batch, owner := creating(space, "x")
		session := batch.Session
		srv.session(session).managed = true
		made := commit(t, b, batch)
		after := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		run(t, b, srv)
		for _, ticket := range []Ticket{made, after} {
			if o := wait(t, b, ticket)[0]; o.Status != ledger.Denied || o.Reason != fault.Revoked {
				t.Errorf("%+v", o)
			}
		}
		if o := wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("2")}}))[0]; o.Status != ledger.Denied {
			t.Errorf("later: %+v", o)
		}
		eventually(t, "its ref is known to be dead", func() bool {
			r, err := b.Ref(limited(t), owner.ID)
			return err == nil && r.Dead == fault.Revoked
		})
		again := Batch{Session: session, Via: better.ID, Ops: batch.Ops}
		if o := wait(t, b, commit(t, b, again))[0]; o.Status != ledger.Applied {
			t.Errorf("through another ref: %+v", o)
		}
	})
}

// A server that makes no stream for a session of which outcomes are stored here has lost it: that is for somebody to decide.
func TestOpsThatAServerHasLostAreNotDenied(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		stop := run(t, b, newFakeServer())
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if err := b.Drain(limited(t), nil); err != nil {
			t.Fatal(err)
		}
		stop()
		all := map[string]fault.Code{}
		for _, r := range refsOf(t, b) {
			all[r] = fault.Revoked
		}
		run(t, b, &refuser{fakeServer: newFakeServer(), refs: all, early: true})
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		if outs, err := b.Wait(limited(t), x.Batch); !errors.Is(err, fault.Revoked) {
			t.Errorf("%v, %v", outs, err)
		}
	})
}
