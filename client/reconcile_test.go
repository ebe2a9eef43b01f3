//go:build unix

// A server that is restored from a copy which was taken while it was written to, and
// what its writers bring back.

package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

func TestWritersBringBackWhatARestoreLost(t *testing.T) {
	t.Parallel()
	onBothRigs(t, func(t *testing.T, r *rig) { testDrill(t, r, 6, 2) })
}

// testDrill has so many writers put messages into so many sessions.
func testDrill(t *testing.T, r *rig, writers, sessions int) {
	ctx := t.Context()
	owner := r.open(t, "owner")
	var all []*client.Session
	made := func() *client.Session {
		s := r.newSession(t, owner)
		all = append(all, s)
		return s
	}
	for range sessions {
		made()
	}
	shared := func(s *client.Session, o client.ShareOptions) capability.Ref {
		t.Helper()
		ref, ticket, err := s.Share(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := waited(t, ticket).Err(); err != nil {
			t.Fatal(err)
		}
		return ref
	}
	type writer struct {
		client  *client.Client
		session *client.Session
		puts    int
	}
	ws := make([]*writer, writers)
	for i := range ws {
		c := r.open(t, fmt.Sprint("writer", i))
		s, err := c.Session(ctx, shared(all[i%sessions], client.ShareOptions{Rights: capability.Read | capability.Append}))
		if err != nil {
			t.Fatal(err)
		}
		ws[i] = &writer{client: c, session: s}
	}
	key := func(i, n int) string { return fmt.Sprintf("message/w%d_%d", i, n) }
	each := func(f func(i int, w *writer) error) {
		t.Helper()
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() {
				if err := f(i, w); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	write := func(n int) func() {
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() {
				for range n {
					b := w.session.Batch()
					first := b.Put(key(i, w.puts), object{"n": w.puts})
					b.Put(key(i, w.puts+1), object{"n": w.puts + 1}).DependsOn(first)
					w.puts += 2
					ticket, err := b.Commit(ctx)
					var results client.Results
					if err == nil {
						results, err = ticket.Wait(ctx)
					}
					if err == nil {
						err = results.Err()
					}
					if err != nil {
						t.Errorf("writer %d: %v", i, err)
						return
					}
				}
			})
		}
		return wg.Wait
	}

	wait := write(3)
	restore := r.copyLive(t)
	wait()
	// What is only in the server that is lost: more of the same, a session, and a share.
	young := made()
	late := shared(all[0], client.ShareOptions{Rights: capability.Read})
	write(3)()
	applied(t, func() *client.Batch { b := young.Batch(); b.Put("message/young", object{}); return b }())
	page, err := all[0].Events(ctx, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	end := page.Events[len(page.Events)-1]
	lost := follow(ctx, all[0], client.Position{Cursor: end.Cursor, Hash: end.Hash}, false)
	again := follow(ctx, all[0], client.Position{Cursor: end.Cursor, Hash: end.Hash}, true)
	r.proxy.Refuse(true)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	restore()
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	r.proxy.Refuse(false)

	// Some find out by themselves, others do not.
	waiting, err := ws[0].session.Put(ctx, "message/waiting", object{})
	if err != nil {
		t.Fatal(err)
	}
	again2 := 0
	reconcile := func(c *client.Client) (again int, err error) {
		sessions, err := c.Outbox().Sessions(ctx)
		for _, s := range sessions {
			var rec outbox.Reconciliation
			if rec, err = c.Reconcile(ctx, s, outbox.ReconcileOptions{}); err != nil {
				return again, err
			}
			again += rec.Count(outbox.SentAgain)
			if n := rec.Count(outbox.HeldBack) + rec.Count(outbox.Lost); n > 0 {
				return again, fmt.Errorf("of session %s %+v", s, rec.Ops)
			}
		}
		return again, err
	}
	if again2, err = reconcile(owner); err != nil || again2 != 3 {
		t.Fatalf("the owner commits %d ops again: %v", again2, err)
	}
	each(func(i int, w *writer) error {
		n, err := reconcile(w.client)
		if err == nil && n < 6 {
			err = fmt.Errorf("%d ops are committed again", n)
		}
		if err == nil {
			err = w.client.Drain(ctx, nil)
		}
		return err
	})
	if err := owner.Drain(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := waited(t, waiting).Err(); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, s := range all {
		page, err := s.Events(ctx, 0, 1000)
		if err != nil || page.Events[len(page.Events)-1].Cursor != page.Cursor {
			t.Fatalf("%d events: %v", len(page.Events), err)
		}
		for _, e := range page.Events {
			seen[e.Key]++
		}
	}
	want := []string{"message/young", "message/waiting"}
	for i, w := range ws {
		for n := range w.puts {
			want = append(want, key(i, n))
		}
	}
	for _, k := range want {
		if seen[k] != 1 {
			t.Errorf("%s is there %d times", k, seen[k])
		}
	}
	// The share that was lost is there again, and who has its ref comes in.
	s, err := r.open(t, "guest").Session(ctx, late)
	if err == nil {
		_, err = s.Snapshot(ctx)
	}
	if err != nil {
		t.Errorf("under the ref that was shared: %v", err)
	}
	lost.refused(t, "a follower with a cursor ahead")
	again.until(t, "the log's end", func() bool { return again.overs > 0 })
	// Nothing is left to do, for nobody.
	each(func(_ int, w *writer) error {
		n, err := reconcile(w.client)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d ops are committed again another time", n)
		}
		return err
	})
}

// openings are those of streams that a server's store was asked for.
type openings struct {
	mu  sync.Mutex
	all []session.StreamRequest
}

func (o *openings) seen() []session.StreamRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

type openingStore struct {
	node.Store
	openings *openings
}

func (s openingStore) OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error) {
	s.openings.mu.Lock()
	s.openings.all = append(s.openings.all, o)
	s.openings.mu.Unlock()
	return s.Store.OpenStream(ctx, o)
}

// TestReconcileFencesOff: the stream that is left is opened under a higher incarnation first, so that nothing that is still on its
// way there commits behind the log that was read.
func TestReconcileFencesOff(t *testing.T) {
	t.Parallel()
	var opened openings
	r := testRig(t, func(c *node.Config) { c.Store = openingStore{c.Store, &opened} })
	c := r.open(t, "a")
	s := r.newSession(t, c)
	put := func(n string) { b := s.Batch(); b.Put("message/"+n, object{}); applied(t, b) }
	again := func(between func()) {
		t.Helper()
		err := r.stop()
		if between(); err == nil {
			err = r.start()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("kept")
	var restore func()
	again(func() { restore = r.backup(t) })
	put("lost")
	again(func() { restore() })
	waiting, err := s.Put(t.Context(), "message/waiting", object{})
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "the stream has stopped", func() bool {
		still, err := c.Outbox().Stopped(t.Context(), s.ID())
		return err == nil && still != nil
	})
	before := opened.seen()
	left := before[len(before)-1]
	if _, err := c.Reconcile(t.Context(), s.ID(), outbox.ReconcileOptions{}); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(opened.seen()[len(before):], func(o session.StreamRequest) bool {
		return o.Key == left.Key && o.SecretHash == left.SecretHash && o.Incarnation > left.Incarnation
	}) {
		t.Error("the stream that is left was not fenced off")
	}
	if err := waited(t, waiting).Err(); err != nil {
		t.Error(err)
	}
}
