// Webhooks that sessions' owners have registered, and which server delivers for each.

package authority

import (
	"context"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

const webhookColumns = `session, id, ref, url, secret, kinds, created, cursor, hash, opened, restarted, next_at, failures, since, error, took, delivered, ended, ended_at`

// dueWebhooks selects webhooks h that have something to do, of sessions s: {1} is who takes them, {2} until when, {3} now, {4} whether those that
// were slower than {5} ms the last time, {6} how many. An event of the session, or its end, gives them something to do.
const dueWebhooks = ` WHERE h.ended = '' AND h.next_at <= {3} AND h.lease <= {3} AND (h.opened >= 0 OR s.cursor > h.cursor OR s.life <> 1)
			AND CASE WHEN h.took > {5} THEN 1 ELSE 0 END = {4}
		ORDER BY h.next_at LIMIT {6}`

const claimWebhooks = `UPDATE webhooks SET holder = {1}, lease = {2} WHERE (session, id) IN (SELECT h.session, h.id FROM `

var (
	readWebhooks  = dialect.Both("", `SELECT `+webhookColumns+` FROM webhooks WHERE session = {1} ORDER BY created, id`)
	insertWebhook = dialect.Both("", `
		INSERT INTO webhooks (`+webhookColumns+`, holder, lease)
		VALUES ({1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}, {15}, {16}, {17}, {18}, {19}, '', 0)`)
	dropWebhook = dialect.Both("", `DELETE FROM webhooks WHERE session = {1} AND id = {2}`)

	// findHooked finds the sessions, of some, that have webhooks. claimWebhooksOf takes those of session {7}.
	findHooked       = dialect.Both("t", `SELECT DISTINCT h.session FROM {w} CROSS JOIN webhooks h WHERE h.session = w.a`)
	claimAnyWebhooks = skipLocked(claimWebhooks + `webhooks h {by webhooks_due} JOIN sessions s ON s.id = h.session` + dueWebhooks)
	claimWebhooksOf  = skipLocked(claimWebhooks + `webhooks h JOIN sessions s ON s.id = h.session` + strings.Replace(dueWebhooks, "WHERE", "WHERE h.session = {7} AND", 1))

	// saveWebhook writes what a server that holds a webhook has done for it.
	saveWebhook = dialect.Both("", `
		UPDATE webhooks SET cursor = {4}, hash = {5}, opened = {6}, restarted = {7}, next_at = {8}, failures = {9}, since = {10}, error = {11}, took = {12},
			delivered = {13}, ended = {14}, ended_at = {15}, lease = {16}, secret = CASE WHEN {14} = '' THEN secret ELSE '' END
		WHERE session = {1} AND id = {2} AND holder = {3} RETURNING id`)

	releaseWebhooks    = dialect.Both("", `UPDATE webhooks SET lease = 0 WHERE ended = '' AND lease > 0 AND holder = {1}`)
	releaseAllWebhooks = dialect.Both("", `UPDATE webhooks SET lease = 0 WHERE ended = '' AND lease > 0`)
)

// skipLocked returns a statement that claims: on Postgres, what another server is about to claim is passed over.
func skipLocked(text string) *dialect.Statement {
	const end = `) RETURNING ` + webhookColumns
	return dialect.Each(dialect.Both("", text+` FOR UPDATE OF h SKIP LOCKED`+end), dialect.Both("", text+end))
}

func scanWebhook(row dialect.Scanner) (*session.Webhook, error) {
	w := &session.Webhook{}
	var kinds string
	var cursor, failures int64
	var hash []byte
	err := row.Scan(&w.Session, &w.ID, &w.Ref, &w.URL, &w.Secret, &kinds, &w.Created, &cursor, &hash, &w.Opened, &w.Restarted, &w.NextAt, &failures, &w.Since, &w.Error,
		&w.Took, &w.Delivered, &w.Ended, &w.EndedAt)
	w.Kinds, w.Cursor, w.Failures = strings.Fields(kinds), uint64(cursor), int(failures)
	copy(w.Hash[:], hash)
	return w, err
}

// ReadWebhooks returns a session's webhooks, in the order in which they were registered, with its row and the grants of refs.
func (s *Authority) ReadWebhooks(ctx context.Context, id string, refs []string) (access *session.Access, list []*session.Webhook, err error) {
	access = &session.Access{}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, access, id, refs)
		run.Queue(readWebhooks, nil, []any{id}, dialect.Collect(&list, scanWebhook))
		return nil
	})
	if err != nil {
		return nil, nil, txn.Wrap("read the webhooks", err)
	}
	return access, list, nil
}

// ChangeWebhooks calls decide, under the session's lock, with its row, the grants of refs and its webhooks, and makes the change that decide
// returns, nil for none. decide's error is returned unchanged, and nothing is changed.
func (s *Authority) ChangeWebhooks(ctx context.Context, id string, refs []string, decide func(*session.Access, []*session.Webhook) (*session.WebhookChange, error)) error {
	leave, err := s.db.Locks.Acquire(ctx, id)
	if err != nil {
		return txn.Wrap("change the webhooks", err)
	}
	defer leave()
	var refused error
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{Sessions: []string{id}, Grants: refs, Others: session.OtherSessions(id, refs)})
		if err != nil {
			return err
		}
		var list []*session.Webhook
		if err := dialect.Query(ctx, t.Run, readWebhooks, nil, []any{id}, dialect.Collect(&list, scanWebhook)); err != nil {
			return err
		}
		c, err := decide(&session.Access{Row: rows.Sessions[id], Grants: rows.Grants, Others: rows.Others, Now: rows.Now}, list)
		if refused = err; err != nil || c == nil {
			return err
		}
		if w := c.Add; w != nil {
			if err := txn.CheckText(w.ID, w.URL, w.Secret); err != nil {
				refused = err
				return err
			}
			t.Run.Queue(insertWebhook, nil, []any{w.Session, w.ID, w.Ref, w.URL, w.Secret, strings.Join(w.Kinds, "\n"), w.Created, int64(w.Cursor), w.Hash[:], w.Opened, w.Restarted, w.NextAt,
				int64(w.Failures), w.Since, w.Error, w.Took, w.Delivered, w.Ended, w.EndedAt}, nil)
		} else {
			t.Run.Erase() // the secret
			t.Run.Queue(dropWebhook, nil, []any{id, c.Remove}, nil)
		}
		return t.Save(ctx, &session.Changes{Audit: []*capability.AuditRow{c.Audit}})
	})
	if refused != nil {
		return refused
	}
	return txn.Wrap("change the webhooks", err)
}

// FindHooked returns those of sessions that have webhooks.
func (s *Authority) FindHooked(ctx context.Context, sessions []string) (hooked []string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(findHooked, txn.TextRows(sessions), nil, dialect.Collect(&hooked, dialect.ScanText))
		return nil
	})
	return hooked, txn.Wrap("find webhooks", err)
}

// ClaimWebhooks takes webhooks that have something to do and that no other server holds, for a time.
func (s *Authority) ClaimWebhooks(ctx context.Context, c session.WebhookClaim) (claimed []*session.Webhook, now int64, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		claimed = nil
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		now = t.Now
		for slow, most := range []int{c.Fast, c.Slow} {
			claim := func(s *dialect.Statement, of ...any) error {
				before := len(claimed)
				if most <= 0 {
					return nil
				}
				err := dialect.Query(ctx, t.Run, s, nil, append([]any{c.Holder, now + c.Lease, now, int64(slow), c.SlowAfter, int64(most)}, of...), dialect.Collect(&claimed, scanWebhook))
				most -= len(claimed) - before
				return err
			}
			if c.Sessions == nil {
				if err := claim(claimAnyWebhooks); err != nil {
					return err
				}
			}
			for _, id := range c.Sessions {
				if err := claim(claimWebhooksOf, id); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return claimed, now, txn.Wrap("claim webhooks", err)
}

// SaveWebhook writes how far a webhook has come, that holder holds, and goes on holding it for lease ms, 0 for no longer. held is
// false, and nothing is written, if another server holds it by now, or it was removed. An ended one loses its secret.
func (s *Authority) SaveWebhook(ctx context.Context, w *session.Webhook, holder string, lease int64) (held bool, now int64, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		held = false
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if now = t.Now; lease > 0 {
			lease += now
		}
		if w.Ended != "" {
			t.Run.Erase()
		}
		t.Run.Queue(saveWebhook, nil, []any{w.Session, w.ID, holder, int64(w.Cursor), w.Hash[:], w.Opened, w.Restarted, w.NextAt, int64(w.Failures), w.Since, w.Error, w.Took,
			w.Delivered, w.Ended, w.EndedAt, lease}, func(dialect.Scanner) error {
			held = true
			return nil
		})
		return t.Run.Flush(ctx)
	})
	return held, now, txn.Wrap("save a webhook", err)
}

// ReleaseWebhooks gives back what a server holds; "" is any server, for one that is alone with the database.
func (s *Authority) ReleaseWebhooks(ctx context.Context, holder string) error {
	return txn.Wrap("release webhooks", s.db.Backend.Update(ctx, func(run dialect.Runner) error {
		if holder == "" {
			run.Queue(releaseAllWebhooks, nil, nil, nil)
		} else {
			run.Queue(releaseWebhooks, nil, []any{holder}, nil)
		}
		return nil
	}))
}
