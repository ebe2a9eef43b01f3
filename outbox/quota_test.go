package outbox

// The outbox's bounds, and how often it is counted for them.

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestBoundWhereOthersCommit: a process that has sent what others committed takes no more than the outbox's bound.
func TestBoundWhereOthersCommit(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		cfg := quick()
		cfg.Limits.Rows = 20
		b, other := p.open(t, cfg), p.open(t, cfg)
		session := withSession(t, b)
		run(t, b, newFakeServer())
		wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})) // it has counted
		for range 5 {
			commit(t, other, Batch{Session: session, Ops: []Op{put("1"), put("1"), put("1"), put("1"), put("1"), put("1"), put("1"), put("1"), put("1"), put("1")}})
			if err := other.Drain(limited(t), nil); err != nil {
				t.Fatal(err)
			}
		}
		away := withSession(t, b)
		ref, err := b.RefFor(limited(t), away, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.beginRotation(limited(t), ref.ID, ref.New(away)); err != nil { // nothing of it is sent
			t.Fatal(err)
		}
		n := 0
		for ; n < 100 && err == nil; n++ {
			_, err = b.Commit(limited(t), Batch{Session: away, Ops: []Op{put("1")}})
		}
		if n != 21 || !errors.Is(err, fault.OutboxFull) {
			t.Errorf("the bound is 20, and batch %d: %v", n, err)
		}
	})
}

// usageQuerier is one caller's: it answers a count of the outbox when every caller has asked for one, or has needed none.
type usageQuerier struct {
	sqlstore.Querier
	arrived *sync.WaitGroup
	counted bool
}

func (q *usageQuerier) Query(context.Context, string, []any, func(sqlstore.Scanner) error) error {
	q.counted = true
	q.arrived.Done()
	q.arrived.Wait()
	return nil
}

// TestOneCommitCounts: when it is time to count the outbox anew, one of those who commit at once does.
func TestOneCommitCounts(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	b.usage.commitsSinceCount.Store(recountAfter - 10)
	queriers := make([]usageQuerier, 64)
	var arrived, all sync.WaitGroup
	arrived.Add(len(queriers))
	for i := range queriers {
		q := &queriers[i]
		q.arrived = &arrived
		all.Go(func() {
			if err := b.checkQuota(t.Context(), q, 1, 1); err != nil {
				t.Error(err)
			}
			if !q.counted {
				arrived.Done()
			}
		})
	}
	all.Wait()
	counts := 0
	for i := range queriers {
		if queriers[i].counted {
			counts++
		}
	}
	if counts != 1 {
		t.Errorf("%d commits counted", counts)
	}
}

// TestCountThatFails: a count that failed is made again by the next commit.
func TestCountThatFails(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := b.checkQuota(canceled, nil, 1, 1); !errors.Is(err, fault.Canceled) {
			t.Fatalf("%v, though nothing was counted", err)
		}
	}
}
