//go:build unix

// Many writers on one server, and several servers on one database.

package node

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestHundredSubscribers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		var all []*recorder
		for range 10 {
			q := r.dial()
			sess := q.restore(m.owner)
			for range 10 {
				k := newRecorder()
				all = append(all, k)
				t.Cleanup(q.subscribe(sess, k, 0).Release)
			}
		}
		var flying []*rpc.Promise
		for n := range 60 {
			flying = append(flying, applying(t, m.stream, m.batch(put(n), put(n+100), put(n+200))))
		}
		for _, f := range flying {
			if r := readReply(t, f); r.refusal != nil {
				t.Fatal(r.refusal)
			}
		}
		for _, k := range all {
			k.untilCursor(t, 181)
			k.consecutive(t, 0)
		}
	})
}

func TestReplicasFollowEachOther(t *testing.T) {
	t.Parallel()
	for how, change := range map[string]func(*Config){
		"notifications alone": func(c *Config) { c.PollInterval = 0 },
		"polling alone":       func(c *Config) { c.PollInterval, c.IgnoreNotify = 20*time.Millisecond, true },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			one := start(t, postgresStore(t, url), change)
			two := start(t, postgresStore(t, url), change)
			if two.owner.Target() != "" {
				t.Fatal("the second server made a space of its own")
			}
			p, q := one.dial(), two.dial()
			m := one.create(p)
			ref := p.share(m, "rights", []string{"read", "append"})
			k, near := newRecorder(), newRecorder()
			held := q.restore(ref)
			defer q.subscribe(held, k, 0).Release()
			defer p.subscribe(m.sess, near, 0).Release()
			guest := newBox()
			stream := q.open(held, guest)
			var last uint64
			for n := range 30 {
				p.must(m.stream, m.batch(put(n)))
				last = q.must(stream, guest.batch(m.id, put(n+100))).cursor
			}
			k.untilCursor(t, last)
			near.untilCursor(t, last)
			k.consecutive(t, 0)
			near.consecutive(t, 0)

			cut, _ := revoking(t, m.sess, ref.ID) // on the one, felt on the other
			p.must(m.stream, m.batch(put(200)))
			ack := q.must(stream, guest.batch(m.id, put(201)))
			wantRecorded(t, "append on the other replica", ack.outcomes[0], ledger.Denied, fault.Revoked)
			k.until(t, "the end", func() bool { return k.ended != nil })
			if got := k.cursors[len(k.cursors)-1]; got > cut || k.ended.Code != fault.Revoked {
				t.Errorf("delivered up to %d, the cut is at %d; ended with %v", got, cut, k.ended)
			}
		})
	}
}

func TestGroupCommitGathers(t *testing.T) {
	t.Parallel()
	const writers, rounds = 64, 20
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		ref := p.share(m, "rights", []string{"append"})
		type writer struct {
			p      *peer
			stream *rpc.Ref
			box    *box
		}
		all := make([]writer, writers)
		for i := range all {
			q, b := r.dial(), newBox()
			opening := q.opening(q.restore(ref), b)
			if _, _, err := opening.Wait(within(t)); err != nil {
				t.Fatal(err)
			}
			all[i] = writer{q, opening.Cap(0), b}
		}
		before := r.server.committer.Stats().Transactions
		var wg sync.WaitGroup
		for i, w := range all {
			wg.Go(func() {
				for n := range rounds {
					if ack := readReply(t, applying(t, w.stream, w.box.batch(m.id, put(i*rounds+n)))); ack.applied != 1 {
						t.Errorf("writer %d: %+v", i, ack)
					}
				}
			})
		}
		wg.Wait()
		commits := r.server.committer.Stats().Transactions - before
		t.Logf("%d ops in %d transactions", writers*rounds, commits)
		if commits*8 >= writers*rounds {
			t.Errorf("%d transactions for %d ops: more than an eighth", commits, writers*rounds)
		}
		if byHand := batchesByHand(r); byHand < writers*rounds-writers || r.metric(`mooring_batches_read_total{way="hand"}`) != fmt.Sprint(byHand) {
			t.Errorf("of %d batches %d were read by hand", writers*rounds, byHand)
		}
		if at := rowOf(t, st, m.id).Cursor; at != 2+writers*rounds {
			t.Errorf("the session is at %d", at)
		}
	})
}

// The rights of a ref that Space.create's object stands on are those of the
// owner's, from its create on.
func TestCreatedObjectIsTheOwners(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	_, grant := describe(t, m.sess)
	if id, _ := grant.Id(); id != m.owner.ID || !grant.Owner() || capability.Rights(grant.Rights()) != capability.OwnerRights {
		t.Errorf("described as %v", grant)
	}
}

func batchesByHand(r *rig) uint64 {
	byHand, _ := r.server.objects.BatchesRead()
	return byHand
}
