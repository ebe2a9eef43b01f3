// Save: all changes of a group of batches, written in the order of session.Changes' fields and sent
// together with the commit.

package txn

import (
	"cmp"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

var (
	dropIndex = dialect.Both("t", `DELETE FROM search_sessions WHERE session IN (SELECT a FROM {w})`)

	// lockIndexes waits for those who add to indexes; on SQLite nobody does meanwhile.
	lockIndexes = dialect.PostgresOnly("tt", `SELECT 1 FROM {w} CROSS JOIN search_sessions i WHERE i.session = w.a ORDER BY i.session FOR UPDATE OF i`)
	DropWords   = dialect.Both("tt", `DELETE FROM search_rows WHERE (session, key) IN (SELECT a, b FROM {w})`)

	insertPublic = dialect.Both("ttttti", `
		INSERT INTO public_shares (id, session, owner_tail, share_tail, reader_tail, created) {values} ON CONFLICT (id) DO NOTHING`)
	dropAllRefusals = dialect.Both("t", `DELETE FROM share_refusals WHERE session IN (SELECT a FROM {w})`)
	dropAllWebhooks = dialect.Both("t", `DELETE FROM webhooks WHERE session IN (SELECT a FROM {w})`)
	dropRequests    = dialect.Both("tt", `DELETE FROM requests WHERE (session, id) IN (SELECT a, b FROM {w})`)
	dropAllRequests = dialect.Both("t", `DELETE FROM requests WHERE session IN (SELECT a FROM {w})`)
)

// Save implements session.Tx. On Postgres the statements may still be queued when it returns: they
// are sent with the next Load or with the commit, and Update returns their error.
func (t *Tx) Save(ctx context.Context, c *session.Changes) error {
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
	t.QueueList(saveStreams, MapRows(c.Streams, streamValues), nil)
	t.QueueList(pruneRecords, MapRows(c.Prune, func(p session.StreamPrune) []any {
		return []any{p.Stream.Session, p.Stream.Outbox, Clamp(p.Through)}
	}), nil)
	t.QueueList(insertRecords, MapRows(c.Records, func(r session.StreamRecord) []any { return recordValues(&r) }), nil)
	t.QueueList(insertEvents, bufferedRows(t, c.Events, insertEvents, eventValues), nil)
	t.purge(c)
	t.dropReverted(c.DropReverted)
	t.QueueList(dropEntries, PairRows(c.DropEntries), nil)
	t.QueueList(dropBefore, PairRows(c.DropBefore), nil)
	t.QueueList(saveBefore, MapRows(c.Before, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Schema), int64(e.TextLen), int64(e.LastAppend), e.Sum[:], int64(e.Since), int64(e.Ord.At), int64(e.Ord.Index), dialect.Nullable(e.Payload), int64(0)}
	}), nil)
	t.QueueList(dropEdits, PairRows(c.DropEdits), nil)
	t.QueueList(insertEntries, bufferedRows(t, fresh, insertEntries, entryValues), nil)
	t.QueueList(saveEntries, bufferedRows(t, others, saveEntries, entryValues), nil)
	t.QueueList(updateAppended, MapRows(c.Appended, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.TextLen), int64(e.LastAppend)}
	}), nil)
	t.QueueList(updateEdited, MapRows(c.Edited, func(e *session.Entry) []any {
		return []any{e.Session, e.Key, int64(e.Cursor), int64(e.Schema), e.Sum[:], int64(e.Edited)}
	}), nil)
	t.QueueList(saveEdits, MapRows(c.Edited, func(e *session.Entry) []any { return []any{e.Session, e.Key, e.Edits} }), nil)
	t.QueueList(saveClaims, MapRows(c.Claims, claimValues), nil)
	t.QueueList(saveTurns, MapRows(c.Turns, turnValues), nil)
	t.QueueList(saveRequests, MapRows(c.Requests, requestValues), nil)
	t.QueueList(dropRequests, PairRows(c.DropRequests), nil)
	t.QueueList(insertGrants, grants, nil)
	t.QueueList(insertPublic, MapRows(c.Public, func(p capability.PublicShare) []any { return ShareValues(&p) }), nil)
	t.QueueList(insertManaged, MapRows(c.Managed, managedValues), nil)
	t.QueueList(chargeGrants, MapRows(c.Charges, func(ch session.Charge) []any {
		target, tail := SplitRef(ch.Ref)
		return []any{target, tail, ch.Bytes}
	}), nil)
	t.saveRotations(c.Rotate)
	for _, r := range c.Revoke {
		target, tail := SplitRef(r.ID)
		if capability.IsSpace(target) {
			t.Run.Queue(revokeSpaceSubtree, nil, []any{target, tail, r.At, r.By}, nil)
			continue
		}
		t.Run.Queue(revokeSubtree, nil, []any{target, tail, r.At, int64(r.Cut), r.By}, nil)
	}
	t.dropState(c.DropState)
	return t.SaveAudit(ctx, c.Audit)
}

func (t *Tx) saveSessions(c *session.Changes) {
	var claims, origins, parents [][]any
	for _, s := range c.Sessions {
		if was := t.Prior[s.ID]; was.Space != "" || s.Space == "" {
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
	t.QueueList(saveSessions, MapRows(c.Sessions, sessionValues), nil)
	t.QueueList(saveOrigins, origins, nil)
	t.QueueList(saveParents, parents, nil)
	t.saveReverts(c.Sessions)
	t.saveForks(c.Sessions)
	slices.SortFunc(claims, func(a, b []any) int { // in order, or two transactions could deadlock
		return cmp.Or(cmp.Compare(a[0].(string), b[0].(string)), cmp.Compare(a[1].(string), b[1].(string)))
	})
	t.QueueList(claimExternals, claims, nil)
	for _, e := range c.Events {
		if t.advanced == nil {
			t.advanced = map[string]uint64{}
		}
		t.advanced[e.Session] = max(t.advanced[e.Session], e.Cursor)
	}
	for _, s := range c.Sessions {
		// A later Save of the same transaction must not claim again.
		if t.Prior != nil {
			t.Prior[s.ID] = priorOf(s)
		}
	}
}

// splitEntries separates entries known to be absent under their session's lock, which are inserted,
// from entries that may exist: upserts cost more. Inserted entries are no longer absent. An entry
// that the same Save drops first may exist after all.
func (t *Tx) splitEntries(c *session.Changes) (fresh, others []*session.Entry) {
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
func (t *Tx) purge(c *session.Changes) {
	var keys [][]any
	for _, e := range c.Events {
		if e.Method == session.MethodPurge {
			keys = append(keys, []any{e.Session, e.Key})
		}
	}
	if keys != nil {
		t.Run.Erase()
		t.QueueList(lockIndexes, keys, nil)
		t.QueueList(DropWords, keys, nil)
	}
	t.releaseBytes(MapRows(c.Purge, func(p session.PurgedEvent) []any {
		return []any{p.Session, int64(p.Cursor), int64(len(p.Payload))}
	}))
	var whole [][]any
	for _, p := range c.Purge {
		if p.Payload == nil {
			whole = append(whole, []any{p.Session, int64(p.Cursor)})
		} else {
			t.Run.Queue(replacePayload, nil, []any{p.Session, int64(p.Cursor), p.Payload}, nil)
		}
	}
	t.QueueList(DropPayloads, whole, nil)
}

// dropState removes everything of deleted sessions except their row, the chain of their log and
// their refs.
func (t *Tx) dropState(ids []string) {
	if len(ids) == 0 {
		return
	}
	t.Run.Erase()
	t.QueueList(dropState, TextRows(ids), nil)
	t.QueueList(dropAllEdits, TextRows(ids), nil)
	t.QueueList(dropIndex, TextRows(ids), nil)
	t.QueueList(dropTurns, TextRows(ids), nil)
	t.QueueList(dropAllRequests, TextRows(ids), nil)
	t.QueueList(dropAllWebhooks, TextRows(ids), nil)
	t.QueueList(releaseAbove, TextRows(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return t.Prior[id].above == "" })), nil)
	t.QueueList(dropAllPayloads, TextRows(ids), nil)
	t.QueueList(dropExternals, TextRows(ids), nil)
	t.QueueList(dropAllRefusals, TextRows(ids), nil)
}

// ShareValues are the values of a public share's row.
func ShareValues(p *capability.PublicShare) []any {
	_, owner := SplitRef(p.Owner)
	_, share := SplitRef(p.Share)
	_, reader := SplitRef(p.Reader)
	return []any{p.ID, p.Session, owner, share, reader, p.Created}
}
