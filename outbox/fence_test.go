package outbox

// What is on its way of a stream that is left, and how far its server has it.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// copied takes a copy of a session as it is, and gives what restores it.
func (s *fakeServer) copied(session, outbox string) (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, log := s.streams[session+outbox], slices.Clone(s.session(session).log)
	row := r.row
	var records []*ledger.Record
	for seq := uint64(1); seq <= row.LastSeq; seq++ {
		if rec := r.history.Record(seq); rec != nil && rec.FirstSeq == seq {
			records = append(records, rec)
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.session(session).log = log
		s.streams[session+outbox] = &fakeStreamRow{row: row, history: ledger.NewHistory(slices.Clone(records)), hash: r.hash}
	}
}

// A server is restored, and the log that it has by then has lost its beginning: the seqs
// tell what is missing. What an old connection brings afterwards is refused, and whoever
// begins to send has the log read again.
func TestFence(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		stop := run(t, b, srv)
		var restore func()
		var tickets []Ticket
		for i := range 4 {
			tickets = append(tickets, commit(t, b, Batch{Session: session, Ops: []Op{put(fmt.Sprint(i)), put(fmt.Sprint(i + 100))}}))
			wait(t, b, tickets[i])
			if i == 1 {
				restore = srv.copied(session, b.ID())
			}
		}
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		stop()
		restore()
		late, err := srv.OpenStream(ctx, srv.openings()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		fenced := func() *sessionLog {
			t.Helper()
			log, err := b.newLog(ctx, session)
			if err == nil {
				err = b.fence(ctx, srv, log, session, false)
			}
			if err != nil {
				t.Fatal(err)
			}
			return log
		}
		log := fenced()
		if !log.streamMatches || log.lastSeq != 4 {
			t.Fatalf("it is said to agree (%t) up to %d", log.streamMatches, log.lastSeq)
		}
		repeat, err := b.lastBatchOf(ctx, session, 6)
		if err != nil || repeat == nil {
			t.Fatalf("%+v, %v", repeat, err)
		}
		repeat.Outbox, repeat.Incarnation = b.ID(), srv.openings()[0].Incarnation
		answer := make(chan Reply, 1)
		late.Apply(repeat, func(r Reply) { answer <- r })
		if r := <-answer; fault.CodeOf(r.Err) != fault.Fenced {
			t.Errorf("what was on its way: %+v", r)
		}
		if r, err := b.planReconcile(ctx, session, &sessionLog{Base: 100}, ReconcileOptions{}); err != nil || len(r.Ops) > 0 {
			t.Errorf("by the log alone: %+v, %v", r, err)
		}
		log.Base = 100
		stop = run(t, b, srv)
		eventually(t, "a sender begins", func() bool { return onLoop(b, func(*machine.Machine) {}) })
		stop()
		if _, err := b.reconcile(ctx, session, log, ReconcileOptions{}); fault.CodeOf(err) != fault.InUse {
			t.Errorf("after another has begun to send: %v", err)
		}
		log = fenced()
		log.Base = 100
		r, err := b.reconcile(ctx, session, log, ReconcileOptions{})
		if err != nil || r.Count(SentAgain) != 4 || r.Ops[0].Op != tickets[2].Ops[0] {
			t.Fatalf("%+v, %v", r, err)
		}
		// The next stream counts anew, and what is finished has no seqs in it.
		log = &sessionLog{streamMatches: true, lastSeq: 100}
		if r, err := b.planReconcile(ctx, session, log, ReconcileOptions{}); err != nil || r.Count(SentAgain) != 4 || r.Count(InLog)+r.Count(HeldBack) != 4 {
			t.Errorf("afterwards: %+v, %v", r.Ops, err)
		}
	})
}

// What the server has at its last seq is another op, or one that nobody knows here: then
// the log decides, and not the seqs. So it does for who has no stream there at all.
func TestFenceOfACopy(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		ctx := limited(t)
		b := p.open(t, quick())
		srv := newFakeServer()
		session := withSession(t, b)
		stop := run(t, b, srv)
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
		if err := b.Drain(ctx, nil); err != nil {
			t.Fatal(err)
		}
		stop()
		look := func(what string, agrees bool, last uint64) {
			t.Helper()
			log, err := b.newLog(ctx, session)
			if err == nil {
				err = b.fence(ctx, srv, log, session, false)
			}
			if err != nil || log.streamMatches != agrees || log.lastSeq != last || log.fenceIncarnation == 0 {
				t.Errorf("%s: %+v, %v", what, log, err)
			}
		}
		look("as it was", true, 1)
		row := srv.streams[session+b.ID()]
		row.row.Incarnation = 1000 // a copy has caught up with this one
		look("under a higher incarnation", true, 1)
		row.row.AckedThrough, row.row.AckedOp, row.history = 1, opid.NewBatch(), ledger.NewHistory(nil)
		look("another op", false, 1)
		row.row.LastSeq, row.row.AckedThrough = 2, 2
		look("an op that is not here", false, 2)
		row.hash[0]++
		look("no stream of this outbox's", false, 0)
		delete(srv.streams, session+b.ID())
		look("no stream", true, 0)
		srv.setDown(fault.Revoked.With("on request"))
		look("a ref that can change nothing", false, 0)
		srv.setDown(fault.Usage.With("on request"))
		if err := b.fence(ctx, srv, &sessionLog{}, session, false); fault.CodeOf(err) != fault.Usage {
			t.Errorf("a refusal: %v", err)
		}
	})
}
