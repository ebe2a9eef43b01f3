// What sessions hold, where it was not counted as it was written.

package storetest

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// testMeasure: a session of before there was a quota is found and measured, with its refs,
// and what it held then is spared.
func testMeasure(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create(), putOp("message/a", `{"n":1}`)))
	guest := grant(newRef(o.session), o.ref)
	guest.Epoch = 1
	f.save(&session.Changes{Grants: []*capability.Grant{guest}}, o.session)
	other := newAuthor(o.space)
	other.session, other.ref, other.space = o.session, guest.ID, ""
	_, err = f.OpenStream(f.ctx, session.StreamKey{Session: other.session, Outbox: other.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(other.batch(false, putOp("message/b", `{"n":2}`)))
	if ids, err := f.Unmeasured(f.ctx, 10); err != nil || len(ids) != 0 {
		t.Fatalf("not measured: %v, %v", ids, err)
	}
	read := func() (*session.Row, *capability.Grant) {
		rows := f.load(&session.ReadSet{Sessions: []string{o.session}, Grants: []string{guest.ID}})
		return rows.Sessions[o.session], rows.Grants[guest.ID]
	}
	row, ref := read()
	if row.Bytes <= ref.Bytes || ref.Bytes != int64(len(`{"n":2}`)+session.EventCost) || row.ExemptBytes != 0 || ref.ExemptBytes != 0 {
		t.Fatalf("counted: %+v, %+v", row, ref)
	}

	// As a server of the version before would have left it.
	old := *row
	old.Bytes, old.ExemptBytes = 0, -1
	f.save(&session.Changes{Sessions: []*session.Row{&old}, Charges: []session.Charge{{Ref: guest.ID, Bytes: 12345}}}, o.session)
	f.applied(other.batch(false, putOp("message/c", `{"n":3}`)))
	ids, err := f.Unmeasured(f.ctx, 10)
	f.must("find what is not measured", err)
	if !slices.Equal(ids, []string{o.session}) {
		t.Fatalf("not measured: %v", ids)
	}
	for range 2 { // spared is what was there the first time
		bytes, err := f.Measure(f.ctx, o.session)
		f.must("measure", err)
		got, gotRef := read()
		if want := row.Bytes + int64(len(`{"n":3}`)+session.EventCost); bytes != want || got.Bytes != want || got.ExemptBytes != want {
			t.Errorf("measured as %d, want %d: %+v", bytes, want, got)
		}
		if want := 2 * ref.Bytes; gotRef.Bytes != want || gotRef.ExemptBytes != want {
			t.Errorf("measured: %+v, want %d", gotRef, want)
		}
	}
	f.applied(other.batch(false, putOp("message/d", `{"n":4}`)))
	bytes, err := f.Measure(f.ctx, o.session)
	f.must("measure", err)
	got, gotRef := read()
	if got.Bytes != bytes || got.ExemptBytes >= bytes || gotRef.Bytes != 3*ref.Bytes || gotRef.ExemptBytes != 2*ref.Bytes {
		t.Errorf("measured again: %d, %+v, %+v", bytes, got, gotRef)
	}
	if ids, err := f.Unmeasured(f.ctx, 10); err != nil || len(ids) != 0 {
		t.Errorf("not measured: %v, %v", ids, err)
	}

	// What is purged, and what goes with the log's beginning, is counted off as exactly.
	counted := func(what string) {
		t.Helper()
		row, ref := read()
		bytes, err := f.Measure(f.ctx, o.session)
		f.must("measure", err)
		if _, measured := read(); row.Bytes != bytes || ref.Bytes != measured.Bytes {
			t.Errorf("%s: %d bytes are counted, %d measured; %d and %d of the ref", what, row.Bytes, bytes, ref.Bytes, measured.Bytes)
		}
	}
	f.applied(other.batch(false, putOp("message/d", `{"n":5}`), putOp("message/e", `{"much":"of it"}`), newIntent(session.MethodRemove, "key", "message/b")))
	counted("replaced and removed")
	f.applied(o.batch(false, newIntent(session.MethodPurge, "key", "message/e")))
	counted("purged")
	if more, err := f.Trim(f.ctx, o.session, keepNothing, 3, 1<<20); err != nil || !more {
		t.Fatalf("trim: %v, %v", more, err)
	}
	counted("trimmed in part")
	f.trim(o.session, keepNothing, 10)
	counted("trimmed")
	if row, ref := read(); row.Bytes == 0 || row.Bytes > bytes-4*session.EventCost || ref.Bytes != 0 {
		t.Errorf("after the log is gone %d bytes are counted, %d of the ref", row.Bytes, ref.Bytes)
	}
	if bytes, err := f.Measure(f.ctx, newSession()); err != nil || bytes != 0 {
		t.Errorf("a session that is not there: %d, %v", bytes, err)
	}
}

// testAccounts: what was made under a ref of a space counts for the one below the owner's, and
// what was made from that one does too; the owner's has no account.
func testAccounts(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := grant(newRef(newSpace()), "")
	root.Rights, root.Epoch = capability.SpaceRights, 0
	under := func(parent *capability.Grant) *capability.Grant {
		g := grant(newRef(root.Target), parent.ID)
		g.Rights, g.Epoch = capability.SpaceRights, 0
		return g
	}
	top, other := under(root), under(root)
	below := under(top)
	f.save(&session.Changes{Grants: []*capability.Grant{root, top, below, other}})
	want := map[string]int64{}
	for _, c := range []struct{ made, account *capability.Grant }{{root, nil}, {top, top}, {below, top}, {other, other}, {top, top}} {
		o := newAuthor(c.made.ID)
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
		f.must("open stream", err)
		f.applied(o.batch(false, o.create(), putOp("message/a", `{"n":1}`)))
		guest := grant(newRef(o.session), o.ref)
		f.save(&session.Changes{Grants: []*capability.Grant{guest}}, o.session)
		account := ""
		if c.account != nil {
			account = c.account.ID
			want[account] += f.load(&session.ReadSet{Sessions: []string{o.session}}).Sessions[o.session].Bytes
		}
		for _, id := range []string{o.session, c.made.ID} {
			got, err := f.AccountRef(f.ctx, id)
			if f.must("find the account", err); got != account {
				t.Errorf("%s counts for %q, want %q", id, got, account)
			}
		}
	}
	if got, err := f.AccountRef(f.ctx, newSession()); err != nil || got != "" {
		t.Errorf("of a session that is not there: %q, %v", got, err)
	}
	for ref, bytes := range want {
		got, spared, err := f.AccountUsage(f.ctx, ref)
		if f.must("add up", err); got != bytes || spared != 0 || bytes == 0 {
			t.Errorf("%s holds %d, %d spared, want %d", ref, got, spared, bytes)
		}
	}
}

// testTotals: a page sums up the sessions that it goes over, the last one says that there are no more.
func testTotals(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o := newAuthor(f.space().ID)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
	f.must("open stream", err)
	f.applied(o.batch(false, o.create(), putOp("message/a", `{"n":1}`)))
	last := len(o.session) - 1
	before := o.session[:last] + string(o.session[last]-1) + "~" // no other id is between
	alone := func() session.Totals {
		got, next, err := f.Totals(f.ctx, before, 1)
		if f.must("count", err); next != o.session {
			t.Errorf("the page ends at %q, want %q", next, o.session)
		}
		return got
	}
	row := func() *session.Row {
		return f.load(&session.ReadSet{Sessions: []string{o.session}}).Sessions[o.session]
	}
	if got, want := alone(), (session.Totals{Live: 1, Events: 2, Bytes: row().Bytes}); got != want || want.Bytes == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	trimmed := row()
	trimmed.Base = 1
	f.save(&session.Changes{Sessions: []*session.Row{trimmed}}, o.session)
	if got := alone(); got.Events != 1 {
		t.Errorf("of 2 events 1 is left: %+v", got)
	}
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	if got, want := alone(), (session.Totals{Deleted: 1, Events: 2, Bytes: row().Bytes}); got != want {
		t.Errorf("deleted: %+v, want %+v", got, want)
	}
	var all session.Totals
	for after, more := "", true; more; {
		page, next, err := f.Totals(f.ctx, after, 500)
		if err != nil || page.Live+page.Deleted > 500 || next <= after && next != "" {
			t.Fatalf("after %q: %+v, %q, %v", after, page, next, err)
		}
		all.Add(page)
		after, more = next, next != ""
	}
	if all.Deleted < 1 || all.Events < 2 {
		t.Errorf("together %+v", all)
	}
}
