//go:build unix

// Thousands of refs under one, cut at once over three replicas.

package node

import (
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// A ref with a thousand below it (ten thousand in make test-slow), of which some
// dozens are held and followed through each of three servers on one database, is
// revoked by one call through one of them. All die at one cut, all subscriptions
// end with it and without an event above it, and every holder's next call fails
// with it. How long that takes is printed.
func TestAThousandRefsAreCutAtOnce(t *testing.T) {
	t.Parallel()
	cutAtOnce(t, 1000)
}

func cutAtOnce(t *testing.T, refs int) {
	const (
		aBatch  = 500
		holders = 30 // on each server
	)
	url := pgtest.URL(t)
	var replicas []*rig
	for range 3 {
		replicas = append(replicas, start(t, postgresStore(t, url), func(c *Config) { c.PollInterval = time.Second }))
	}
	p := replicas[0].dial()
	m := replicas[0].create(p)
	top := p.share(m, "rights", []string{"read", "append", "share"})
	maker := &made{id: m.id, owner: m.owner, sess: p.restore(top), box: newBox()}
	maker.stream = p.open(maker.sess, maker.box)

	var below []capability.Ref
	var flying []*rpc.Promise
	for len(below) < refs {
		var ops []ledger.Intent
		for range aBatch {
			ref := m.owner.New(m.id)
			below = append(below, ref)
			ops = append(ops, op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read", "append"}))
		}
		flying = append(flying, applying(t, maker.stream, maker.batch(ops...)))
	}
	var cursor uint64
	for _, f := range flying {
		r := readReply(t, f)
		if r.refusal != nil || r.applied != aBatch {
			t.Fatalf("shares: %+v", r)
		}
		cursor = r.cursor
	}

	type holder struct {
		sess, stream *rpc.Ref
		box          *box
		k            *recorder
	}
	var all []*holder
	for i, r := range replicas {
		for n := range holders {
			q := r.dial()
			h := &holder{sess: q.restore(below[(i*holders+n)*(refs/(3*holders))]), box: newBox(), k: newRecorder()}
			h.stream = q.open(h.sess, h.box)
			t.Cleanup(q.subscribe(h.sess, h.k, cursor).Release)
			if o := q.must(h.stream, h.box.batch(m.id, put(i*holders+n))).outcomes[0]; o.Status != ledger.Applied {
				t.Fatalf("a holder's op: %+v", o)
			}
			all = append(all, h)
		}
	}
	for _, h := range all {
		h.k.untilCursor(t, cursor+uint64(len(all)))
	}

	began := time.Now()
	cut, _ := revoking(t, m.sess, top.ID)
	answered := time.Since(began)
	for _, h := range all {
		h.k.until(t, "the end", func() bool { return h.k.ended != nil })
	}
	ended := time.Since(began)
	t.Logf("%d refs under one, %d of them held over 3 servers: revoked in %d ms, every subscription ended after %d ms",
		refs, len(all), answered.Milliseconds(), ended.Milliseconds())

	p.must(m.stream, m.batch(put(1))) // something above the cut
	for _, h := range all {
		_, _, err := call(t, h.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
		wantCode(t, "a holder's next call", err, fault.Revoked)
		o := h.stream
		if out := p.must(o, h.box.batch(m.id, put(2))).outcomes[0]; out.Status != ledger.Denied || out.Reason != fault.Revoked {
			t.Errorf("a holder's next op: %+v", out)
		}
		h.k.mu.Lock()
		if h.k.ended.Code != fault.Revoked || h.k.ended.At != cut || h.k.cursors[len(h.k.cursors)-1] > cut {
			t.Errorf("ended with %v after event %d, the cut is at %d", h.k.ended, h.k.cursors[len(h.k.cursors)-1], cut)
		}
		h.k.mu.Unlock()
	}
	ids := make([]string, len(below))
	for i, ref := range below {
		ids[i] = ref.ID
	}
	access, err := replicas[2].server.cfg.Store.ReadAccess(t.Context(), m.id, ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if g := access.Grants[id]; g == nil || g.Cut != cut || g.RevokedBy != m.owner.ID {
			t.Fatalf("ref %s: %+v, the cut is at %d", id, g, cut)
		}
	}
	if access.Row.Life != session.Live {
		t.Errorf("the session: %+v", access.Row)
	}
}
