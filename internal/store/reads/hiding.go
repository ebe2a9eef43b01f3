// Reads without what is hidden or left out.

package reads

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// hiding leaves out of what is read of a session what reverts hide, or have removed from the state, and what the
// compacted view leaves out, if that is read.
type hiding struct {
	run       dialect.Runner
	session   string
	reverts   session.Reverts
	compacted session.Compaction
	heads     map[string]*session.Entry // messages that were looked up; nil for those that are not there
}

// newHiding returns the hiding of a session, whose row may be nil.
func newHiding(run dialect.Runner, row *session.Row) *hiding {
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
	return dialect.Query(ctx, h.run, txn.ReadEntryMeta, txn.PairRows(map[string][]string{h.session: unread}), nil, dialect.EachRow(txn.ScanMeta, func(e *session.Entry) {
		h.heads[e.Key] = e
	}))
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
func hideRange(ctx context.Context, run dialect.Runner, page *session.StateRange) (err error) {
	if n := len(page.Entries); n > 0 {
		page.Last = page.Entries[n-1].Key
	}
	hide := newHiding(run, page.Row)
	if page.Entries, err = hide.shown(ctx, page.Entries); err == nil {
		page.Turns, err = hide.shownTurns(ctx, page.Turns)
	}
	return err
}
