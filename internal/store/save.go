// Save: all changes of a group of batches, written in the order of session.Changes' fields and sent
// together with the commit.

package store

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Save implements session.Tx. On Postgres the statements may still be queued when it returns: they
// are sent with the next Load or with the commit, and Update returns their error.
func (t *tx) Save(ctx context.Context, c *session.Changes) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	fresh, others := t.splitEntries(c)
	grants := make([][]any, len(c.Grants))
	for i, g := range c.Grants {
		values, err := grantValues(g)
		if err != nil {
			return err
		}
		grants[i] = values
	}
	t.keepBefore(c) // by what the sessions' rows were
	t.saveSessions(c)
	t.queueList(saveStreams, mapRows(c.Streams, streamValues), nil)
	t.queueList(pruneRecords, mapRows(c.Prune, func(p session.StreamPrune) []any {
		return []any{p.Stream.Session, p.Stream.Outbox, clamp(p.Through)}
	}), nil)
	t.queueList(insertRecords, mapRows(c.Records, func(r session.StreamRecord) []any { return recordValues(&r) }), nil)
	t.queueList(insertEvents, bufferedRows(t, c.Events, insertEvents, eventValues), nil)
	t.purge(c)
	t.dropReverted(c.DropReverted)
	t.queueList(dropEntries, pairRows(c.DropEntries), nil)
	t.queueList(dropBefore, pairRows(c.DropBefore), nil)
	t.queueList(saveBefore, mapRows(c.Before, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Schema), int64(e.TextLen), int64(e.LastAppend), e.Sum[:], int64(e.Since), int64(e.Ord.At), int64(e.Ord.Index), nullable(e.Payload), int64(0)}
	}), nil)
	t.queueList(dropEdits, pairRows(c.DropEdits), nil)
	t.queueList(insertEntries, bufferedRows(t, fresh, insertEntries, entryValues), nil)
	t.queueList(saveEntries, bufferedRows(t, others, saveEntries, entryValues), nil)
	t.queueList(updateAppended, mapRows(c.Appended, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.TextLen), int64(e.LastAppend)}
	}), nil)
	t.queueList(updateEdited, mapRows(c.Edited, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Schema), e.Sum[:], int64(e.Edited)}
	}), nil)
	t.queueList(saveEdits, mapRows(c.Edited, func(e *session.Entry) []any { return []any{e.Session, e.Key, e.Edits} }), nil)
	t.queueList(saveClaims, mapRows(c.Claims, claimValues), nil)
	t.queueList(saveTurns, mapRows(c.Turns, turnValues), nil)
	t.queueList(saveRequests, mapRows(c.Requests, requestValues), nil)
	t.queueList(dropRequests, pairRows(c.DropRequests), nil)
	t.queueList(insertGrants, grants, nil)
	t.queueList(insertPublic, mapRows(c.Public, func(p capability.PublicShare) []any { return shareValues(&p) }), nil)
	t.queueList(insertManaged, mapRows(c.Managed, managedValues), nil)
	t.queueList(chargeGrants, mapRows(c.Charges, func(ch session.Charge) []any {
		target, tail := splitRef(ch.Ref)
		return []any{target, tail, ch.Bytes}
	}), nil)
	t.saveRotations(c.Rotate)
	for _, r := range c.Revoke {
		target, tail := splitRef(r.ID)
		if capability.IsSpace(target) {
			t.run.Queue(revokeSpaceSubtree, nil, []any{target, tail, r.At, r.By}, nil)
			continue
		}
		t.run.Queue(revokeSubtree, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
	t.dropState(c.DropState)
	return t.saveAudit(ctx, c.Audit)
}

func (t *tx) saveSessions(c *session.Changes) {
	var claims, origins, parents [][]any
	for _, s := range c.Sessions {
		if was := t.prior[s.ID]; was.space != "" || s.Space == "" {
			continue // it is no new one
		}
		if s.External != "" {
			claims = append(claims, []any{s.Space, s.External, s.ID})
		}
		if o := s.Origin; o.Session != "" {
			origins = append(origins, []any{s.ID, o.Session, int64(o.Cursor), o.Message})
		}
		if p := s.Parent; p.Session != "" {
			parents = append(parents, []any{s.ID, p.Session, p.Key, p.Above})
		}
	}
	t.queueList(saveSessions, mapRows(c.Sessions, sessionValues), nil)
	t.queueList(saveOrigins, origins, nil)
	t.queueList(saveParents, parents, nil)
	t.saveReverts(c.Sessions)
	t.saveForks(c.Sessions)
	slices.SortFunc(claims, func(a, b []any) int { // in order, or two transactions could deadlock
		return cmp.Or(cmp.Compare(a[0].(string), b[0].(string)), cmp.Compare(a[1].(string), b[1].(string)))
	})
	t.queueList(claimExternals, claims, nil)
	for _, e := range c.Events {
		if t.advanced == nil {
			t.advanced = map[string]uint64{}
		}
		t.advanced[e.Session] = max(t.advanced[e.Session], e.Cursor)
	}
	for _, s := range c.Sessions {
		// A later Save of the same transaction must not claim again.
		if t.prior != nil {
			t.prior[s.ID] = priorOf(s)
		}
	}
}

// splitEntries separates entries known to be absent under their session's lock, which are inserted,
// from entries that may exist: upserts cost more. Inserted entries are no longer absent. An entry
// that the same Save drops first may exist after all.
func (t *tx) splitEntries(c *session.Changes) (fresh, others []*session.Entry) {
	for from, to := 0, 0; from < len(c.Entries); from = to {
		id := c.Entries[from].Session
		absent := t.absent[id]
		left := absent[:0]
		for to = from; to < len(c.Entries) && c.Entries[to].Session == id; to++ {
			e := c.Entries[to]
			for len(absent) > 0 && absent[0] < e.Key {
				left, absent = append(left, absent[0]), absent[1:]
			}
			_, dropped := slices.BinarySearch(c.DropEntries[id], e.Key)
			if len(absent) == 0 || absent[0] != e.Key || dropped {
				others = append(others, e)
				continue
			}
			if fresh == nil {
				fresh = make([]*session.Entry, 0, len(c.Entries)-to)
			}
			fresh, absent = append(fresh, e), absent[1:]
		}
		if left = append(left, absent...); t.absent != nil {
			t.absent[id] = left
		}
	}
	return fresh, others
}

// purge removes payloads from existing events. A purge that touches no event, because they were
// trimmed, still drops an entry.
func (t *tx) purge(c *session.Changes) {
	var keys [][]any
	for _, e := range c.Events {
		if e.Method == session.MethodPurge {
			keys = append(keys, []any{e.Session, e.Key})
		}
	}
	if keys != nil {
		t.run.Erase()
		t.queueList(lockIndexes, keys, nil)
		t.queueList(dropWords, keys, nil)
	}
	t.releaseBytes(mapRows(c.Purge, func(p session.PurgedEvent) []any {
		return []any{p.Session, int64(p.Cursor), int64(len(p.Payload))}
	}))
	var whole [][]any
	for _, p := range c.Purge {
		if p.Payload == nil {
			whole = append(whole, []any{p.Session, int64(p.Cursor)})
		} else {
			t.run.Queue(replacePayload, nil, []any{p.Session, int64(p.Cursor), p.Payload}, nil)
		}
	}
	t.queueList(dropPayloads, whole, nil)
}

// dropState removes everything of deleted sessions except their row, the chain of their log and
// their refs.
func (t *tx) dropState(ids []string) {
	if len(ids) == 0 {
		return
	}
	t.run.Erase()
	t.queueList(dropState, textRows(ids), nil)
	t.queueList(dropAllEdits, textRows(ids), nil)
	t.queueList(dropIndex, textRows(ids), nil)
	t.queueList(dropTurns, textRows(ids), nil)
	t.queueList(dropAllRequests, textRows(ids), nil)
	t.queueList(dropAllWebhooks, textRows(ids), nil)
	t.queueList(releaseAbove, textRows(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return t.prior[id].above == "" })), nil)
	t.queueList(dropAllPayloads, textRows(ids), nil)
	t.queueList(dropExternals, textRows(ids), nil)
	t.queueList(dropAllRefusals, textRows(ids), nil)
}

// mapRows returns the list of items' values.
func mapRows[T any](items []T, values func(T) []any) [][]any {
	list := make([][]any, len(items))
	for i, item := range items {
		list[i] = values(item)
	}
	return list
}

// bufferedRows is mapRows for long lists of s, in memory that is reused after the transaction.
func bufferedRows[T any](t *tx, items []T, s *Statement, values func(to []any, item T) []any) [][]any {
	if len(items) == 0 {
		return nil
	}
	p := rowBuffers.Get().(*rowBuffer)
	t.buffers = append(t.buffers, p)
	p.list = slices.Grow(p.list[:0], len(items))[:len(items)]
	room := slices.Grow(p.values[:0], len(items)*len(s.Columns)) // which is not reallocated
	for i, item := range items {
		from := len(room)
		room = values(room, item)
		p.list[i] = room[from:len(room):len(room)]
	}
	p.values = room
	return p.list
}

// rowBuffer has space for the values of many rows.
type rowBuffer struct {
	list   [][]any
	values []any
}

var rowBuffers = sync.Pool{New: func() any { return new(rowBuffer) }}

// releaseBuffers returns the memory of bufferedRows to the pool at the end of the transaction.
func (t *tx) releaseBuffers() {
	for _, p := range t.buffers {
		clear(p.values) // so that it retains no other memory
		rowBuffers.Put(p)
	}
	t.buffers = nil
}
