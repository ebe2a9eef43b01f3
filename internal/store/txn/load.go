// Load: the rows that a group of batches needs, locked and read in one round trip.

package txn

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/ledger"
)

// Tx is a session.Tx on either database.
type Tx struct {
	Run      dialect.Runner
	existing *existingSessions
	loaded   bool                // the first Load, which may lock spaces, is done
	locked   bool                // sessions were locked, by the first or a later Load
	Now      int64               // of the Load that locked sessions, else of the first
	Prior    map[string]PriorRow // session rows as they were loaded
	absent   map[string][]string // session → keys found to be absent, in order
	advanced map[string]uint64   // sessions whose log grew, with their cursor, to be announced after the commit
	deltas   []delta             // of the current Load, in any order

	buffers []*rowBuffer // in use by queued statements
}

// PriorRow has the columns of a session's loaded row that Save needs.
type PriorRow struct {
	Space, External string
	above           string
	revert          session.Revert
	compaction      session.Compaction
	left            *session.Left
	forking         *session.Forking
	copies          *session.Copies
}

var ReadUnordered = dialect.Both("", `
		SELECT e.key, e.cursor FROM entries e {by entries_unordered} WHERE e.session = {1} AND e.ord = 0 ORDER BY e.key`)

func priorOf(r *session.Row) PriorRow {
	return PriorRow{Space: r.Space, External: r.External, above: r.Parent.Above, revert: r.Revert, compaction: r.Compaction, left: r.Left, forking: r.Forking, copies: r.Copies}
}

// Load implements session.Tx.
func (t *Tx) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	looking := w.Below != nil && len(w.Sessions) == 0 // for what is to be locked next
	if t.loaded && len(w.Spaces)+len(w.ExclusiveSpaces) > 0 || t.locked && len(w.Sessions) > 0 {
		return nil, fault.Internal.With("load: spaces can be locked only by a transaction's first load, and sessions only by one")
	}
	out := &session.Rows{
		Sessions:      map[string]*session.Row{},
		Streams:       map[session.StreamKey]*ledger.Stream{},
		Records:       map[session.StreamKey][]*ledger.Record{},
		Grants:        map[string]*capability.Grant{},
		Entries:       map[string]map[string]*session.Entry{},
		Turns:         map[string]map[string]*session.Turn{},
		Deltas:        map[string]map[string][]byte{},
		Logs:          map[string][]*session.Event{},
		PayloadEvents: map[string][]*session.Event{},
		External:      map[session.ExternalID]string{},
		Trees:         map[string]map[string]uint64{},
		Others:        map[string]*session.Row{},
		Below:         map[string][]string{},
	}
	locked := t.lock(w, out)
	if !t.loaded || len(locked) > 0 {
		// After the locks: transactions that they waited for come before this time.
		t.Run.QueueNow(dialect.SetClock(&t.Now))
	}
	t.readLedger(w, out)
	t.readManaged(w, out)
	t.readBelow(w, out)
	t.readAuthority(w, out)
	t.readState(w, out)
	t.readLogs(w, out)
	t.readPayloadEvents(w, out)
	var without *UnorderedError
	t.findUnordered(w.Ordered, &without)
	if err := t.Run.Flush(ctx); err != nil {
		return nil, err
	}
	if without != nil {
		return nil, without
	}
	if err := t.readForks(ctx, w, out); err != nil {
		return nil, err
	}
	if err := t.findMoreFreeKeys(ctx, w.FreeKeys, out); err != nil {
		return nil, err
	}
	for _, row := range out.Sessions {
		t.Now = max(t.Now, row.Updated) // time does not run backwards along a log
	}
	t.loaded, t.locked = t.loaded || !looking, t.locked || len(locked) > 0
	if err := t.existing.verify(locked, out.Sessions); err != nil {
		return nil, err
	}
	if t.Prior == nil {
		t.Prior = make(map[string]PriorRow, len(out.Sessions))
		t.absent = map[string][]string{}
	}
	for id, row := range out.Sessions {
		t.Prior[id] = priorOf(row)
	}
	for id, keys := range w.EntryMeta {
		absent := t.absent[id]
		for _, key := range keys {
			if out.Entries[id][key] == nil {
				absent = append(absent, key)
			}
		}
		slices.Sort(absent)
		t.absent[id] = slices.Compact(absent)
	}
	for key, records := range out.Records {
		out.Records[key] = sortRecords(records)
	}
	for _, log := range out.PayloadEvents {
		slices.SortFunc(log, func(a, b *session.Event) int { return cmp.Compare(a.Cursor, b.Cursor) })
	}
	for _, log := range out.Logs {
		slices.SortFunc(log, func(a, b *session.Event) int { return cmp.Compare(a.Cursor, b.Cursor) })
	}
	slices.SortFunc(t.deltas, func(a, b delta) int { return cmp.Compare(a.cursor, b.cursor) })
	for _, d := range t.deltas {
		put(out.Deltas, d.session, d.key, append(out.Deltas[d.session][d.key], d.text...))
	}
	t.deltas = nil
	out.Now = t.Now
	return out, nil
}

// lock queues the locks: spaces in id order, then sessions in id order. It returns the sessions.
func (t *Tx) lock(w *session.ReadSet, out *session.Rows) (sessions []string) {
	exclusive := slices.Clone(w.ExclusiveSpaces)
	for _, x := range w.External {
		exclusive = append(exclusive, x.Space)
	}
	spaces := slices.Concat(w.Spaces, exclusive)
	slices.Sort(spaces)
	for _, space := range slices.Compact(spaces) {
		how := shareSpace
		if slices.Contains(exclusive, space) {
			how = LockSpace
		}
		t.Run.Queue(how, nil, []any{space}, nil)
	}
	if len(w.Sessions) == 0 {
		return nil
	}
	ids := slices.Clone(w.Sessions)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	t.QueueList(ensureSessions, TextRows(t.existing.unknown(ids)), nil)
	t.Run.Queue(LockSessions, TextRows(ids), nil, SessionsByID(out.Sessions))
	return ids
}

func (t *Tx) readLedger(w *session.ReadSet, out *session.Rows) {
	t.QueueList(ReadStreams, StreamRows(w.Streams), StreamsByKey(out.Streams))
	var ranges, searches, whole [][]any
	wanted := map[session.StreamKey]map[string]bool{} // by stream, a set of op ids
	for _, r := range w.Records {
		if r.To != 0 {
			ranges = append(ranges, []any{r.Stream.Session, r.Stream.Outbox, Clamp(r.From), Clamp(r.To)})
		}
		for _, op := range r.Ops {
			if wanted[r.Stream] == nil {
				wanted[r.Stream] = map[string]bool{}
			}
			wanted[r.Stream][op] = true
		}
	}
	for key, ops := range wanted {
		if len(ops) > maxSearchedOps {
			whole = append(whole, []any{key.Session, key.Outbox, int64(0), int64(math.MaxInt64)})
			continue
		}
		for op := range ops {
			searches = append(searches, []any{key.Session, key.Outbox, op})
		}
	}
	t.QueueList(readRecords, ranges, func(row dialect.Scanner) error {
		key, r, err := scanRecord(row)
		if err == nil {
			out.Records[key] = append(out.Records[key], r)
		}
		return err
	})
	held := func(row dialect.Scanner) error {
		key, r, err := scanRecord(row)
		if err != nil {
			return err
		}
		holds := func(o ledger.Outcome) bool { return wanted[key][o.OpID] }
		if slices.ContainsFunc(r.Outcomes, holds) {
			out.Records[key] = append(out.Records[key], r)
		}
		return nil
	}
	t.QueueList(searchRecords, searches, held)
	t.QueueList(readRecords, whole, held)
}

// maxSearchedOps is the number of ops of a stream up to which each is searched for by itself, which
// scans every record of the stream; for more, all records are read once.
const maxSearchedOps = 8

func (t *Tx) readAuthority(w *session.ReadSet, out *session.Rows) {
	// A ref that several statements return is kept as one row: the first.
	keep := func(g *capability.Grant) {
		if out.Grants[g.ID] == nil {
			out.Grants[g.ID] = g
		}
	}
	grant := dialect.EachRow(ScanRef, keep)
	t.QueueList(ReadGrants, RefRows(w.Grants), grant)
	t.QueueList(ReadLineages, RefRows(w.Lineages), grant)
	t.QueueList(readTurnRefs, TextRows(w.CountedTurns), grant)
	t.QueueList(ReadLineages, RefRows(countedGrants(w)), grant)
	for _, root := range w.Trees {
		target, tail := SplitRef(root)
		t.Run.Queue(countTree, nil, []any{target, tail}, func(row dialect.Scanner) error {
			var target string
			var n int64
			err := row.Scan(&target, &n)
			put(out.Trees, root, target, uint64(n))
			return err
		})
		touched := func(row dialect.Scanner) error {
			var id string
			err := row.Scan(&id)
			put(out.Trees, root, id, out.Trees[root][id])
			return err
		}
		t.Run.Queue(readTreeReached, nil, []any{target, tail}, touched)
		if !capability.IsSpace(target) {
			continue
		}
		t.Run.Queue(readTreeManaged, nil, []any{target, tail}, touched)
	}
	var externals [][]any
	for _, x := range w.External {
		_, tail := SplitRef(x.SpaceRef)
		externals = append(externals, []any{x.Space, tail, x.ID})
	}
	t.QueueList(readExternals, externals, func(row dialect.Scanner) error {
		var space, tail, external, id string
		err := row.Scan(&space, &tail, &external, &id)
		if id != "" {
			out.External[session.ExternalID{Space: space, SpaceRef: JoinRef(space, tail), ID: external}] = id
		}
		return err
	})
}

func (t *Tx) readState(w *session.ReadSet, out *session.Rows) {
	t.QueueList(ReadEntryMeta, PairRows(w.EntryMeta), dialect.EachRow(ScanMeta, func(e *session.Entry) { put(out.Entries, e.Session, e.Key, e) }))
	// After the entries without payloads: where both are in the read set, the one with the payload
	// stays.
	entry := func(row dialect.Scanner) error {
		e, err := ScanEntry(row)
		if err == nil {
			err = countBytes(w, out, dialect.RowSize(e.Payload))
		}
		if err == nil {
			put(out.Entries, e.Session, e.Key, e)
		}
		return err
	}
	t.queueBounded(w, ReadEntries, PairRows(w.Entries), entry)
	ranges := PairRows(w.Prefixes)
	for i, r := range ranges {
		ranges[i] = append(r, session.PrefixEnd(*r[1].(*string)))
	}
	t.queueBounded(w, readRanges, ranges, entry)

	if len(w.LapsedClaims) > 0 {
		t.Run.Queue(readLapsedClaims, TextRows(w.LapsedClaims), []any{w.LapsedBy, int64(session.MaxLapses)}, dialect.EachRow(ScanMeta, func(e *session.Entry) {
			put(out.Entries, e.Session, e.Key, e)
		}))
	}
	if w.CountedClaims != "" {
		out.ClaimCounts = map[string]int{}
		t.Run.Queue(countClaims, nil, []any{w.CountedClaims, w.LapsedBy}, func(row dialect.Scanner) error {
			var ref string
			var n int64
			err := row.Scan(&ref, &n)
			out.ClaimCounts[refOf(w.CountedClaims, ref)] = int(n)
			return err
		})
	}
	for id, after := range w.FirstMessage {
		t.Run.Queue(ListByPut, nil, []any{id, "message", int64(after.Ord.At), Clamp(after.Ord.Index), after.Key, int64(1)}, dialect.EachRow(ScanMeta, func(e *session.Entry) {
			put(out.Entries, e.Session, e.Key, e)
		}))
	}
	if f := w.FreeKeys; f != nil {
		t.Run.Queue(readFreeKeys, nil, []any{f.Session, f.After, f.Below, f.Now, int64(f.Limit), int64(f.Passed)}, dialect.Collect(&out.FreeKeys, ScanMeta))
	}

	turn := dialect.EachRow(ScanTurn, func(u *session.Turn) {
		if out.Turns[u.Session][u.Message] == nil {
			put(out.Turns, u.Session, u.Message, u)
		}
	})
	t.QueueList(readOpenTurns, TextRows(w.Turns), turn)
	t.QueueList(readStreamingTurns, TextRows(w.StreamingTurns), turn)
	for _, id := range w.OpenOrphans {
		t.Run.Queue(readOpenOrphans, nil, []any{id, int64(session.MaxOrphans)}, turn)
	}
	t.QueueList(ReadTurns, PairRows(w.TurnsOf), turn)
	if len(w.Requests) > 0 {
		out.Requests = map[string][]*session.OpenRequest{}
	}
	t.QueueList(ReadRequests, TextRows(w.Requests), dialect.EachRow(ScanRequest, func(r *session.OpenRequest) {
		out.Requests[r.Session] = append(out.Requests[r.Session], r)
	}))
}

// findMoreFreeKeys reports in out whether a search for free keys ended at its bound. One that found
// as many as it was to find continues after the last.
func (t *Tx) findMoreFreeKeys(ctx context.Context, f *session.FreeKeys, out *session.Rows) error {
	if f == nil || len(out.FreeKeys) >= f.Limit {
		return nil
	}
	return dialect.Query(ctx, t.Run, NthKey, nil, []any{f.Session, f.After, f.Below, int64(f.Passed)}, func(dialect.Scanner) error {
		out.MoreFreeKeys = true
		return nil
	})
}

func (t *Tx) readLogs(w *session.ReadSet, out *session.Rows) {
	var deltas [][]any
	for id, parts := range w.Deltas {
		first := uint64(math.MaxUint64)
		for _, after := range parts {
			first = min(first, after)
		}
		if len(parts) > 0 {
			deltas = append(deltas, []any{id, Clamp(first)})
		}
	}
	t.queueBounded(w, readDeltas, deltas, func(row dialect.Scanner) error {
		d, err := scanDelta(row)
		if err == nil {
			err = countBytes(w, out, d.size) // also of records that are skipped
		}
		if err != nil {
			return err
		}
		if after, wanted := w.Deltas[d.session][d.key]; wanted && d.cursor > after {
			t.deltas = append(t.deltas, d)
		}
		return nil
	})
	var logs [][]any
	for id, to := range w.Logs {
		logs = append(logs, []any{id, Clamp(to)})
	}
	t.queueBounded(w, readLogs, logs, func(row dialect.Scanner) error {
		e, err := ScanEvent(row)
		if err == nil {
			err = countBytes(w, out, dialect.RowSize(e.Payload))
		}
		if err == nil {
			out.Logs[e.Session] = append(out.Logs[e.Session], e)
		}
		return err
	})
}

// readPayloadEvents queues the search for the events that hold payloads of keys.
func (t *Tx) readPayloadEvents(w *session.ReadSet, out *session.Rows) {
	var list [][]any
	for _, id := range sortedKeys(w.PayloadEvents) {
		list = append(list, []any{id, w.PayloadEvents[id], session.HeadOf(w.PayloadEvents[id])})
	}
	t.queueBounded(w, readPayloadEvents, list, func(row dialect.Scanner) error {
		var e session.Event
		var cursor int64
		err := row.Scan(&e.Session, &cursor, &e.Method, &e.Payload)
		if err == nil {
			err = countBytes(w, out, dialect.RowSize(e.Payload))
		}
		if e.Cursor = uint64(cursor); err == nil {
			out.PayloadEvents[e.Session] = append(out.PayloadEvents[e.Session], &e)
		}
		return err
	})
}

// countBytes adds to the bytes read; above the bound it ends the statement.
func countBytes(w *session.ReadSet, out *session.Rows, bytes int) error {
	if out.Bytes += bytes; w.MaxBytes > 0 && out.Bytes > w.MaxBytes {
		return dialect.ErrStopRows
	}
	return nil
}

// queueBounded queues a bounded statement, with the bound that is left.
func (t *Tx) queueBounded(w *session.ReadSet, s *dialect.Statement, list [][]any, each func(dialect.Scanner) error) {
	most := int64(math.MaxInt64)
	if w.MaxBytes > 0 {
		most = int64(w.MaxBytes)
	}
	if len(list) > 0 {
		t.Run.Queue(s, list, []any{most}, each)
	}
}

// QueueList queues a statement on a list, unless the list is empty.
func (t *Tx) QueueList(s *dialect.Statement, list [][]any, each func(dialect.Scanner) error) {
	if len(list) > 0 {
		t.Run.Queue(s, list, nil, each)
	}
}

// countedGrants returns the refs of Grants whose ancestors are needed too.
func countedGrants(w *session.ReadSet) (ids []string) {
	if len(w.CountedTurns) == 0 {
		return nil
	}
	for _, id := range w.Grants {
		if target, _ := SplitRef(id); slices.Contains(w.CountedTurns, target) {
			ids = append(ids, id)
		}
	}
	return ids
}

// sortRecords sorts records by their first seq and drops duplicates.
func sortRecords(records []*ledger.Record) []*ledger.Record {
	sort.Slice(records, func(i, j int) bool { return records[i].FirstSeq < records[j].FirstSeq })
	return slices.CompactFunc(records, func(a, b *ledger.Record) bool { return a.FirstSeq == b.FirstSeq })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// put sets m[a][b].
func put[V any](m map[string]map[string]V, a, b string, v V) {
	if m[a] == nil {
		m[a] = map[string]V{}
	}
	m[a][b] = v
}

// UnorderedError says that a session has entries without a place.
type UnorderedError struct{ Session string }

// findUnordered sets found to the first of some sessions that has entries without a place.
func (t *Tx) findUnordered(sessions []string, found **UnorderedError) {
	for _, id := range sessions {
		t.Run.Queue(ReadUnordered, nil, []any{id}, func(dialect.Scanner) error {
			if *found == nil {
				*found = &UnorderedError{id}
			}
			return dialect.ErrStopRows
		})
	}
}

func (e *UnorderedError) Error() string {
	return "store: session " + e.Session + " has entries without a place"
}
