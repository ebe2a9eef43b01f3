package storetest

// Webhooks: their rows, and who delivers for them.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func testWebhooks(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	o, other := f.worker(), f.worker()
	change := func(id string, c *session.WebhookChange) {
		f.Helper()
		f.must("change", f.ChangeWebhooks(f.ctx, id, []string{o.ref}, func(at *session.Access, list []*session.Webhook) (*session.WebhookChange, error) {
			if at.Row == nil || at.Row.ID != id || at.Grants[o.ref] == nil || at.Now == 0 {
				f.Errorf("it decides on %+v", at)
			}
			if c.Audit = (&capability.AuditRow{Target: id, At: at.Now, Act: capability.AuditWebhook, Ref: o.ref, Subject: "w"}); c.Remove != "" {
				c.Audit.Act = capability.AuditUnhook
			}
			return c, nil
		}))
	}
	list := func(id string) []*session.Webhook {
		f.Helper()
		_, list, err := f.ReadWebhooks(f.ctx, id, nil)
		f.must("read", err)
		return list
	}
	hook := func(id, name string) *session.Webhook {
		return &session.Webhook{Session: id, ID: name, Ref: o.ref, URL: "https://ü.example/", Secret: "whsec_x", Kinds: []string{"a", "b"}, Created: 5, Cursor: 1, Hash: hash(), Opened: -1}
	}
	first := hook(o.session, "one")
	change(o.session, &session.WebhookChange{Add: first})
	same(f, "as it was added", list(o.session), []*session.Webhook{first})
	refused := f.ChangeWebhooks(f.ctx, o.session, nil, func(_ *session.Access, there []*session.Webhook) (*session.WebhookChange, error) {
		same(f, "what there is", there, []*session.Webhook{first})
		return nil, fault.NotAnOwner.With("no")
	})
	f.code("a refusal", refused, fault.NotAnOwner)

	claim := func(holder string, sessions ...string) (got []string, rows []*session.Webhook) {
		f.Helper()
		rows, now, err := f.ClaimWebhooks(f.ctx, session.WebhookClaim{Holder: holder, Lease: 60_000, Sessions: sessions, Fast: 2, Slow: 1, SlowAfter: 2000})
		f.must("claim", err)
		if now == 0 {
			f.Error("a claim has no time")
		}
		for _, w := range rows {
			got = append(got, w.ID)
		}
		slices.Sort(got)
		return got, rows
	}
	save := func(w *session.Webhook, holder string, lease int64) bool {
		f.Helper()
		held, _, err := f.SaveWebhook(f.ctx, w, holder, lease)
		f.must("save", err)
		return held
	}
	none := []string(nil)
	got, _ := claim("A", o.session)
	same(f, "nothing has happened", got, none)
	f.applied(o.batch(false, putOp("message/m", `{}`)))
	hooked, err := f.FindHooked(f.ctx, []string{other.session, o.session, newSession()})
	f.must("find", err)
	same(f, "sessions with webhooks", hooked, []string{o.session})
	got, _ = claim("A", other.session)
	same(f, "of another session", got, none)
	got, rows := claim("A", o.session)
	same(f, "something has", got, []string{"one"})
	same(f, "as it is", rows[0], first)
	got, _ = claim("B", o.session)
	same(f, "another holds it", got, none)
	w := rows[0]
	w.Cursor, w.Hash, w.Opened, w.Restarted, w.NextAt, w.Failures, w.Since, w.Error, w.Took, w.Delivered = 2, hash(), 7, 8, 9, 3, 10, "timeout", 11, 12
	same(f, "saved by another", save(w, "B", 0), false)
	same(f, "saved", save(w, "A", 60_000), true)
	same(f, "as it was saved", list(o.session), []*session.Webhook{w})
	got, _ = claim("B", o.session)
	same(f, "it is still held", got, none)
	f.must("release", f.ReleaseWebhooks(f.ctx, "B"))
	got, _ = claim("B", o.session)
	same(f, "another's release", got, none)
	f.must("release", f.ReleaseWebhooks(f.ctx, "A"))
	got, _ = claim("B", o.session)
	same(f, "released, and it has open requests to go through", got, []string{"one"})
	same(f, "by who held it", save(w, "A", 0), false)

	// Those that were slow have a share of their own.
	w.Opened, w.Failures = -1, 0
	same(f, "saved", save(w, "B", 0), true)
	for _, name := range []string{"two", "three", "four", "five"} {
		row := hook(o.session, name)
		row.Kinds = []string{"a"}
		if name == "five" {
			row.Took = 2001
		}
		change(o.session, &session.WebhookChange{Add: row})
	}
	got, rows = claim("A", o.session)
	same(f, "the slow one, and two", fmt.Sprint(len(got), slices.Contains(got, "five")), "3 true")
	got, _ = claim("A", o.session)
	same(f, "the next", len(got), 1)
	for _, row := range rows {
		if row.ID == "five" {
			row.NextAt, row.Cursor = 1<<60, 1
			same(f, "saved", save(row, "A", 0), true)
		}
	}
	got, _ = claim("B", o.session)
	same(f, "none before its time", got, none)

	rows[0].Ended, rows[0].EndedAt = session.WebhookGone, 13
	same(f, "ended", save(rows[0], "A", 0), true)
	for _, row := range list(o.session) {
		if (row.Ended != "") != (row.ID == rows[0].ID) || (row.Secret == "") != (row.Ended != "") {
			f.Errorf("%s is %q, with the secret %q", row.ID, row.Ended, row.Secret)
		}
	}
	change(o.session, &session.WebhookChange{Remove: rows[0].ID})
	same(f, "one less", len(list(o.session)), 4)
	audit, err := f.ReadAudit(f.ctx, o.session, 0, 100, nil)
	f.must("read the audit", err)
	acts := map[capability.AuditAct]int{}
	for _, row := range audit.Rows {
		acts[row.Act]++
	}
	same(f, "audited", fmt.Sprint(acts[capability.AuditWebhook], acts[capability.AuditUnhook]), "5 1")

	f.applied(o.batch(false, newIntent(session.MethodDelete)))
	same(f, "of a deleted session", len(list(o.session)), 0)
}

// testWebhooksAtOnce: of any number of servers one at a time holds a webhook.
func testWebhooksAtOnce(t *testing.T, fresh Fresh) {
	db := fresh(t)
	f := open(t, db)
	o := f.worker()
	const hooks = 8
	for i := range hooks {
		f.must("add", f.ChangeWebhooks(f.ctx, o.session, nil, func(at *session.Access, _ []*session.Webhook) (*session.WebhookChange, error) {
			return &session.WebhookChange{Add: &session.Webhook{Session: o.session, ID: fmt.Sprint("w", i), Ref: o.ref, Opened: 0, Created: at.Now},
				Audit: &capability.AuditRow{Target: o.session, Act: capability.AuditWebhook, Ref: o.ref}}, nil
		}))
	}
	claimed := make(chan []string)
	for n := range 4 {
		st := f
		if db.Shared {
			st = open(t, db)
		}
		go func() {
			var got []string
			for range hooks {
				rows, _, err := st.ClaimWebhooks(f.ctx, session.WebhookClaim{Holder: fmt.Sprint("server", n), Lease: 60_000, Sessions: []string{o.session}, Fast: 1, Slow: 1})
				if err != nil {
					t.Error(err)
				}
				for _, w := range rows {
					got = append(got, w.ID)
				}
			}
			claimed <- got
		}()
	}
	var all []string
	for range 4 {
		all = append(all, <-claimed...)
	}
	slices.Sort(all)
	same(f, "each once", len(slices.Compact(all)), hooks)
	same(f, "all of them", len(all), hooks)
}
