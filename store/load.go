// Load: what a group of batches needs, locked and read in one round trip.

package store

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sort"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// tx is a session.Tx on either database.
type tx struct {
	run      Runner
	sessions *known
	loaded   bool                // the first Load was, with the locks on spaces
	locked   bool                // sessions were locked, by it or a later one
	now      int64               // of the Load that locked sessions, else of the first
	before   map[string]before   // session rows as they were loaded
	absent   map[string][]string // session → keys that were looked for and are not there, in order
	moved    map[string]uint64   // sessions whose log grew, with their cursor, to be announced after the commit
	deltas   []delta             // of the Load that runs, in any order

	held    []heldList               // what depends on the guess, not queued yet
	memory  *memory                  // nil where nothing is remembered
	guess   *guess                   // what it takes for granted; nil if it reads
	own     map[string]*recollection // of its sessions, taken out of memory
	saved   []*session.Changes       // by it, to be remembered
	packs   []*pack                  // in use by what is queued
	version int64                    // of what it writes
}

// before is what Save must know of a session's row as it was.
type before struct {
	space, external string
}

// Load implements session.Tx.
func (t *tx) Load(ctx context.Context, w *session.Want) (*session.Rows, error) {
	if t.loaded && len(w.Spaces)+len(w.Claims) > 0 || t.locked && len(w.Sessions) > 0 {
		return nil, fault.Internal.With("load: spaces can be locked only by a transaction's first load, and sessions only by one")
	}
	if t.guess != nil {
		if t.loaded {
			return nil, errWrong
		}
		if rows := t.recall(w); rows != nil {
			return rows, nil
		}
		t.guess = nil // it reads, then
	}
	out := &session.Rows{
		Sessions: map[string]*session.Row{},
		Streams:  map[session.StreamKey]*ledger.Stream{},
		Records:  map[session.StreamKey][]*ledger.Record{},
		Grants:   map[string]*capability.Grant{},
		Entries:  map[string]map[string]*session.Entry{},
		Turns:    map[string]map[string]*session.Turn{},
		Deltas:   map[string]map[string][]byte{},
		Logs:     map[string][]*session.Event{},
		Holders:  map[string][]*session.Event{},
		External: map[session.ExternalID]string{},
		Trees:    map[string]map[string]uint64{},
	}
	t.takeOut(w)
	locked := t.lock(w, out)
	if !t.loaded || len(locked) > 0 {
		// After the locks: what was waited for came before this.
		t.run.QueueNow(func(now, version int64) {
			t.now, t.version = now, version
			t.memory.heard(now)
		})
	}
	t.readLedger(w, out)
	t.readAuthority(w, out)
	t.readState(w, out)
	t.readLogs(w, out)
	t.readHolders(w, out)
	if err := t.run.Flush(ctx); err != nil {
		return nil, err
	}
	for _, row := range out.Sessions {
		t.now = max(t.now, row.Updated) // time does not run backwards along a log
	}
	t.loaded, t.locked = true, t.locked || len(locked) > 0
	for _, id := range w.Turns {
		t.own[id].hasOpenTurns()
	}
	if err := t.sessions.check(locked, out.Sessions); err != nil {
		return nil, err
	}
	if t.before == nil {
		t.before = make(map[string]before, len(out.Sessions))
		t.absent = map[string][]string{}
	}
	for id, row := range out.Sessions {
		t.before[id] = before{space: row.Space, external: row.External}
	}
	for id, keys := range w.Heads {
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
		out.Records[key] = inOrder(records)
	}
	for _, log := range out.Holders {
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
	out.Now = t.now
	return out, nil
}

// lock queues the locks: spaces in id order, then sessions in id order, which it
// returns.
func (t *tx) lock(w *session.Want, out *session.Rows) (sessions []string) {
	exclusive := slices.Clone(w.Claims)
	for _, x := range w.External {
		exclusive = append(exclusive, x.Space)
	}
	spaces := slices.Concat(w.Spaces, exclusive)
	slices.Sort(spaces)
	for _, space := range slices.Compact(spaces) {
		how := shareSpace
		if slices.Contains(exclusive, space) {
			how = lockSpace
		}
		t.run.Queue(how, nil, []any{space}, nil)
	}
	if len(w.Sessions) == 0 {
		return nil
	}
	ids := slices.Clone(w.Sessions)
	slices.Sort(ids)
	ids = slices.Compact(ids)
	t.list(ensureSessions, texts(t.sessions.missing(ids)), nil)
	t.run.Queue(lockSessions, texts(ids), nil, func(row Scanner) error {
		var version int64
		s, err := scanSession(row, &version)
		if err == nil {
			out.Sessions[s.ID] = s
			t.own[s.ID].isRow(s, version)
		}
		return err
	})
	return ids
}

func (t *tx) readLedger(w *session.Want, out *session.Rows) {
	t.list(readStreams, streamKeys(w.Streams), func(row Scanner) error {
		var version int64
		m, err := scanStream(row, &version)
		if err == nil {
			out.Streams[session.StreamKey{Session: m.Session, Outbox: m.Outbox}] = m
			t.own[m.Session].isStream(m, version)
		}
		return err
	})
	var ranges, searches, whole [][]any
	wanted := map[session.StreamKey]map[string]bool{} // op ids
	for _, r := range w.Records {
		if r.To != 0 {
			ranges = append(ranges, []any{r.Stream.Session, r.Stream.Outbox, clamp(r.From), clamp(r.To)})
		}
		for _, op := range r.Ops {
			if wanted[r.Stream] == nil {
				wanted[r.Stream] = map[string]bool{}
			}
			wanted[r.Stream][op] = true
		}
	}
	for key, ops := range wanted {
		if len(ops) > searchMax {
			whole = append(whole, []any{key.Session, key.Outbox, int64(0), int64(math.MaxInt64)})
			continue
		}
		for op := range ops {
			searches = append(searches, []any{key.Session, key.Outbox, op})
		}
	}
	t.list(readRecords, ranges, func(row Scanner) error {
		key, r, err := scanRecord(row)
		if err == nil {
			out.Records[key] = append(out.Records[key], r)
			t.own[key.Session].isRecord(key.Outbox, r)
		}
		return err
	})
	held := func(row Scanner) error {
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
	t.list(searchRecords, searches, held)
	t.list(readRecords, whole, held)
}

// searchMax is up to how many ops of a stream are searched for one by one, each
// of which looks at every record of the stream; of more, all records are read once.
const searchMax = 8

func (t *tx) readAuthority(w *session.Want, out *session.Rows) {
	// A ref wanted twice over stays one row, whoever has it already.
	keep := func(g *capability.Grant) {
		if out.Grants[g.ID] == nil {
			out.Grants[g.ID] = g
		}
	}
	grant := func(row Scanner) error {
		g, err := scanGrant(row)
		if err == nil {
			keep(g)
			t.own[g.Target].isGrant(g)
		}
		return err
	}
	t.list(readGrants, refs(w.Grants), grant)
	t.list(readLineages, refs(w.Lineages), grant)
	t.list(readTurnRefs, texts(w.Counted), grant)
	t.list(readLineages, refs(countedGrants(w)), grant)
	for _, root := range w.Trees {
		target, tail := split(root)
		t.run.Queue(countTree, nil, []any{target, tail}, func(row Scanner) error {
			var target string
			var n int64
			err := row.Scan(&target, &n)
			put(out.Trees, root, target, uint64(n))
			return err
		})
	}
	var externals [][]any
	for _, x := range w.External {
		_, tail := split(x.Maker)
		externals = append(externals, []any{x.Space, tail, x.ID})
	}
	t.list(readExternals, externals, func(row Scanner) error {
		var space, tail, external, id string
		err := row.Scan(&space, &tail, &external, &id)
		if id != "" {
			out.External[session.ExternalID{Space: space, Maker: join(space, tail), ID: external}] = id
		}
		return err
	})
}

func (t *tx) readState(w *session.Want, out *session.Rows) {
	t.list(readHeads, pairs(w.Heads), func(row Scanner) error {
		e, err := scanEntryHead(row)
		if err == nil {
			put(out.Entries, e.Session, e.Key, e)
			t.own[e.Session].isHead(e)
		}
		return err
	})
	// After the heads: where both are wanted, the one with the value stays.
	entry := func(row Scanner) error {
		e, err := scanEntry(row)
		if err == nil {
			err = within(w, out, weight(e.Payload))
		}
		if err == nil {
			put(out.Entries, e.Session, e.Key, e)
		}
		return err
	}
	t.weighed(w, readEntries, pairs(w.Entries), entry)
	ranges := pairs(w.Prefixes)
	for i, r := range ranges {
		ranges[i] = append(r, above(*r[1].(*string)))
	}
	t.weighed(w, readRanges, ranges, entry)

	turn := func(row Scanner) error {
		u, err := scanTurn(row)
		if err == nil && out.Turns[u.Session][u.Message] == nil {
			put(out.Turns, u.Session, u.Message, u)
			t.own[u.Session].isTurn(u)
		}
		return err
	}
	t.list(readOpenTurns, texts(w.Turns), turn)
	t.list(readLapsing, texts(w.Lapsing), turn)
	t.list(readTurns, pairs(w.TurnsOf), turn)
}

func (t *tx) readLogs(w *session.Want, out *session.Rows) {
	var deltas [][]any
	for id, parts := range w.Deltas {
		first := uint64(math.MaxUint64)
		for _, after := range parts {
			first = min(first, after)
		}
		if len(parts) > 0 {
			deltas = append(deltas, []any{id, clamp(first)})
		}
	}
	t.weighed(w, readDeltas, deltas, func(row Scanner) error {
		d, err := scanDelta(row)
		if err == nil {
			err = within(w, out, d.weight) // also of those that are passed over
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
		logs = append(logs, []any{id, clamp(to)})
	}
	t.weighed(w, readLogs, logs, func(row Scanner) error {
		e, err := scanEvent(row)
		if err == nil {
			err = within(w, out, weight(e.Payload))
		}
		if err == nil {
			out.Logs[e.Session] = append(out.Logs[e.Session], e)
		}
		return err
	})
}

// readHolders queues the search for what holds payloads of keys.
func (t *tx) readHolders(w *session.Want, out *session.Rows) {
	var list [][]any
	for _, id := range sortedKeys(w.Holders) {
		list = append(list, []any{id, w.Holders[id], session.TurnKey(w.Holders[id])})
	}
	t.weighed(w, readHolders, list, func(row Scanner) error {
		var e session.Event
		var cursor int64
		err := row.Scan(&e.Session, &cursor, &e.Method, &e.Payload)
		if err == nil {
			err = within(w, out, weight(e.Payload))
		}
		if e.Cursor = uint64(cursor); err == nil {
			out.Holders[e.Session] = append(out.Holders[e.Session], &e)
		}
		return err
	})
}

// within counts bytes that were read; above the bound it ends the statement.
func within(w *session.Want, out *session.Rows, bytes int) error {
	if out.Bytes += bytes; w.MaxBytes > 0 && out.Bytes > w.MaxBytes {
		return ErrEnough
	}
	return nil
}

// weighed queues a weighed statement, which gets the bound.
func (t *tx) weighed(w *session.Want, s *Statement, list [][]any, each func(Scanner) error) {
	most := int64(math.MaxInt64)
	if w.MaxBytes > 0 {
		most = int64(w.MaxBytes)
	}
	if len(list) > 0 {
		t.run.Queue(s, list, []any{most}, each)
	}
}

// list queues a statement on a list, if there is anything in it.
func (t *tx) list(s *Statement, list [][]any, each func(Scanner) error) {
	switch {
	case len(list) == 0:
	case t.guess != nil:
		t.held = append(t.held, heldList{s, list})
	default:
		t.run.Queue(s, list, nil, each)
	}
}

// countedGrants are the refs of Grants that are wanted with what they descend from.
func countedGrants(w *session.Want) (ids []string) {
	if len(w.Counted) == 0 {
		return nil
	}
	for _, id := range w.Grants {
		if target, _ := split(id); slices.Contains(w.Counted, target) {
			ids = append(ids, id)
		}
	}
	return ids
}

// inOrder sorts records by their first seq and drops repeats.
func inOrder(records []*ledger.Record) []*ledger.Record {
	sort.Slice(records, func(i, j int) bool { return records[i].FirstSeq < records[j].FirstSeq })
	return slices.CompactFunc(records, func(a, b *ledger.Record) bool { return a.FirstSeq == b.FirstSeq })
}

// pairs is a map of lists as a list of two columns, in order.
func pairs(m map[string][]string) [][]any {
	n := 0
	for _, values := range m {
		n += len(values)
	}
	list, room := make([][]any, 0, n), make([]any, 0, 2*n)
	keys := sortedKeys(m)
	for i, a := range keys {
		for j := range m[a] {
			room = append(room, &keys[i], &m[a][j])
			list = append(list, room[len(room)-2:len(room):len(room)])
		}
	}
	return list
}

func streamKeys(keys []session.StreamKey) [][]any {
	list := make([][]any, len(keys))
	for i, k := range keys {
		list[i] = []any{k.Session, k.Outbox}
	}
	return list
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

// clamp is a bound that a peer may have named, as far as the database counts.
func clamp(v uint64) int64 {
	return int64(min(v, math.MaxInt64))
}
