//go:build unix

// Uses of refs, which are counted and written once a window.

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestUsesAreCountedByRefActorAndMethod(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, oneWindow)
		p, q := r.peerNamed(t, "192.0.2.1:7"), r.peerNamed(t, "[2001:db8::5]:99")
		m := r.create(p)
		p.must(m.stream, m.batch(put(1), put(2), put(3), op("remove", "key", "message/msg_1")))
		p.must(m.stream, m.batch(put(4), op("put", "key", "no such key", "payload", 1)))
		again := m.batch(put(5))
		p.must(m.stream, again)
		p.must(m.stream, again)
		reader := p.share(m, "rights", []string{"read"}, "actor", "owner/reader")
		sess, own := q.restore(reader), p.restore(reader)
		for _, s := range []*rpc.Ref{sess, sess, own} {
			if _, _, err := call(t, s, methods.SessionEvents.Method, methods.SessionEvents.Params, nil); err != nil {
				t.Fatal(err)
			}
		}
		k := newRecorder()
		t.Cleanup(q.subscribe(sess, k, 0).Release)
		snapshot := newRecorder()
		if _, _, err := q.snapshotting(sess, snapshot); err != nil {
			t.Fatal(err)
		}
		withState := newRecorder()
		promise := q.subscribing(sess, withState, 0, 0, true)
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		defer promise.Release()
		if _, _, err := call(t, sess, methods.SessionDescribe.Method, methods.SessionDescribe.Params, nil); err != nil {
			t.Fatal(err)
		}
		r.stop()

		var got []string
		for _, target := range []string{m.id, r.owner.Target()} {
			for _, row := range auditOf(t, st, target) {
				if row.Act == capability.AuditUse {
					got = append(got, fmt.Sprintf("%s %q %d× from %s", row.Subject, row.Actor, row.Count, row.Peer))
					if row.At == 0 || target == m.id && row.Subject == "put" && row.Cursor != 7 {
						t.Errorf("row %+v", row)
					}
				}
			}
		}
		slices.Sort(got)
		want := []string{
			`create "" 1× from 192.0.2.1`, `describe "owner/reader" 1× from 2001:db8::5`, `events "owner/reader" 3× from `,
			`put "owner" 5× from 192.0.2.1`, `remove "owner" 1× from 192.0.2.1`, `share "owner" 1× from 192.0.2.1`,
			`snapshot "owner/reader" 2× from 2001:db8::5`, `subscribe "owner/reader" 2× from 2001:db8::5`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("uses are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for ref, want := range map[string]uint64{m.owner.ID: 7, reader.ID: 8, r.owner.ID: 1} {
			if count, last := usesOf(t, st, ref); count != want || last == 0 {
				t.Errorf("%d uses of %s are counted, want %d; the last was at %d", count, ref, want, last)
			}
		}
	})
}

// usesOf is what is counted of a ref.
func usesOf(t *testing.T, st Store, ref string) (count uint64, last int64) {
	t.Helper()
	page, err := st.ReadTree(t.Context(), "", session.TreeQuery{Under: ref, Limit: 1}, nil)
	if err != nil || len(page.Rows) == 0 {
		t.Fatalf("the tree below %s: %+v, %v", ref, page, err)
	}
	return page.Rows[0].Uses, page.Rows[0].LastUsed
}

// snapshotting sends the state to k and waits.
func (p *peer) snapshotting(sess *rpc.Ref, k *recorder) (capnp.Struct, *rpc.Promise, error) {
	sink := rpc.NewLocal(k)
	defer sink.Release()
	return call(p.t, sess, methods.SessionSnapshot.Method, methods.SessionSnapshot.Params, func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, sink) })
}

// deaf writes, and does not hear that it has: its link breaks in the commit.
type deaf struct {
	Store
	times atomic.Int32 // more, that it hears nothing
}

func (d *deaf) heard(err error) error {
	if err == nil && d.times.Add(-1) >= 0 {
		return fault.Unavailable.With("the link broke in the commit")
	}
	return err
}

func (d *deaf) Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error {
	return d.heard(d.Store.Audit(ctx, page, rows))
}

func (d *deaf) AddUses(ctx context.Context, page capability.IdempotencyKey, uses []capability.RefUses) error {
	return d.heard(d.Store.AddUses(ctx, page, uses))
}

// What has been written and may not have been is written again, and there once.
func TestNothingIsCountedTwice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		d := &deaf{Store: st}
		r := start(t, d, oneWindow)
		p := r.dial()
		m := r.create(p)
		blind := p.share(m, "rights", []string{"append"})
		p.must(m.stream, m.batch(put(1), put(2), put(3)))
		_, _, err := call(t, p.restore(blind), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
		wantCode(t, "events", err, fault.MissingRight)
		for range 4 {
			d.times.Store(3) // each of those who write
			r.server.operator.FlushAudit(true)
		}
		p.must(m.stream, m.batch(put(4)))
		r.stop()
		got := map[string]uint32{}
		for _, row := range auditOf(t, st, m.id) {
			got[row.Act.String()+" "+row.Subject] += row.Count
		}
		if got["use put"] != 4 || got["use share"] != 1 || got["denial events"] != 1 {
			t.Errorf("audited is %v", got)
		}
		if count, _ := usesOf(t, st, m.owner.ID); count != 5 {
			t.Errorf("%d uses are counted, want 5", count)
		}
	})
}
