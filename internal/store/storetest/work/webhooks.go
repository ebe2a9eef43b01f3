package work

// Webhooks: their rows, and who delivers for them.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

func testWebhooks(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	o, other := f.Worker(), f.Worker()
	change := func(id string, c *session.WebhookChange) {
		f.Helper()
		f.Must("change", f.ChangeWebhooks(f.Ctx, id, []string{o.Ref}, func(at *session.Access, list []*session.Webhook) (*session.WebhookChange, error) {
			if at.Row == nil || at.Row.ID != id || at.Grants[o.Ref] == nil || at.Now == 0 {
				f.Errorf("it decides on %+v", at)
			}
			if c.Audit = (&capability.AuditRow{Target: id, At: at.Now, Act: capability.AuditWebhook, Ref: o.Ref, Subject: "w"}); c.Remove != "" {
				c.Audit.Act = capability.AuditUnhook
			}
			return c, nil
		}))
	}
	list := func(id string) []*session.Webhook {
		f.Helper()
		_, list, err := f.ReadWebhooks(f.Ctx, id, nil)
		f.Must("read", err)
		return list
	}
	hook := func(id, name string) *session.Webhook {
		return &session.Webhook{Session: id, ID: name, Ref: o.Ref, URL: "https://ü.example/", Secret: "whsec_x", Kinds: []string{"a", "b"}, Created: 5, Cursor: 1, Hash: harness.Hash(), Opened: -1}
	}
	first := hook(o.Session, "one")
	change(o.Session, &session.WebhookChange{Add: first})
	harness.Same(f, "as it was added", list(o.Session), []*session.Webhook{first})
	refused := f.ChangeWebhooks(f.Ctx, o.Session, nil, func(_ *session.Access, there []*session.Webhook) (*session.WebhookChange, error) {
		harness.Same(f, "what there is", there, []*session.Webhook{first})
		return nil, fault.NotAnOwner.With("no")
	})
	f.WantCode("a refusal", refused, fault.NotAnOwner)

	claim := func(holder string, sessions ...string) (got []string, rows []*session.Webhook) {
		f.Helper()
		rows, now, err := f.ClaimWebhooks(f.Ctx, session.WebhookClaim{Holder: holder, Lease: 60_000, Sessions: sessions, Fast: 2, Slow: 1, SlowAfter: 2000})
		f.Must("claim", err)
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
		held, _, err := f.SaveWebhook(f.Ctx, w, holder, lease)
		f.Must("save", err)
		return held
	}
	none := []string(nil)
	got, _ := claim("A", o.Session)
	harness.Same(f, "nothing has happened", got, none)
	f.Applied(o.Batch(false, harness.PutOp("message/m", `{}`)))
	hooked, err := f.FindHooked(f.Ctx, []string{other.Session, o.Session, harness.NewSession()})
	f.Must("find", err)
	harness.Same(f, "sessions with webhooks", hooked, []string{o.Session})
	got, _ = claim("A", other.Session)
	harness.Same(f, "of another session", got, none)
	got, rows := claim("A", o.Session)
	harness.Same(f, "something has", got, []string{"one"})
	harness.Same(f, "as it is", rows[0], first)
	got, _ = claim("B", o.Session)
	harness.Same(f, "another holds it", got, none)
	w := rows[0]
	w.Cursor, w.Hash, w.Opened, w.Restarted, w.NextAt, w.Failures, w.Since, w.Error, w.Took, w.Delivered = 2, harness.Hash(), 7, 8, 9, 3, 10, "timeout", 11, 12
	harness.Same(f, "saved by another", save(w, "B", 0), false)
	harness.Same(f, "saved", save(w, "A", 60_000), true)
	harness.Same(f, "as it was saved", list(o.Session), []*session.Webhook{w})
	got, _ = claim("B", o.Session)
	harness.Same(f, "it is still held", got, none)
	f.Must("release", f.ReleaseWebhooks(f.Ctx, "B"))
	got, _ = claim("B", o.Session)
	harness.Same(f, "another's release", got, none)
	f.Must("release", f.ReleaseWebhooks(f.Ctx, "A"))
	got, _ = claim("B", o.Session)
	harness.Same(f, "released, and it has open requests to go through", got, []string{"one"})
	harness.Same(f, "by who held it", save(w, "A", 0), false)

	// Those that were slow have a share of their own.
	w.Opened, w.Failures = -1, 0
	harness.Same(f, "saved", save(w, "B", 0), true)
	for _, name := range []string{"two", "three", "four", "five"} {
		row := hook(o.Session, name)
		row.Kinds = []string{"a"}
		if name == "five" {
			row.Took = 2001
		}
		change(o.Session, &session.WebhookChange{Add: row})
	}
	got, rows = claim("A", o.Session)
	harness.Same(f, "the slow one, and two", fmt.Sprint(len(got), slices.Contains(got, "five")), "3 true")
	got, _ = claim("A", o.Session)
	harness.Same(f, "the next", len(got), 1)
	for _, row := range rows {
		if row.ID == "five" {
			row.NextAt, row.Cursor = 1<<60, 1
			harness.Same(f, "saved", save(row, "A", 0), true)
		}
	}
	got, _ = claim("B", o.Session)
	harness.Same(f, "none before its time", got, none)

	rows[0].Ended, rows[0].EndedAt = session.WebhookGone, 13
	harness.Same(f, "ended", save(rows[0], "A", 0), true)
	for _, row := range list(o.Session) {
		if (row.Ended != "") != (row.ID == rows[0].ID) || (row.Secret == "") != (row.Ended != "") {
			f.Errorf("%s is %q, with the secret %q", row.ID, row.Ended, row.Secret)
		}
	}
	change(o.Session, &session.WebhookChange{Remove: rows[0].ID})
	harness.Same(f, "one less", len(list(o.Session)), 4)
	audit, err := f.ReadAudit(f.Ctx, o.Session, 0, 100, nil)
	f.Must("read the audit", err)
	acts := map[capability.AuditAct]int{}
	for _, row := range audit.Rows {
		acts[row.Act]++
	}
	harness.Same(f, "audited", fmt.Sprint(acts[capability.AuditWebhook], acts[capability.AuditUnhook]), "5 1")

	f.Applied(o.Batch(false, harness.NewIntent(session.MethodDelete)))
	harness.Same(f, "of a deleted session", len(list(o.Session)), 0)
}

// testWebhooksAtOnce: of any number of servers one at a time holds a webhook.
func testWebhooksAtOnce(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	f := harness.Open(t, db)
	o := f.Worker()
	const hooks = 8
	for i := range hooks {
		f.Must("add", f.ChangeWebhooks(f.Ctx, o.Session, nil, func(at *session.Access, _ []*session.Webhook) (*session.WebhookChange, error) {
			return &session.WebhookChange{Add: &session.Webhook{Session: o.Session, ID: fmt.Sprint("w", i), Ref: o.Ref, Opened: 0, Created: at.Now},
				Audit: &capability.AuditRow{Target: o.Session, Act: capability.AuditWebhook, Ref: o.Ref}}, nil
		}))
	}
	claimed := make(chan []string)
	for n := range 4 {
		st := f
		if db.Shared {
			st = harness.Open(t, db)
		}
		go func() {
			var got []string
			for range hooks {
				rows, _, err := st.ClaimWebhooks(f.Ctx, session.WebhookClaim{Holder: fmt.Sprint("server", n), Lease: 60_000, Sessions: []string{o.Session}, Fast: 1, Slow: 1})
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
	harness.Same(f, "each once", len(slices.Compact(all)), hooks)
	harness.Same(f, "all of them", len(all), hooks)
}
