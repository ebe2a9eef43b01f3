// Forgetting: of a session that was deleted long ago little is left, and what comes for it
// is answered without the rest.

package upkeep

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

func testForget(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	open := func(o *harness.Author) {
		t.Helper()
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
	}
	lives, o := harness.NewAuthor(root.ID), harness.NewAuthor(root.ID)
	open(lives)
	f.Applied(lives.Batch(false, lives.Create()))
	reader, writer := harness.ClientRef(o.Session), harness.ClientRef(o.Session)
	open(o)
	f.Applied(o.Batch(false, o.Create("external", "gone"), harness.ShareOp(reader, "read"), harness.ShareOp(writer, "read", "append")))
	var streams []session.StreamKey
	var sent []decide.Submission
	for n := range 5 {
		w := o.WithRef(writer)
		open(w)
		sub := w.Batch(false, harness.PutOp("message/a", `{"n":%d}`, n))
		f.Applied(sub)
		streams, sent = append(streams, session.StreamKey{Session: w.Session, Outbox: w.Outbox}), append(sent, sub)
		f.Must("redeem", f.Redeem(f.Ctx, writer, fmt.Sprintf("r%d", n), "", func(*session.Redemption) error { return nil }))
	}
	f.Must("use", f.AddUses(f.Ctx, capability.IdempotencyKey{Writer: "w", Seq: 1}, []capability.RefUses{{Ref: o.Ref, Count: 1, LastUsed: 1}, {Ref: reader, Count: 1, LastUsed: 1}, {Ref: writer, Count: 1, LastUsed: 1}}))
	share, err := f.PublishShare(f.Ctx, harness.NewPublicShare(o.Session), harness.Asking())
	f.Must("publish", err)
	o.Acked = o.Seq
	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	was := f.LogOf(o.Session).Row
	audit, err := f.ReadAudit(f.Ctx, o.Session, 0, 100, nil)
	f.Must("read audit", err)

	due := func() []string {
		t.Helper()
		ids, next, err := f.TrimmableDeleted(f.Ctx, harness.KeepNothing, "", 10)
		f.Must("forgettable", err)
		if next != "" {
			t.Errorf("there is more to be forgotten after %q", next)
		}
		return ids
	}
	forget := func(id string, keep time.Duration) (more bool) {
		t.Helper()
		more, err := f.Forget(f.Ctx, id, keep, 2)
		f.Must("forget", err)
		return more
	}
	harness.Same(f, "due", due(), []string{o.Session})
	for id, keep := range map[string]time.Duration{o.Session: time.Hour, lives.Session: harness.KeepNothing, harness.NewSession(): harness.KeepNothing} {
		if forget(id, keep) {
			t.Errorf("%s of %v is forgotten", id, keep)
		}
	}
	harness.Same(f, "a row before its time", f.LogOf(o.Session).Row, was)

	// What was sent comes again, and something new, from who has heard nothing and who has heard all.
	late := o.SameSession()
	sent = append(sent, o.Batch(true, harness.PutOp("message/b", `{}`), harness.NewIntent(session.MethodDelete)), late.Batch(false, late.Create("external", "gone")),
		o.WithRef(reader).Batch(false, harness.NewIntent(ledger.MethodVoid)))
	ack := decide.Submission{Batch: ledger.Batch{Session: o.Session, Outbox: o.Outbox, Incarnation: 1, AckedThrough: o.Seq}, Ref: o.Ref, Ack: true}
	direct := decide.Submission{Batch: ledger.Batch{Session: o.Session}, Ref: o.Ref, Direct: &decide.Direct{Ref: writer}}
	answered := func(what string) {
		t.Helper()
		answers, _ := f.Commit(append(sent, ack, direct)...)
		for i, sub := range sent {
			if answers[i].Err != nil || len(answers[i].Outcomes) != len(sub.Batch.Ops) || answers[i].Duplicate {
				t.Fatalf("%s: the answer to %+v: %+v", what, sub.Batch.Ops, answers[i])
			}
			for j, got := range answers[i].Outcomes {
				op := sub.Batch.Ops[j]
				want := ledger.Outcome{OpID: op.OpID, Status: ledger.Rejected, Reason: fault.SessionDeleted, Message: got.Message}
				if op.Method == ledger.MethodVoid {
					want.Status, want.Reason = ledger.Voided, fault.Voided
				}
				harness.Same(f, what+": the outcome of "+op.Method, got, want)
			}
		}
		if err := answers[len(sent)].Err; err != nil {
			t.Errorf("%s: an acknowledgement: %v", what, err)
		}
		f.WantCode(what+": a revocation", answers[len(sent)+1].Err, fault.SessionDeleted)
		for _, key := range append(streams, session.StreamKey{Session: o.Session, Outbox: harness.NewOutbox()}) {
			stream, err := f.OpenStream(f.Ctx, key, harness.Hash(), 1)
			f.Must("open stream", err)
			if stream.Outbox != key.Outbox || stream.LastSeq < 1<<50 || stream.AckedThrough != 0 {
				t.Errorf("%s: a stream is opened as %+v", what, stream)
			}
		}
	}
	pieces := 1
	for forget(o.Session, harness.KeepNothing) {
		answered(fmt.Sprintf("after piece %d", pieces))
		harness.Same(f, "due while it is forgotten", due(), []string{o.Session})
		pieces++
	}
	if pieces < 5 {
		t.Errorf("it was forgotten in %d pieces of 2 rows", pieces)
	}
	answered("after all")
	harness.Same(f, "due after it", due(), nil)

	page := f.LogOf(o.Session)
	harness.Same(f, "its row", page.Row, &session.Row{ID: o.Session, Life: session.Deleted, Forgotten: true, Cursor: was.Cursor, Base: was.Cursor, Head: was.Head,
		Epoch: was.Epoch, AuthGen: was.AuthGen, Created: was.Created, Updated: was.Updated})
	if len(page.Events) > 0 || page.Checkpoint != nil {
		t.Errorf("of its log is left: %d events, %+v", len(page.Events), page.Checkpoint)
	}
	_, left, err := f.FindStreams(f.Ctx, streams, nil)
	f.Must("find streams", err)
	harness.Same(f, "its streams", left, map[session.StreamKey]*ledger.Stream{})
	var records []session.RecordRange
	for _, key := range streams {
		records = append(records, session.RecordRange{Stream: key, From: 1, To: 9})
	}
	rows := f.Load(&session.ReadSet{Records: records, Grants: []string{o.Ref, reader, writer}})
	if len(rows.Records) > 0 || len(rows.Grants) != 1 || rows.Grants[o.Ref] == nil {
		t.Errorf("of it are left: records %v, refs %v", rows.Records, rows.Grants)
	}
	now, err := f.ReadAudit(f.Ctx, o.Session, 0, 100, nil)
	f.Must("read audit", err)
	harness.Same(f, "its audit", now.Rows, audit.Rows)
	harness.Same(f, "its audit's head", now.Head, audit.Head)
	got, err := f.FindShare(f.Ctx, share.ID)
	f.Must("find its share", err)
	harness.Same(f, "its share", got, share)
	list, err := f.ListSessions(f.Ctx, root.Target, session.ListQuery{Deleted: true, Limit: 10}, nil)
	f.Must("list", err)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != lives.Session {
		t.Errorf("of its space are listed %+v", list.Sessions)
	}
	seen := false
	f.Must("redeem", f.Redeem(f.Ctx, writer, "r0", "", func(r *session.Redemption) error {
		seen = r.Grant == nil && !r.AlreadyCounted && r.Row.Forgotten
		return nil
	}))
	if !seen {
		t.Error("a ref of it is redeemed")
	}
	if forget(o.Session, harness.KeepNothing) {
		t.Error("it is forgotten once more")
	}
	// If the refs were there, nothing would be known of them; of the owner's, something is.
	f.Save(&session.Changes{Grants: []*capability.Grant{harness.Grant(reader, o.Ref), harness.Grant(writer, o.Ref)}})
	tree, err := f.ReadTree(f.Ctx, "", session.TreeQuery{Under: root.ID, Limit: 10}, []string{root.ID})
	f.Must("read the tree", err)
	uses := map[string]uint64{}
	for _, row := range tree.Rows {
		uses[row.Grant.ID] = row.Uses
	}
	harness.Same(f, "uses", uses, map[string]uint64{root.ID: 0, lives.Ref: 0, o.Ref: 1, reader: 0, writer: 0})
}
