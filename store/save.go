// Save: everything a group of batches changes, written in the order of
// session.Changes' fields and sent together with the commit.

package store

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/session"
)

// Save implements session.Tx. On Postgres the statements may still be queued
// when it returns: they go out with the next Load or with the commit, and
// Update returns their error.
func (t *tx) Save(ctx context.Context, c *session.Changes) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.guess != nil {
		if err := t.compare(c); err != nil {
			return err
		}
	}
	if t.memory != nil {
		t.saved = append(t.saved, c)
	}
	grants := make([][]any, len(c.Grants))
	for i, g := range c.Grants {
		values, err := grantValues(g)
		if err != nil {
			return err
		}
		grants[i] = values
	}
	t.saveSessions(c)
	t.list(t.known(saveStreams, updateStreams), each(c.Streams, streamValues), nil)
	t.list(pruneRecords, each(c.Prune, func(p session.StreamCut) []any {
		return []any{p.Stream.Session, p.Stream.Outbox, clamp(p.Through)}
	}), nil)
	t.list(insertRecords, each(c.Records, func(r session.StreamRecord) []any { return recordValues(&r) }), nil)
	t.list(insertEvents, packed(c.Events, insertEvents, eventValues), nil)
	t.purge(c)
	t.list(dropEntries, pairs(c.DropEntries), nil)
	t.saveEntries(c.Entries)
	t.list(growEntries, each(c.Grown, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.TextLen), int64(e.Grown)}
	}), nil)
	t.list(saveTurns, each(c.Turns, turnValues), nil)
	t.list(insertGrants, grants, nil)
	t.saveRotations(c.Rotate)
	for _, r := range c.Revoke {
		target, tail := split(r.ID)
		if capability.IsSpace(target) {
			t.run.Queue(revokeAcross, nil, []any{target, tail, r.At, r.By}, nil)
			continue
		}
		t.run.Queue(revokeSubtree, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
	t.dropState(c.DropState)
	return t.saveAudit(ctx, c.Audit)
}

func (t *tx) saveSessions(c *session.Changes) {
	var claims [][]any
	for _, s := range c.Sessions {
		if was := t.before[s.ID]; was.space == "" && s.Space != "" && s.External != "" {
			claims = append(claims, []any{s.Space, s.External, s.ID})
		}
	}
	t.list(t.known(saveSessions, updateSessions), each(c.Sessions, sessionValues), nil)
	t.list(claimExternals, claims, nil)
	for _, e := range c.Events {
		if t.moved == nil {
			t.moved = map[string]uint64{}
		}
		t.moved[e.Session] = max(t.moved[e.Session], e.Cursor)
	}
	for _, s := range c.Sessions {
		// A later Save of the same transaction must not claim again.
		if t.before != nil {
			t.before[s.ID] = before{space: s.Space, external: s.External}
		}
	}
}

// known is the statement for rows that a guess says are there.
func (t *tx) known(save, update *Statement) *Statement {
	if t.guess != nil {
		return update
	}
	return save
}

// saveEntries inserts what is known to be new under its session's lock, which
// costs less than being ready for either.
func (t *tx) saveEntries(entries []*session.Entry) {
	fresh, others := make([]*session.Entry, 0, len(entries)), make([]*session.Entry, 0, len(entries))
	for _, e := range entries {
		if _, absent := t.absent[e.Session][e.Key]; absent {
			fresh = append(fresh, e)
			delete(t.absent[e.Session], e.Key) // a later Save of the same transaction finds it there
		} else {
			others = append(others, e)
		}
	}
	t.list(insertEntries, packed(fresh, insertEntries, entryValues), nil)
	t.list(saveEntries, packed(others, saveEntries, entryValues), nil)
}

// purge takes payloads out of events that are there. One that touches no event,
// because they were trimmed, still drops an entry.
func (t *tx) purge(c *session.Changes) {
	if slices.ContainsFunc(c.Events, func(e *session.Event) bool { return e.Method == session.MethodPurge }) {
		t.run.Erase()
	}
	var whole [][]any
	for _, p := range c.Purge {
		if p.Payload == nil {
			whole = append(whole, []any{p.Session, int64(p.Cursor)})
		} else {
			t.run.Queue(purgeWithin, nil, []any{p.Session, int64(p.Cursor), p.Payload}, nil)
		}
	}
	t.list(purgeEvents, whole, nil)
}

// dropState leaves of deleted sessions their row, the chain of their log and
// their refs.
func (t *tx) dropState(ids []string) {
	if len(ids) == 0 {
		return
	}
	t.run.Erase()
	t.list(dropState, texts(ids), nil)
	t.list(dropTurns, texts(ids), nil)
	t.list(purgePayloads, texts(ids), nil)
	t.list(dropExternals, texts(ids), nil)
}

// each makes the list of items' values.
func each[T any](items []T, values func(T) []any) [][]any {
	list := make([][]any, len(items))
	for i, item := range items {
		list[i] = values(item)
	}
	return list
}

// packed is each for the many rows of s, which share one piece of memory.
func packed[T any](items []T, s *Statement, values func(to []any, item T) []any) [][]any {
	list, room := make([][]any, len(items)), make([]any, 0, len(items)*len(s.Columns))
	for i, item := range items {
		from := len(room)
		room = values(room, item)
		list[i] = room[from:len(room):len(room)]
	}
	return list
}
