// What sessions hold, where it was not counted as it was written.

package upkeep

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testMeasure: a session of before there was a quota is found and measured, with its refs,
// and what it held then is spared.
func testMeasure(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/a", `{"n":1}`)))
	guest := harness.Grant(harness.NewRef(o.Session), o.Ref)
	guest.Epoch = 1
	f.Save(&session.Changes{Grants: []*capability.Grant{guest}}, o.Session)
	other := harness.NewAuthor(o.Space)
	other.Session, other.Ref, other.Space = o.Session, guest.ID, ""
	_, err = f.OpenStream(f.Ctx, session.StreamKey{Session: other.Session, Outbox: other.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(other.Batch(false, harness.PutOp("message/b", `{"n":2}`)))
	if ids, err := f.Unmeasured(f.Ctx, 10); err != nil || len(ids) != 0 {
		t.Fatalf("not measured: %v, %v", ids, err)
	}
	read := func() (*session.Row, *capability.Grant) {
		rows := f.Load(&session.ReadSet{Sessions: []string{o.Session}, Grants: []string{guest.ID}})
		return rows.Sessions[o.Session], rows.Grants[guest.ID]
	}
	row, ref := read()
	if row.Bytes <= ref.Bytes || ref.Bytes != int64(len(`{"n":2}`)+session.EventCost) || row.ExemptBytes != 0 || ref.ExemptBytes != 0 {
		t.Fatalf("counted: %+v, %+v", row, ref)
	}

	// As a server of the version before would have left it.
	old := *row
	old.Bytes, old.ExemptBytes = 0, -1
	f.Save(&session.Changes{Sessions: []*session.Row{&old}, Charges: []session.Charge{{Ref: guest.ID, Bytes: 12345}}}, o.Session)
	f.Applied(other.Batch(false, harness.PutOp("message/c", `{"n":3}`)))
	ids, err := f.Unmeasured(f.Ctx, 10)
	f.Must("find what is not measured", err)
	if !slices.Equal(ids, []string{o.Session}) {
		t.Fatalf("not measured: %v", ids)
	}
	for range 2 { // spared is what was there the first time
		bytes, err := f.Measure(f.Ctx, o.Session)
		f.Must("measure", err)
		got, gotRef := read()
		if want := row.Bytes + int64(len(`{"n":3}`)+session.EventCost); bytes != want || got.Bytes != want || got.ExemptBytes != want {
			t.Errorf("measured as %d, want %d: %+v", bytes, want, got)
		}
		if want := 2 * ref.Bytes; gotRef.Bytes != want || gotRef.ExemptBytes != want {
			t.Errorf("measured: %+v, want %d", gotRef, want)
		}
	}
	f.Applied(other.Batch(false, harness.PutOp("message/d", `{"n":4}`)))
	bytes, err := f.Measure(f.Ctx, o.Session)
	f.Must("measure", err)
	got, gotRef := read()
	if got.Bytes != bytes || got.ExemptBytes >= bytes || gotRef.Bytes != 3*ref.Bytes || gotRef.ExemptBytes != 2*ref.Bytes {
		t.Errorf("measured again: %d, %+v, %+v", bytes, got, gotRef)
	}
	if ids, err := f.Unmeasured(f.Ctx, 10); err != nil || len(ids) != 0 {
		t.Errorf("not measured: %v, %v", ids, err)
	}

	// What is purged, and what goes with the log's beginning, is counted off as exactly.
	counted := func(what string) {
		t.Helper()
		row, ref := read()
		bytes, err := f.Measure(f.Ctx, o.Session)
		f.Must("measure", err)
		if _, measured := read(); row.Bytes != bytes || ref.Bytes != measured.Bytes {
			t.Errorf("%s: %d bytes are counted, %d measured; %d and %d of the ref", what, row.Bytes, bytes, ref.Bytes, measured.Bytes)
		}
	}
	f.Applied(other.Batch(false, harness.PutOp("message/d", `{"n":5}`), harness.PutOp("message/e", `{"much":"of it"}`), harness.NewIntent(session.MethodRemove, "key", "message/b")))
	counted("replaced and removed")
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodPurge, "key", "message/e")))
	counted("purged")
	if more, err := f.Trim(f.Ctx, o.Session, harness.KeepNothing, 3, 1<<20); err != nil || !more {
		t.Fatalf("trim: %v, %v", more, err)
	}
	counted("trimmed in part")
	f.TrimAll(o.Session, harness.KeepNothing, 10)
	counted("trimmed")
	if row, ref := read(); row.Bytes == 0 || row.Bytes > bytes-4*session.EventCost || ref.Bytes != 0 {
		t.Errorf("after the log is gone %d bytes are counted, %d of the ref", row.Bytes, ref.Bytes)
	}
	if bytes, err := f.Measure(f.Ctx, harness.NewSession()); err != nil || bytes != 0 {
		t.Errorf("a session that is not there: %d, %v", bytes, err)
	}
}

// testAccounts: what was made under a ref of a space counts for the one below the owner's, and
// what was made from that one does too; the owner's has no account.
func testAccounts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := harness.Grant(harness.NewRef(harness.NewSpace()), "")
	root.Rights, root.Epoch = capability.SpaceRights, 0
	under := func(parent *capability.Grant) *capability.Grant {
		g := harness.Grant(harness.NewRef(root.Target), parent.ID)
		g.Rights, g.Epoch = capability.SpaceRights, 0
		return g
	}
	top, other := under(root), under(root)
	below := under(top)
	f.Save(&session.Changes{Grants: []*capability.Grant{root, top, below, other}})
	want := map[string]int64{}
	for _, c := range []struct{ made, account *capability.Grant }{{root, nil}, {top, top}, {below, top}, {other, other}, {top, top}} {
		o := harness.NewAuthor(c.made.ID)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/a", `{"n":1}`)))
		guest := harness.Grant(harness.NewRef(o.Session), o.Ref)
		f.Save(&session.Changes{Grants: []*capability.Grant{guest}}, o.Session)
		account := ""
		if c.account != nil {
			account = c.account.ID
			want[account] += f.Load(&session.ReadSet{Sessions: []string{o.Session}}).Sessions[o.Session].Bytes
		}
		for _, id := range []string{o.Session, c.made.ID} {
			got, err := f.AccountRef(f.Ctx, id)
			if f.Must("find the account", err); got != account {
				t.Errorf("%s counts for %q, want %q", id, got, account)
			}
		}
	}
	if got, err := f.AccountRef(f.Ctx, harness.NewSession()); err != nil || got != "" {
		t.Errorf("of a session that is not there: %q, %v", got, err)
	}
	for ref, bytes := range want {
		got, spared, err := f.AccountUsage(f.Ctx, ref)
		if f.Must("add up", err); got != bytes || spared != 0 || bytes == 0 {
			t.Errorf("%s holds %d, %d spared, want %d", ref, got, spared, bytes)
		}
	}
}

// testTotals: a page sums up the sessions that it goes over, the last one says that there are no more.
func testTotals(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o := harness.NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
	f.Must("open stream", err)
	f.Applied(o.Batch(false, o.Create(), harness.PutOp("message/a", `{"n":1}`)))
	last := len(o.Session) - 1
	before := o.Session[:last] + string(o.Session[last]-1) + "~" // no other id is between
	alone := func() session.Totals {
		got, next, err := f.Totals(f.Ctx, before, 1)
		if f.Must("count", err); next != o.Session {
			t.Errorf("the page ends at %q, want %q", next, o.Session)
		}
		return got
	}
	row := func() *session.Row {
		return f.Load(&session.ReadSet{Sessions: []string{o.Session}}).Sessions[o.Session]
	}
	if got, want := alone(), (session.Totals{Live: 1, Events: 2, Bytes: row().Bytes}); got != want || want.Bytes == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
	trimmed := row()
	trimmed.Base = 1
	f.Save(&session.Changes{Sessions: []*session.Row{trimmed}}, o.Session)
	if got := alone(); got.Events != 1 {
		t.Errorf("of 2 events 1 is left: %+v", got)
	}
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	if got, want := alone(), (session.Totals{Deleted: 1, Events: 2, Bytes: row().Bytes}); got != want {
		t.Errorf("deleted: %+v, want %+v", got, want)
	}
	var all session.Totals
	for after, more := "", true; more; {
		page, next, err := f.Totals(f.Ctx, after, 500)
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
