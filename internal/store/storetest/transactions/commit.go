// The domain on a real store: decide.Commit must come to the same on a
// database as in memory, and its promises must hold with many at once.

package transactions

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testCommitClaim: a batch that comes many times at once, alone and in groups,
// is applied once and answered alike.
func testCommitClaim(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create()))
	for round := range uint64(10) {
		sub := o.Batch(round%2 == 0, harness.PutOp("message/a", `{"n":%d}`, round), harness.PutOp("message/b", `{"n":%d}`, round))
		const many = 6
		answers := make([]decide.Answer, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				if i%2 == 0 {
					got, _ := f.Commit(sub)
					answers[i] = got[0]
				} else {
					got, _ := f.Commit(sub, sub)
					answers[i] = got[1]
				}
			})
		}
		all.Wait()
		for _, a := range answers {
			if a.Err != nil || a.Cursor != 2*round+3 {
				t.Fatalf("answer: %+v", a)
			}
			harness.Same(f, "outcomes", a.Outcomes, answers[0].Outcomes)
		}
	}
	f.WholeLog(o.Session, 21)
}

// testCommitRevoke: nothing under a revoked ref commits after the cut, however
// many append.
func testCommitRevoke(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for _, epoch := range []bool{false, true} {
		o := harness.NewAuthor(f.Space().ID)
		open := func(p *harness.Author) *harness.Author {
			_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: p.Session, Outbox: p.Outbox}, harness.Hash(), 1)
			f.Must("open stream", err)
			return p
		}
		open(o)
		ref := harness.ClientRef(o.Session)
		f.Applied(o.Batch(false, o.Create(), harness.ShareOp(ref, "append")))
		started := make(chan struct{}, 1000)
		last := make([]ledger.Outcome, 4)
		var all sync.WaitGroup
		for i := range last {
			p := open(o.WithRef(ref))
			all.Go(func() {
				for n := 0; last[i].Status != ledger.Denied; n++ {
					got, _ := f.Commit(p.Batch(false, harness.PutOp("message/m"+p.Outbox, `{"n":%d}`, n)))
					if got[0].Err != nil {
						t.Errorf("append: %v", got[0].Err)
						return
					}
					last[i] = got[0].Outcomes[0]
					select {
					case started <- struct{}{}:
					default:
					}
				}
			})
		}
		f.Await(started, 12)
		direct := &decide.Direct{Ref: ref, Epoch: epoch}
		got, _ := f.Commit(decide.Submission{Batch: ledger.Batch{Session: o.Session}, Ref: o.Ref, Direct: direct})
		if got[0].Err != nil {
			t.Fatalf("revoke: %v", got[0].Err)
		}
		all.Wait()
		cut := got[0].Cut
		want := map[bool]fault.Code{false: fault.Revoked, true: fault.StaleEpoch}[epoch]
		for _, o := range last {
			if o.Reason != want {
				t.Errorf("refused with %v, want %v", o.Reason, want)
			}
		}
		for _, e := range f.WholeLog(o.Session, cut) {
			if e.Ref == ref && e.Cursor > cut {
				t.Errorf("cursor %d was committed after the cut at %d", e.Cursor, cut)
			}
		}
		if _, err := f.Lapsed(f.Ctx, 0, "", 1); err != nil {
			t.Errorf("lapsed: %v", err)
		}
	}
}

// testCommitOpposite: groups that hold two sessions' batches in opposite order.
func testCommitOpposite(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	one, two := harness.NewAuthor(root.ID), harness.NewAuthor(root.ID)
	var all sync.WaitGroup
	for i := range 6 {
		a, b := one.SameSession(), two.SameSession()
		if i%2 == 1 {
			a, b = b, a
		}
		all.Go(func() {
			for _, p := range []*harness.Author{a, b} {
				_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: p.Session, Outbox: p.Outbox}, harness.Hash(), 1)
				if err != nil {
					t.Errorf("open stream: %v", err)
				}
			}
			for range 10 {
				// All try to create both; one succeeds with each.
				got, _ := f.Commit(a.Batch(false, a.Create()), b.Batch(false, b.Create()))
				for _, answer := range got {
					if answer.Err != nil {
						t.Errorf("commit: %v", answer.Err)
					}
				}
			}
		})
	}
	all.Wait()
	f.WholeLog(one.Session, 1)
	f.WholeLog(two.Session, 1)
}

// testClockSetBack: time does not run backwards along a log, although the database's clock was
// set back, whether a batch is decided on rows that were read or on remembered ones.
func testClockSetBack(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create()))
	row := f.Load(&session.ReadSet{Sessions: []string{o.Session}}).Sessions[o.Session]
	row.Updated += time.Hour.Milliseconds() // before it was set back
	f.Save(&session.Changes{Sessions: []*session.Row{row}}, o.Session)
	for n := range 3 {
		f.Applied(o.Batch(false, harness.PutOp("message/a", `{"n":%d}`, n)))
	}
	page := f.LogOf(o.Session)
	for _, e := range page.Events[1:] {
		if e.At != row.Updated {
			t.Errorf("event %d is of %+d ms, measured from the one before", e.Cursor, e.At-row.Updated)
		}
	}
}

// testCommitFails: a store that fails under Commit fails it whole.
func testCommitFails(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	ctx, cancel := context.WithCancel(f.Ctx)
	err := f.Update(ctx, func(tx session.Tx) error {
		cancel()
		_, _, err := decide.Commit(ctx, tx, []decide.Submission{o.Batch(false, o.Create())}, decide.DefaultConfig())
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	sight, err := f.ReadAccess(f.Ctx, o.Session, []string{o.Ref})
	f.Must("look", err)
	if sight.Row != nil || len(sight.Grants) != 0 {
		t.Errorf("a failed commit left %+v", sight)
	}
}
