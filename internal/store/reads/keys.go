// Reads of single keys, and of a prefix's keys a page at a time.

package reads

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// nextPuts selects the places of the entries of kind {2} after a place in the session's order.
const nextPuts = `SELECT e.session, e.ord, e.ord_index, e.key FROM entries e WHERE e.session = {1} AND {kind} = {2} AND (e.ord, e.ord_index, e.key) > ({3}, {4}, {5})
	ORDER BY e.ord, e.ord_index, e.key`

var (
	// listByKey reads entries without values, from key {2} on and below key {3}.
	listByKey = dialect.Both("", `
		SELECT `+txn.EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} ORDER BY e.key LIMIT {4}`)

	// listAmong looks at the {6} entries of kind {2} after a place in the session's order, by the index alone,
	// and reads those from key {7} on and below key {8}.
	listAmong = dialect.Both("", `
		SELECT `+txn.EntryMetaColumns+` FROM (`+nextPuts+` LIMIT {6}) p CROSS JOIN entries e
		WHERE p.key >= {7} AND p.key < {8} AND e.session = p.session AND e.key = p.key ORDER BY p.ord, p.ord_index, p.key LIMIT {9}`)

	// nthPut reads the entry that comes after {6} others of those.
	nthPut = dialect.Both("", `
		SELECT `+txn.EntryMetaColumns+` FROM (`+nextPuts+` LIMIT 1 OFFSET {6}) p CROSS JOIN entries e WHERE e.session = p.session AND e.key = p.key`)

	// listSorted looks at {4} entries from key {2} on and below key {3}, all of them, and reads those
	// after a place in the session's order.
	listSorted = dialect.Both("", `
		SELECT `+txn.EntryMetaNames+` FROM (
			SELECT `+txn.EntryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} LIMIT {4}) e
		WHERE (e.ord, e.ord_index, e.key) > ({5}, {6}, {7}) ORDER BY e.ord, e.ord_index, e.key LIMIT {8}`)

	// listKinds reads the kinds of a session's keys: each is looked up after the one before.
	listKinds = dialect.Both("", `
		WITH RECURSIVE line(kind) AS (
			SELECT (SELECT {kind} FROM entries e WHERE e.session = {1} ORDER BY {kind} LIMIT 1)
			UNION ALL
			SELECT (SELECT {kind} FROM entries e WHERE e.session = {1} AND {kind} > line.kind ORDER BY {kind} LIMIT 1) FROM line WHERE line.kind IS NOT NULL)
		SELECT line.kind FROM line WHERE line.kind IS NOT NULL LIMIT {2}`)

	// readEntryFacts reads what a page shows of entries besides their values.
	readEntryFacts = dialect.Both("Tt", `
		SELECT e.key, `+txn.EntryWeight+`, e.put_ref, e.put_actor, e.put_at FROM {w} CROSS JOIN entries e WHERE e.session = w.a AND e.key = w.b`)

	// readChanges reads who wrote events.
	readChanges = dialect.Both("Ti", `
		SELECT v.cursor, v.ref, v.actor, v.at, v.key, v.method FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.cursor = w.b`)
)

// Bounds of a page: the entries read that are not shown, and the kinds that are merged into one
// order. By put, the keys of a longer prefix (part/m/) are sorted, up to maxSortedKeys. More of them are
// looked for among the next maxKeysAmong of their kind. If too few are found, up to as many are sorted;
// with more the page ends there. Several prefixes share the last two.
const (
	maxHiddenKeys = 5000
	maxKinds      = 256
	maxSortedKeys = 10_000
	maxKeysAmong  = 50_000
)

// admitted runs read in a snapshot of a session, with the grant that admit returns. It returns
// admit's error unchanged.
func (s *Reads) admitted(ctx context.Context, what, id string, refIDs []string, admit session.Admit, access *session.Access, read func(dialect.Runner, *capability.Grant) error) error {
	if err := s.EnsureOrds(ctx, id); err != nil {
		return err
	}
	var own error
	key, err := s.hashKey(ctx)
	if err != nil {
		return txn.Wrap(what, err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		access.Key = key
		txn.QueueAccess(run, access, id, refIDs)
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var g *capability.Grant
		if g, own = admit(access); own != nil {
			return own
		}
		return read(run, g)
	})
	if own != nil {
		return own
	}
	return txn.Wrap(what, err)
}

// ReadKeys implements session.Reader.
func (s *Reads) ReadKeys(ctx context.Context, id string, keys []string, maxBytes int, refIDs []string, admit session.Admit) (_ *session.Unscoped[*session.KeyPage], next int, err error) {
	if err := txn.CheckText(keys...); err != nil {
		return nil, 0, err
	}
	page := &session.KeyPage{}
	err = s.admitted(ctx, "read keys", id, refIDs, admit, &page.Access, func(run dialect.Runner, g *capability.Grant) error {
		found := map[string]*session.Entry{}
		if err := dialect.Query(ctx, run, txn.ReadEntryMeta, txn.PairRows(map[string][]string{id: keys}), nil, dialect.EachRow(txn.ScanMeta, func(e *session.Entry) {
			if session.ShowsEntry(g, e) {
				found[e.Key] = e
			}
		})); err != nil {
			return err
		}
		var shown []*session.Entry
		for _, key := range keys {
			if e := found[key]; e != nil {
				shown = append(shown, e)
			}
		}
		if shown, err = newHiding(run, page.Row).shown(ctx, shown); err != nil {
			return err
		}
		page.Entries, err = entryInfos(ctx, run, shown, true, maxBytes)
		if page.More = err == nil && len(page.Entries) < len(shown); page.More {
			next = slices.Index(keys, shown[len(page.Entries)].Key)
		} else {
			next = len(keys)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return session.NewUnscoped(page), next, nil
}

// ListKeys implements session.Reader.
func (s *Reads) ListKeys(ctx context.Context, id string, q session.KeyQuery, maxBytes int, refIDs []string, admit session.Admit) (*session.Unscoped[*session.KeyPage], error) {
	if err := txn.CheckText(q.Prefix, q.After); err != nil {
		return nil, err
	}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.KeyPage{}
	err := s.admitted(ctx, "list keys", id, refIDs, admit, &page.Access, func(run dialect.Runner, g *capability.Grant) error {
		after, refused := q.Position(id, &page.Key)
		if refused != nil {
			return refused
		}
		scan := &keyScan{run: run, session: id, order: q.Order, piece: q.MaxEntries() + 1, ranges: session.CoveredRanges(g, cmp.Or(q.From, q.Prefix), cmp.Or(q.Below, session.PrefixEnd(q.Prefix)))}
		hide := newHiding(run, page.Row)
		if q.Compacted {
			hide.compacted = page.Row.CompactedTo(g)
			scan.messages = session.KeyPosition{Ord: hide.compacted.Ord}
		}
		if err := scan.begin(ctx, after); err != nil {
			return err
		}
		shown, last, err := shownPage(ctx, scan, hide, g, q.MaxEntries())
		if err != nil {
			return err
		}
		if page.Entries, err = entryInfos(ctx, run, shown, q.Values, maxBytes); err != nil {
			return err
		}
		if n := len(page.Entries); n < len(shown) {
			last = shown[n-1]
		}
		if page.More = last != nil; page.More {
			page.Next = session.NextAfter(g, &page.Key, q.Order, last)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return session.NewUnscoped(page), nil
}

// shownPage returns the next entries of a scan that a ref shows, at most most, and the entry after
// which the next page begins; nil if no further entry is shown.
func shownPage(ctx context.Context, scan *keyScan, hide *hiding, g *capability.Grant, most int) (shown []*session.Entry, last *session.Entry, err error) {
	for hidden := 0; hidden < maxHiddenKeys && !scan.cut; {
		last, err = scan.next(ctx)
		if err != nil || last == nil {
			return shown, nil, err
		}
		hides, err := hide.hides(ctx, last)
		switch {
		case err != nil:
			return shown, nil, err
		case hides || !scan.covers(last.Key) || !session.ShowsEntry(g, last):
			hidden++
		case len(shown) == most:
			return shown, shown[most-1], nil
		default:
			shown = append(shown, last)
		}
	}
	return shown, last, nil
}

// entryInfos returns the first of entries, which were read without values: of about maxBytes or the
// first alone, with their values or, for all of them, without.
func entryInfos(ctx context.Context, run dialect.Runner, entries []*session.Entry, values bool, maxBytes int) ([]*session.EntryInfo, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	id := entries[0].Session
	keys := make([]string, len(entries))
	infos := make(map[string]*session.EntryInfo, len(entries))
	changed := make([][]any, len(entries))
	for i, e := range entries {
		keys[i], changed[i] = e.Key, []any{id, int64(e.Changed())}
		infos[e.Key] = &session.EntryInfo{Entry: e, Change: session.Change{Cursor: e.Changed(), EventKey: e.Key}}
	}
	if err := dialect.Query(ctx, run, readEntryFacts, txn.PairRows(map[string][]string{id: keys}), nil, func(row dialect.Scanner) error {
		var key string
		var weight int64
		var c session.Change
		err := row.Scan(&key, &weight, &c.Ref, &c.Actor, &c.At)
		if info := infos[key]; err == nil {
			info.Bytes = uint64(weight - txn.EntryOverhead)
			info.Change.Ref, info.Change.Actor, info.Change.At = c.Ref, c.Actor, c.At
		}
		return err
	}); err != nil {
		return nil, err
	}
	n := len(keys)
	for i, weight := 0, 0; i < n && values; i++ {
		if weight += int(infos[keys[i]].Bytes) + txn.EntryOverhead; i > 0 && weight > maxBytes {
			n = i
		}
	}
	changes := map[uint64]session.Change{}
	slices.SortFunc(changed[:n:n], func(a, b []any) int { return int(a[1].(int64) - b[1].(int64)) })
	changed = slices.CompactFunc(changed[:n], func(a, b []any) bool { return a[1] == b[1] })
	run.Queue(readChanges, changed, nil, func(row dialect.Scanner) error {
		var cursor int64
		var c session.Change
		err := row.Scan(&cursor, &c.Ref, &c.Actor, &c.At, &c.EventKey, &c.Method)
		c.Cursor = uint64(cursor)
		changes[c.Cursor] = c
		return err
	})
	if values {
		run.Queue(txn.ReadEntries, txn.PairRows(map[string][]string{id: keys[:n]}), []any{int64(math.MaxInt64)}, dialect.EachRow(txn.ScanEntry, func(e *session.Entry) {
			infos[e.Key].Entry = e
		}))
	}
	if err := run.Flush(ctx); err != nil {
		return nil, err
	}
	list := make([]*session.EntryInfo, n)
	for i, key := range keys[:n] {
		list[i] = infos[key]
		if c, there := changes[list[i].Change.Cursor]; there {
			list[i].Change = c
		}
		entries[i] = list[i].Entry
	}
	if !values {
		return list, nil
	}
	if err := txn.FoldOpenDeltas(ctx, run, id, entries[:n]); err != nil {
		return nil, err
	}
	for _, info := range list {
		info.Bytes = uint64(len(info.Payload))
	}
	return list, nil
}

// keyScan reads the entries of ranges of keys, which are disjoint and in key order, without values:
// one after the other. ByPut it merges several sources, and may return keys outside of the ranges.
type keyScan struct {
	run      dialect.Runner
	session  string
	order    session.KeyOrder
	messages session.KeyPosition // ByPut: messages before this place are passed over
	piece    int                 // entries that are read of a source at once
	ranges   []session.KeyRange
	sources  []*keySource
	nested   int  // sources of parts of a kind
	cut      bool // what follows the entry that was returned last was not looked at
}

// keySource is one sequence of entries in the scan's order.
type keySource struct {
	by    *dialect.Statement // reads them: listByKey or, ByPut, one of the others
	kind  string             // ByPut: of them
	keys  session.KeyRange   // of them; not for txn.ListByPut, which reads the kind's
	after session.KeyPosition
	from  session.KeyPosition // what after was before the last read
	rows  []*session.Entry    // that were read and not returned
	done  bool                // nothing follows rows
	cut   bool                // what follows rows was not looked at; done is set
}

// covers reports whether a key is in the scan's ranges.
func (k *keyScan) covers(key string) bool {
	return slices.ContainsFunc(k.ranges, func(r session.KeyRange) bool { return r.From <= key && key < r.Below })
}

// begin sets the sources, to begin after a position.
func (k *keyScan) begin(ctx context.Context, after session.KeyPosition) error {
	if k.order == session.ByKey {
		for _, r := range k.ranges {
			k.sources = append(k.sources, &keySource{by: listByKey, keys: r, after: after})
		}
		return nil
	}
	byKind := map[string][]session.KeyRange{}
	for _, r := range k.ranges {
		if r.From != "" {
			byKind[session.KindOf(r.From)] = append(byKind[session.KindOf(r.From)], r)
			continue
		}
		kinds, err := k.kinds(ctx)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			byKind[kind] = []session.KeyRange{r}
		}
	}
	for kind, ranges := range byKind {
		if slices.ContainsFunc(ranges, func(r session.KeyRange) bool { return r.From <= kind+"/" && r.Below >= session.PrefixEnd(kind+"/") }) {
			from := after
			if kind == "message" && from.Compare(k.order, k.messages) < 0 {
				from = k.messages
			}
			k.sources = append(k.sources, &keySource{by: txn.ListByPut, kind: kind, after: from})
			continue
		}
		for _, r := range ranges {
			k.sources = append(k.sources, &keySource{by: listSorted, kind: kind, keys: r, after: after, from: after})
			k.nested++
		}
	}
	for _, s := range k.sources {
		if s.by == listSorted {
			k.queueNth(s, maxSortedKeys, func() { s.by = listAmong })
		}
	}
	return k.run.Flush(ctx)
}

// queueNth queues a look whether a source's range has more than its share of most keys: then more is
// called.
func (k *keyScan) queueNth(s *keySource, most int, more func()) {
	k.run.Queue(txn.NthKey, nil, []any{k.session, s.keys.From, s.keys.Below, k.share(most)}, func(dialect.Scanner) error {
		more()
		return nil
	})
}

// share returns what a source has of a bound of all that are parts of a kind.
func (k *keyScan) share(bound int) int64 { return int64(bound / k.nested) }

// kinds returns the kinds of the session's keys.
func (k *keyScan) kinds(ctx context.Context) (kinds []string, err error) {
	if err := dialect.Query(ctx, k.run, listKinds, nil, []any{k.session, int64(maxKinds) + 1}, dialect.Collect(&kinds, dialect.ScanText)); err != nil {
		return nil, err
	}
	if len(kinds) > maxKinds {
		return nil, fault.TooLarge.With("the session has keys of more than %d kinds, too many for one list by put: list them by key, or with a prefix", maxKinds)
	}
	return kinds, nil
}

// next returns the next entry; nil at the end.
func (k *keyScan) next(ctx context.Context) (*session.Entry, error) {
	for {
		var first *keySource
		var read []*keySource
		for _, s := range k.sources {
			if len(s.rows) == 0 && !s.done {
				k.queue(s)
				read = append(read, s)
			}
			if len(s.rows) > 0 && (first == nil || k.before(s, first)) {
				first = s
			}
			if k.order == session.ByKey && (len(read) > 0 || first != nil) {
				break // the keys of the other ranges follow
			}
		}
		if len(read) == 0 {
			if first == nil {
				return nil, nil
			}
			e := first.rows[0]
			first.rows = first.rows[1:]
			k.cut = first.cut && len(first.rows) == 0
			return e, nil
		}
		if err := k.run.Flush(ctx); err != nil {
			return nil, err
		}
		for _, s := range read {
			if s.by == listAmong && s.done {
				if err := k.lookFurther(ctx, s); err != nil {
					return nil, err
				}
			}
		}
	}
}

// before reports whether a source's next entry is returned before another's. If both have the same, one of
// them ends there: it is returned as that one's alone.
func (k *keyScan) before(s, than *keySource) bool {
	c := session.PositionOf(s.rows[0]).Compare(k.order, session.PositionOf(than.rows[0]))
	return c < 0 || c == 0 && s.cut
}

// lookFurther goes on with a source that did not find enough among its kind's entries: sorted or, if its
// keys are too many, not at all.
func (k *keyScan) lookFurther(ctx context.Context, s *keySource) error {
	few := true
	k.queueNth(s, maxKeysAmong, func() { few = false })
	if err := k.run.Flush(ctx); err != nil {
		return err
	}
	if few {
		s.by, s.done = listSorted, false
		return nil
	}
	return dialect.Query(ctx, k.run, nthPut, nil, append(k.place(s.kind, s.from), k.share(maxKeysAmong)-1), func(row dialect.Scanner) error {
		e, err := txn.ScanMeta(row)
		if err != nil {
			return err
		}
		if s.cut = true; session.PositionOf(e) != s.after {
			s.rows = append(s.rows, e)
		}
		return nil
	})
}

// place returns the first arguments of a read of a kind's entries after a place.
func (k *keyScan) place(kind string, p session.KeyPosition) []any {
	return []any{k.session, kind, int64(p.Ord.At), int64(p.Ord.Index), p.Key}
}

// queue queues a read of the entries that follow in a source.
func (k *keyScan) queue(s *keySource) {
	n := k.piece
	k.piece = min(2*k.piece, session.MaxListKeys) // whoever reads on does not show most of them
	if (s.by == listSorted || s.by == listAmong) && s.from != s.after {
		n = maxHiddenKeys // each read looks at very many again
	}
	var args []any
	switch s.by {
	case listByKey:
		from := s.keys.From
		if s.after.Key >= from {
			from = txn.KeyAfter(s.after.Key)
		}
		args = []any{k.session, from, s.keys.Below}
	case txn.ListByPut:
		args = k.place(s.kind, s.after)
	case listAmong:
		args = append(k.place(s.kind, s.after), k.share(maxKeysAmong), s.keys.From, s.keys.Below)
	case listSorted:
		args = []any{k.session, s.keys.From, s.keys.Below, int64(maxKeysAmong) + 1, int64(s.after.Ord.At), int64(s.after.Ord.Index), s.after.Key}
	}
	read := 0
	s.from, s.done = s.after, true
	k.run.Queue(s.by, nil, append(args, int64(n)), func(row dialect.Scanner) error {
		e, err := txn.ScanMeta(row)
		if err != nil {
			return err
		}
		read++
		s.rows, s.after, s.done = append(s.rows, e), session.PositionOf(e), read < n
		return nil
	})
}
