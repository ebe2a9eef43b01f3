// Reverts: what a session is reverted to, reads without what is hidden, and the removal of what a settled
// revert hid.

package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	saveReverts = statement("tttt", `
		UPDATE sessions SET reverted = w.b, reverts_left = w.c, compacted = w.d FROM {w} WHERE sessions.id = w.a`)

	findLeft = statement("", `
		SELECT s.id FROM sessions s {by sessions_reverts_left} WHERE s.reverts_left <> '' AND s.forks = '' AND s.id > {1} ORDER BY s.id LIMIT {2}`)

	// leftMessages reads messages from a place in the session's order on that are from before cursor {5}.
	leftMessages = statement("", `
		SELECT `+entryMetaColumns+` FROM entries e WHERE e.session = {1} AND {kind} = 'message' AND (e.ord, e.ord_index, e.key) >= ({2}, {3}, {4}) AND e.cursor < {5}
		ORDER BY e.ord, e.ord_index, e.key LIMIT {6}`)

	// dropLeft removes at most {5} entries of the keys from {2} on and below {3} that are from before cursor {4}.
	dropLeft = statement("", `
		DELETE FROM entries WHERE (session, key) IN (
			SELECT e.session, e.key FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} AND e.cursor < {4} AND e.grown < {4} ORDER BY e.key LIMIT {5})
		RETURNING key`)

	// dropLeftParts removes those of them that are at a place in the session's order or after it.
	dropLeftParts = statement("", `
		DELETE FROM entries WHERE session = {1} AND key >= {2} AND key < {3} AND cursor < {4} AND grown < {4} AND (ord, ord_index, key) >= ({5}, {6}, {7})
		RETURNING key`)

	dropLeftTurn = statement("", `DELETE FROM turns WHERE session = {1} AND message = {2} AND begun < {3}`)
)

// scanReverts sets a row's reverts, and up to where it is compacted, from their columns.
func scanReverts(s *session.Row, reverted, left, compacted string) error {
	if compacted != "" {
		if err := json.Unmarshal([]byte(compacted), &s.Compaction); err != nil {
			return fmt.Errorf("up to where session %s is compacted: %w", s.ID, err)
		}
	}
	if reverted != "" {
		if err := json.Unmarshal([]byte(reverted), &s.Revert); err != nil {
			return fmt.Errorf("what session %s is reverted to: %w", s.ID, err)
		}
	}
	if left != "" {
		s.Left = &session.Left{}
		if err := json.Unmarshal([]byte(left), &s.Left.Reverts); err != nil {
			return fmt.Errorf("the reverts of session %s: %w", s.ID, err)
		}
	}
	return nil
}

// saveReverts writes what scanReverts reads, of sessions of which it has changed.
func (t *tx) saveReverts(rows []*session.Row) {
	var changed [][]any
	for _, s := range rows {
		if was := t.prior[s.ID]; was.revert == s.Revert && was.left == s.Left && was.compaction == s.Compaction {
			continue
		}
		reverted, left, compacted := "", "", ""
		if s.Revert.InForce() {
			reverted = jsonText(s.Revert)
		}
		if s.Left != nil {
			left = jsonText(s.Left.Reverts)
		}
		if s.Compaction.InForce() {
			compacted = jsonText(s.Compaction)
		}
		changed = append(changed, []any{s.ID, reverted, left, compacted})
	}
	t.queueList(saveReverts, changed, nil)
}

// jsonText returns the JSON of numbers and texts, which cannot fail.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// dropReverted removes messages, each with its parts and its turn, or some parts.
func (t *tx) dropReverted(list []session.RevertedMessage) {
	for _, m := range list {
		from, below := partRange(m.Message)
		if m.Part != "" {
			t.run.Queue(dropLeftParts, nil, []any{m.Session, from, below, int64(m.Before), int64(m.From.At), int64(m.From.Index), m.Part}, skip)
			continue
		}
		t.dropMessage(&m)
		t.run.Queue(dropLeft, nil, []any{m.Session, from, below, int64(m.Before), int64(maxLeftParts)}, skip)
	}
}

// maxLeftParts is more than a message has parts.
const maxLeftParts = 1 << 40

func skip(Scanner) error { return nil }

// dropMessage removes a message and its turn.
func (t *tx) dropMessage(m *session.RevertedMessage) {
	key := session.MessageKey(m.Message)
	t.run.Queue(dropLeft, nil, []any{m.Session, key, keyAfter(key), int64(m.Before), int64(1)}, skip)
	t.run.Queue(dropLeftTurn, nil, []any{m.Session, m.Message, int64(m.Before)}, nil)
}

// partRange returns the keys of a message's parts: from from on and below below.
func partRange(message string) (from, below string) {
	from = session.PartKey(message, "")
	return from, session.PrefixEnd(from)
}

// RemoveReverted removes rows that settled reverts hid: at most most, of one session, in a transaction. more
// reports that there may be others.
func (s *Store) RemoveReverted(ctx context.Context, most int) (more bool, err error) {
	var ids []string
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(findLeft, nil, []any{"", int64(1)}, collect(&ids, scanText))
		return nil
	})
	if err == nil && len(ids) > 0 {
		more = true
		err = s.update(ctx, func(t *tx) error { return t.removeReverted(ctx, ids[0], max(most, 1)) })
	}
	return more && err == nil, wrap("remove what was reverted", err)
}

// removeReverted removes at most about most rows of a session. The parts of a message leave before it, since
// they are known by it.
func (t *tx) removeReverted(ctx context.Context, id string, most int) error {
	row := &session.Row{}
	queueRow(t.run, lockSessions, id, &row)
	if err := t.run.Flush(ctx); err != nil || row.Left == nil {
		return err
	}
	t.prior = map[string]priorRow{id: priorOf(row)}
	r := &row.Left.Reverts[0] // the oldest: what it hid is known by messages that later ones hid too
	var heads []*session.Entry
	place := []any{id, int64(r.Ord.At), int64(r.Ord.Index), session.HeadOf(r.To), int64(r.Settled), int64(most) + 1}
	t.run.Queue(leftMessages, nil, place, collect(&heads, scanMeta))
	if err := t.run.Flush(ctx); err != nil {
		return err
	}
	removed, passed := 0, 0
	for _, head := range heads {
		if !r.Hides(head, head) {
			passed++
			continue
		}
		if removed >= most {
			return nil
		}
		message := head.Key[len(session.MessageKey("")):]
		from, below := partRange(message)
		var words [][]any
		t.run.Queue(dropLeft, nil, []any{id, from, below, int64(r.Settled), int64(most - removed)}, func(row Scanner) error {
			var key string
			words = append(words, []any{id, &key})
			return row.Scan(&key)
		})
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		if removed += len(words) + 1; removed <= most {
			t.dropMessage(&session.RevertedMessage{Session: id, Message: message, Before: r.Settled})
			words = append(words, []any{id, head.Key})
		}
		t.queueList(dropWords, words, nil)
	}
	if len(heads) > passed || len(heads) > most {
		return t.run.Flush(ctx)
	}
	if left := row.Left.Reverts[1:]; len(left) > 0 {
		row.Left = &session.Left{Reverts: left}
	} else {
		row.Left = nil
	}
	t.saveReverts([]*session.Row{row})
	return t.run.Flush(ctx)
}

// hiding leaves out of what is read of a session what reverts hide, or have removed from the state, and what the
// compacted view leaves out, if that is read.
type hiding struct {
	run       Runner
	session   string
	reverts   session.Reverts
	compacted session.Compaction
	heads     map[string]*session.Entry // messages that were looked up; nil for those that are not there
}

// newHiding returns the hiding of a session, whose row may be nil.
func newHiding(run Runner, row *session.Row) *hiding {
	h := &hiding{run: run}
	if row != nil {
		h.session, h.reverts = row.ID, row.Hiding()
	}
	return h
}

// nothing reports whether nothing is left out.
func (h *hiding) nothing() bool { return len(h.reverts) == 0 && !h.compacted.InForce() }

// look looks up the messages of keys.
func (h *hiding) look(ctx context.Context, keys []string) error {
	if h.nothing() {
		return nil
	}
	if h.heads == nil {
		h.heads = map[string]*session.Entry{}
	}
	var unread []string
	for _, key := range keys {
		if head := session.HeadOf(key); head != "" {
			if _, known := h.heads[head]; !known {
				h.heads[head] = nil
				unread = append(unread, head)
			}
		}
	}
	if len(unread) == 0 {
		return nil
	}
	h.run.Queue(readEntryMeta, pairRows(map[string][]string{h.session: unread}), nil, func(row Scanner) error {
		e, err := scanEntryMeta(row)
		if err == nil {
			h.heads[e.Key] = e
		}
		return err
	})
	return h.run.Flush(ctx)
}

// hides reports whether an entry is left out.
func (h *hiding) hides(ctx context.Context, e *session.Entry) (bool, error) {
	if h.nothing() {
		return false, nil
	}
	if h.heads == nil {
		h.heads = map[string]*session.Entry{}
	}
	if session.HeadOf(e.Key) == e.Key { // the message itself, by which its parts, which follow, are known too
		h.heads[e.Key] = e
	}
	err := h.look(ctx, []string{e.Key})
	return h.leavesOut(e), err
}

// leavesOut is hides for an entry whose message was looked up.
func (h *hiding) leavesOut(e *session.Entry) bool {
	head := h.heads[session.HeadOf(e.Key)]
	return h.compacts(head) || h.reverts.Hides(e, head)
}

// compacts reports whether the compacted view leaves out a message, which is in the state.
func (h *hiding) compacts(head *session.Entry) bool {
	return h.compacted.LeavesOut(head) && !h.reverts.Hides(head, head)
}

// shown returns the entries that are not left out, in the same memory.
func (h *hiding) shown(ctx context.Context, entries []*session.Entry) ([]*session.Entry, error) {
	if len(h.reverts) == 0 {
		return entries, nil
	}
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	if err := h.look(ctx, keys); err != nil {
		return nil, err
	}
	left := entries[:0]
	for _, e := range entries {
		if !h.leavesOut(e) {
			left = append(left, e)
		}
	}
	return left, nil
}

// shownTurns is shown for turns.
func (h *hiding) shownTurns(ctx context.Context, turns []*session.Turn) ([]*session.Turn, error) {
	if len(h.reverts) == 0 {
		return turns, nil
	}
	keys := make([]string, len(turns))
	for i, t := range turns {
		keys[i] = session.MessageKey(t.Message)
	}
	if err := h.look(ctx, keys); err != nil {
		return nil, err
	}
	left := turns[:0]
	for i, t := range turns {
		if head := h.heads[keys[i]]; !h.compacts(head) && !h.reverts.HidesTurn(t, head) {
			left = append(left, t)
		}
	}
	return left, nil
}

// hideRange leaves out of a range of the state what is hidden.
func hideRange(ctx context.Context, run Runner, page *session.StateRange) (err error) {
	if n := len(page.Entries); n > 0 {
		page.Last = page.Entries[n-1].Key
	}
	hide := newHiding(run, page.Row)
	if page.Entries, err = hide.shown(ctx, page.Entries); err == nil {
		page.Turns, err = hide.shownTurns(ctx, page.Turns)
	}
	return err
}
