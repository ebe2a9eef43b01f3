//go:build unix

// What was purged leaves nobody's reach later than its commit; what was deleted is
// over for every ref.

package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/rpc"
)

// A subscriber that takes nothing has events before it that were published in
// memory; when the key is purged it gets their rows without the payload.
func TestPurgedPayloadsAreSentToNobodyAnyMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		const window, size, puts = 64 << 10, 4 << 10, 100
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		slow, fast := newRecorder(), newRecorder()
		slow.hold = true
		promise := p.subscribing(m.sess, slow, 0, window, false)
		defer promise.Release()
		defer p.subscribe(m.sess, fast, 0).Release()
		for n := range puts {
			p.must(m.stream, m.batch(op("put", "key", "message/a", "payload", map[string]string{"x": fmt.Sprint(n) + strings.Repeat("x", size)})))
		}
		fast.untilCursor(t, puts+1)
		p.must(m.stream, m.batch(op("purge", "key", "message/a"), op("put", "key", "message/b", "payload", map[string]int{"n": 1})))
		fast.untilCursor(t, puts+3)
		slow.free()
		slow.untilCursor(t, puts+3)
		slow.consecutive(t, 0)
		slow.mu.Lock()
		defer slow.mu.Unlock()
		if limit := window + size + 64*puts; slow.bytes > limit {
			t.Errorf("%d bytes were sent to who had room for %d before the purge", slow.bytes, window)
		}
	})
}

// Nothing of a deleted session is given to anybody, and it says why.
func TestEveryRefToADeletedSessionSaysSo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		ref := p.share(m, "rights", []string{"read", "append", "share"})
		p.must(m.stream, m.batch(put(1)))
		live := p.restore(ref)
		defer live.Release()
		k := newRecorder()
		defer p.subscribe(live, k, 0).Release()
		k.untilCursor(t, 3)
		p.must(m.stream, m.batch(op("delete")))
		k.until(t, "the end", func() bool { return k.ended != nil })
		if k.ended.Code != fault.SessionDeleted || k.cursors[len(k.cursors)-1] != 4 {
			t.Errorf("ended with %v after %v", k.ended, k.cursors)
		}
		later, late := p.restore(ref), p.restore(m.owner)
		defer later.Release()
		defer late.Release()
		refs := []*rpc.Ref{m.sess, late, live, later}
		for i, one := range append(refs, refs...) {
			forgotten := i >= len(refs)
			if i == len(refs) {
				if more, err := st.Forget(t.Context(), m.id, -time.Hour, 100); more || err != nil {
					t.Fatalf("forgetting: %v, %v", more, err)
				}
			}
			_, promise, err := call(t, one, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
			promise.Release()
			wantCode(t, "events", err, fault.SessionDeleted)
			shot := p.subscribing(one, newRecorder(), 0, 0, true)
			_, _, err = shot.Wait(within(t))
			shot.Release()
			if f, ok := fault.ParseReason(reasonOf(err)); !ok || f.Code != fault.SessionDeleted {
				t.Errorf("a snapshot: %v", err)
			}
			_, promise, err = call(t, one, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
			promise.Release()
			wantCode(t, "save", err, fault.SessionDeleted)
			results, promise, err := call(t, one, methods.SessionDescribe.Method, methods.SessionDescribe.Params, nil)
			if forgotten && one != late { // of which nothing is known any more
				promise.Release()
				wantCode(t, "describe", err, fault.SessionDeleted)
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			d := wire.Session_describe_Results(results)
			info, err := d.Info()
			if err != nil {
				t.Fatal(err)
			}
			grant, err := d.Grant()
			if err != nil {
				t.Fatal(err)
			}
			if head, _ := info.Head(); !info.Deleted() || info.Cursor() != 0 || len(head) != 0 || fault.Code(grant.Dead()) != fault.SessionDeleted {
				t.Errorf("described as at %d, deleted: %v, dead: %d", info.Cursor(), info.Deleted(), grant.Dead())
			}
			promise.Release()
		}
		if seqs, _, err := readAuditPage(t, late, methods.SessionAudit.Method, 0, 0); err != nil || len(seqs) == 0 {
			t.Errorf("the owner is shown %d rows of the audit: %v", len(seqs), err)
		}
		_, _, err := readAuditPage(t, later, methods.SessionAudit.Method, 0, 0)
		wantCode(t, "another's audit", err, fault.SessionDeleted)
		for _, gone := range []capability.Ref{ref, ref.With(capability.ServerID(m.id, ulid.Make()), capability.NewSecret())} {
			again := p.restore(gone)
			defer again.Release()
			_, _, err = call(t, again, methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
			wantCode(t, "events after another restore", err, fault.SessionDeleted)
		}
		wantCode(t, "another secret", p.restoreErr(ref.With(ref.ID, capability.NewSecret()), ""), fault.UnknownRef)
		wantCode(t, "another secret of the owner", p.restoreErr(ref.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
		page, err := st.(*store.Store).ReadAudit(t.Context(), m.id, 0, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		deleted := 0
		for _, row := range page.Rows {
			if row.Act == capability.AuditDelete && row.Cursor == 4 {
				deleted++
			}
			if row.Act == capability.AuditRevoke {
				t.Errorf("audited as a revoke: %+v", row)
			}
		}
		if deleted != 1 {
			t.Errorf("%d rows of audit about the deletion", deleted)
		}
	})
}

// The chain's end is told to who can read all of it, and events come with the
// payloads' hashes.
func TestTheChainIsShownToWhoSeesAll(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	p := r.dial()
	m := r.create(p)
	p.must(m.stream, m.batch(put(1), op("purge", "key", "message/msg_1")))
	late := p.restore(p.share(m, "rights", []string{"read"}, "from", 3))
	defer late.Release()
	row := rowOf(t, st, m.id)
	for _, c := range []struct {
		sess *rpc.Ref
		want string
	}{{m.sess, string(row.Head[:])}, {late, ""}} {
		results, promise, err := call(t, c.sess, methods.SessionDescribe.Method, methods.SessionDescribe.Params, nil)
		if err != nil {
			t.Fatal(err)
		}
		info, err := wire.Session_describe_Results(results).Info()
		if err != nil {
			t.Fatal(err)
		}
		if head, err := info.Head(); err != nil || string(head) != c.want {
			t.Errorf("the chain ends in %x, want %x", head, c.want)
		}
		promise.Release()
	}
	results, promise, err := call(t, m.sess, methods.SessionEvents.Method, methods.SessionEvents.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Session_events_Params(s).SetFrom(1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer promise.Release()
	list, err := wire.Session_events_Results(results).Events()
	if err != nil {
		t.Fatal(err)
	}
	want := session.SumOf([]byte(`{"n":1}`))
	if sum, _ := list.At(0).Sum(); !list.At(0).Purged() || string(sum) != string(want[:]) {
		t.Errorf("the purged event: %x, want %x", sum, want)
	}
}
