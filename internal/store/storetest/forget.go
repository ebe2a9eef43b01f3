// Forgetting: of a session that was deleted long ago little is left, and what comes for it
// is answered without the rest.

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func testForget(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := f.space()
	open := func(o *author) {
		t.Helper()
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: o.session, Outbox: o.outbox}, hash(), 1)
		f.must("open stream", err)
	}
	lives, o := newAuthor(root.ID), newAuthor(root.ID)
	open(lives)
	f.applied(lives.batch(false, lives.create()))
	reader, writer := clientRef(o.session), clientRef(o.session)
	open(o)
	f.applied(o.batch(false, o.create("external", "gone"), shareOp(reader, "read"), shareOp(writer, "read", "append")))
	var streams []session.StreamKey
	var sent []session.Submission
	for n := range 5 {
		w := o.withRef(writer)
		open(w)
		sub := w.batch(false, putOp("message/a", `{"n":%d}`, n))
		f.applied(sub)
		streams, sent = append(streams, session.StreamKey{Session: w.session, Outbox: w.outbox}), append(sent, sub)
		f.must("redeem", f.Redeem(f.ctx, writer, fmt.Sprintf("r%d", n), "", func(*session.Redemption) error { return nil }))
	}
	f.must("use", f.AddUses(f.ctx, capability.IdempotencyKey{Writer: "w", Seq: 1}, []capability.RefUses{{Ref: o.ref, Count: 1, LastUsed: 1}, {Ref: reader, Count: 1, LastUsed: 1}, {Ref: writer, Count: 1, LastUsed: 1}}))
	share, err := f.PublishShare(f.ctx, newPublicShare(o.session), asking())
	f.must("publish", err)
	o.acked = o.seq
	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	was := f.log(o.session).Row
	audit, err := f.ReadAudit(f.ctx, o.session, 0, 100, nil)
	f.must("read audit", err)

	due := func() []string {
		t.Helper()
		ids, next, err := f.TrimmableDeleted(f.ctx, keepNothing, "", 10)
		f.must("forgettable", err)
		if next != "" {
			t.Errorf("there is more to be forgotten after %q", next)
		}
		return ids
	}
	forget := func(id string, keep time.Duration) (more bool) {
		t.Helper()
		more, err := f.Forget(f.ctx, id, keep, 2)
		f.must("forget", err)
		return more
	}
	same(f, "due", due(), []string{o.session})
	for id, keep := range map[string]time.Duration{o.session: time.Hour, lives.session: keepNothing, newSession(): keepNothing} {
		if forget(id, keep) {
			t.Errorf("%s of %v is forgotten", id, keep)
		}
	}
	same(f, "a row before its time", f.log(o.session).Row, was)

	// What was sent comes again, and something new, from who has heard nothing and who has heard all.
	late := o.sameSession()
	sent = append(sent, o.batch(true, putOp("message/b", `{}`), newIntent(session.MethodDelete)), late.batch(false, late.create("external", "gone")),
		o.withRef(reader).batch(false, newIntent(ledger.MethodVoid)))
	ack := session.Submission{Batch: ledger.Batch{Session: o.session, Outbox: o.outbox, Incarnation: 1, AckedThrough: o.seq}, Ref: o.ref, Ack: true}
	direct := session.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Direct: &session.Direct{Ref: writer}}
	answered := func(what string) {
		t.Helper()
		answers, _ := f.commit(append(sent, ack, direct)...)
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
				same(f, what+": the outcome of "+op.Method, got, want)
			}
		}
		if err := answers[len(sent)].Err; err != nil {
			t.Errorf("%s: an acknowledgement: %v", what, err)
		}
		f.code(what+": a revocation", answers[len(sent)+1].Err, fault.SessionDeleted)
		for _, key := range append(streams, session.StreamKey{Session: o.session, Outbox: newOutbox()}) {
			stream, err := f.OpenStream(f.ctx, key, hash(), 1)
			f.must("open stream", err)
			if stream.Outbox != key.Outbox || stream.LastSeq < 1<<50 || stream.AckedThrough != 0 {
				t.Errorf("%s: a stream is opened as %+v", what, stream)
			}
		}
	}
	pieces := 1
	for forget(o.session, keepNothing) {
		answered(fmt.Sprintf("after piece %d", pieces))
		same(f, "due while it is forgotten", due(), []string{o.session})
		pieces++
	}
	if pieces < 5 {
		t.Errorf("it was forgotten in %d pieces of 2 rows", pieces)
	}
	answered("after all")
	same(f, "due after it", due(), nil)

	page := f.log(o.session)
	same(f, "its row", page.Row, &session.Row{ID: o.session, Life: session.Deleted, Forgotten: true, Cursor: was.Cursor, Base: was.Cursor, Head: was.Head,
		Epoch: was.Epoch, AuthGen: was.AuthGen, Created: was.Created, Updated: was.Updated})
	if len(page.Events) > 0 || page.Checkpoint != nil {
		t.Errorf("of its log is left: %d events, %+v", len(page.Events), page.Checkpoint)
	}
	_, left, err := f.FindStreams(f.ctx, streams, nil)
	f.must("find streams", err)
	same(f, "its streams", left, map[session.StreamKey]*ledger.Stream{})
	var records []session.RecordRange
	for _, key := range streams {
		records = append(records, session.RecordRange{Stream: key, From: 1, To: 9})
	}
	rows := f.load(&session.ReadSet{Records: records, Grants: []string{o.ref, reader, writer}})
	if len(rows.Records) > 0 || len(rows.Grants) != 1 || rows.Grants[o.ref] == nil {
		t.Errorf("of it are left: records %v, refs %v", rows.Records, rows.Grants)
	}
	now, err := f.ReadAudit(f.ctx, o.session, 0, 100, nil)
	f.must("read audit", err)
	same(f, "its audit", now.Rows, audit.Rows)
	same(f, "its audit's head", now.Head, audit.Head)
	got, err := f.FindShare(f.ctx, share.ID)
	f.must("find its share", err)
	same(f, "its share", got, share)
	list, err := f.ListSessions(f.ctx, root.Target, session.ListQuery{Deleted: true, Limit: 10}, nil)
	f.must("list", err)
	if len(list.Sessions) != 1 || list.Sessions[0].ID != lives.session {
		t.Errorf("of its space are listed %+v", list.Sessions)
	}
	seen := false
	f.must("redeem", f.Redeem(f.ctx, writer, "r0", "", func(r *session.Redemption) error {
		seen = r.Grant == nil && !r.AlreadyCounted && r.Row.Forgotten
		return nil
	}))
	if !seen {
		t.Error("a ref of it is redeemed")
	}
	if forget(o.session, keepNothing) {
		t.Error("it is forgotten once more")
	}
	// If the refs were there, nothing would be known of them; of the owner's, something is.
	f.save(&session.Changes{Grants: []*capability.Grant{grant(reader, o.ref), grant(writer, o.ref)}})
	tree, err := f.ReadTree(f.ctx, "", session.TreeQuery{Under: root.ID, Limit: 10}, []string{root.ID})
	f.must("read the tree", err)
	uses := map[string]uint64{}
	for _, row := range tree.Rows {
		uses[row.Grant.ID] = row.Uses
	}
	same(f, "uses", uses, map[string]uint64{root.ID: 0, lives.ref: 0, o.ref: 1, reader: 0, writer: 0})
}
