// Reverts: what a session is reverted to, and the removal of what a settled revert hid.

package txn

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var (
	saveReverts = dialect.Both("tttt", `
		UPDATE sessions SET reverted = w.b, reverts_left = w.c, compacted = w.d FROM {w} WHERE sessions.id = w.a`)

	// leftMessages reads messages from a place in the session's order on that are from before cursor {5}.
	leftMessages = dialect.Both("", `
		SELECT `+EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND {kind} = 'message' AND (e.ord, e.ord_index, e.key) >= ({2}, {3}, {4}) AND e.cursor < {5}
		ORDER BY e.ord, e.ord_index, e.key LIMIT {6}`)

	// dropLeft removes at most {5} entries of the keys from {2} on and below {3} that are from before cursor {4}.
	dropLeft = dialect.Both("", `
		DELETE FROM entries WHERE (session, key) IN (
			SELECT e.session, e.key FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} AND e.cursor < {4} AND e.grown < {4} ORDER BY e.key LIMIT {5})
		RETURNING key`)

	// dropLeftParts removes those of them that are at a place in the session's order or after it.
	dropLeftParts = dialect.Both("", `
		DELETE FROM entries WHERE session = {1} AND key >= {2} AND key < {3} AND cursor < {4} AND grown < {4} AND (ord, ord_index, key) >= ({5}, {6}, {7})
		RETURNING key`)

	dropLeftTurn = dialect.Both("", `DELETE FROM turns WHERE session = {1} AND message = {2} AND begun < {3}`)
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
func (t *Tx) saveReverts(rows []*session.Row) {
	var changed [][]any
	for _, s := range rows {
		if was := t.Prior[s.ID]; was.revert == s.Revert && was.left == s.Left && was.compaction == s.Compaction {
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
	t.QueueList(saveReverts, changed, nil)
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
func (t *Tx) dropReverted(list []session.RevertedMessage) {
	for _, m := range list {
		from, below := PartRange(m.Message)
		if m.Part != "" {
			t.Run.Queue(dropLeftParts, nil, []any{m.Session, from, below, int64(m.Before), int64(m.From.At), int64(m.From.Index), m.Part}, skip)
			continue
		}
		t.dropMessage(&m)
		t.Run.Queue(dropLeft, nil, []any{m.Session, from, below, int64(m.Before), int64(maxLeftParts)}, skip)
	}
}

// maxLeftParts is more than a message has parts.
const maxLeftParts = 1 << 40

func skip(dialect.Scanner) error { return nil }

// dropMessage removes a message and its turn.
func (t *Tx) dropMessage(m *session.RevertedMessage) {
	key := session.MessageKey(m.Message)
	t.Run.Queue(dropLeft, nil, []any{m.Session, key, KeyAfter(key), int64(m.Before), int64(1)}, skip)
	t.Run.Queue(dropLeftTurn, nil, []any{m.Session, m.Message, int64(m.Before)}, nil)
}

// PartRange returns the keys of a message's parts: from from on and below below.
func PartRange(message string) (from, below string) {
	from = session.PartKey(message, "")
	return from, session.PrefixEnd(from)
}

// RemoveReverted removes at most about most rows of a session. The parts of a message leave before it, since
// they are known by it.
func (t *Tx) RemoveReverted(ctx context.Context, id string, most int) error {
	row := &session.Row{}
	QueueRow(t.Run, LockSessions, id, &row)
	if err := t.Run.Flush(ctx); err != nil || row.Left == nil {
		return err
	}
	t.Prior = map[string]PriorRow{id: priorOf(row)}
	r := &row.Left.Reverts[0] // the oldest: what it hid is known by messages that later ones hid too
	var heads []*session.Entry
	place := []any{id, int64(r.Ord.At), int64(r.Ord.Index), session.HeadOf(r.To), int64(r.Settled), int64(most) + 1}
	if err := dialect.Query(ctx, t.Run, leftMessages, nil, place, dialect.Collect(&heads, ScanMeta)); err != nil {
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
		from, below := PartRange(message)
		var words [][]any
		if err := dialect.Query(ctx, t.Run, dropLeft, nil, []any{id, from, below, int64(r.Settled), int64(most - removed)}, func(row dialect.Scanner) error {
			var key string
			words = append(words, []any{id, &key})
			return row.Scan(&key)
		}); err != nil {
			return err
		}
		if removed += len(words) + 1; removed <= most {
			t.dropMessage(&session.RevertedMessage{Session: id, Message: message, Before: r.Settled})
			words = append(words, []any{id, head.Key})
		}
		t.QueueList(DropWords, words, nil)
	}
	if len(heads) > passed || len(heads) > most {
		return t.Run.Flush(ctx)
	}
	if left := row.Left.Reverts[1:]; len(left) > 0 {
		row.Left = &session.Left{Reverts: left}
	} else {
		row.Left = nil
	}
	t.saveReverts([]*session.Row{row})
	return t.Run.Flush(ctx)
}
