// Reads of single keys, and of a prefix's keys a page at a time.

package store

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

var (
	// listByKey reads entries without values, from key {2} on and below key {3}.
	listByKey = statement("", `
		SELECT `+entryMetaColumns+` FROM entries e WHERE e.session = {1} AND e.key >= {2} AND e.key < {3} ORDER BY e.key LIMIT {4}`)

	// listByPut reads entries of kind {2} without values, after a place in the session's order.
	listByPut = statement("", `
		SELECT `+entryMetaColumns+` FROM entries e WHERE e.session = {1} AND {kind} = {2} AND (e.ord, e.ord_index, e.key) > ({3}, {4}, {5})
		ORDER BY e.ord, e.ord_index, e.key LIMIT {6}`)

	// listKinds reads the kinds of a session's keys: each is looked up after the one before.
	listKinds = statement("", `
		WITH RECURSIVE line(kind) AS (
			SELECT (SELECT {kind} FROM entries e WHERE e.session = {1} ORDER BY {kind} LIMIT 1)
			UNION ALL
			SELECT (SELECT {kind} FROM entries e WHERE e.session = {1} AND {kind} > line.kind ORDER BY {kind} LIMIT 1) FROM line WHERE line.kind IS NOT NULL)
		SELECT line.kind FROM line WHERE line.kind IS NOT NULL LIMIT {2}`)

	// readEntryFacts reads what a page shows of entries besides their values.
	readEntryFacts = statement("Tt", `
		SELECT e.key, `+entryWeight+`, e.put_ref, e.put_actor, e.put_at FROM {w} CROSS JOIN entries e WHERE e.session = w.a AND e.key = w.b`)

	// readChanges reads who wrote events.
	readChanges = statement("Ti", `
		SELECT v.cursor, v.ref, v.actor, v.at, v.key, v.method FROM {w} CROSS JOIN events v WHERE v.session = w.a AND v.cursor = w.b`)
)

// Bounds of a page: the entries looked at that are not shown, the kinds that are merged into one
// order, and the keys of a longer prefix up to which they are sorted and not searched for among
// their kind's.
const (
	maxHiddenKeys = 5000
	maxKinds      = 256
	maxSortedKeys = 1000
)

// admitted runs read in a snapshot of a session, with the grant that admit returns. It returns
// admit's error unchanged.
func (s *Store) admitted(ctx context.Context, what, id string, refIDs []string, admit session.Admit, access *session.Access, read func(Runner, *capability.Grant) error) error {
	if err := s.ensureOrds(ctx, id); err != nil {
		return err
	}
	var own error
	key, err := s.hashKey(ctx)
	if err != nil {
		return wrap(what, err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		access.Key = key
		queueAccess(run, access, id, refIDs)
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
	return wrap(what, err)
}

// ReadKeys implements session.Reader.
func (s *Store) ReadKeys(ctx context.Context, id string, keys []string, maxBytes int, refIDs []string, admit session.Admit) (_ *session.Unscoped[*session.KeyPage], next int, err error) {
	if err := checkText(keys...); err != nil {
		return nil, 0, err
	}
	page := &session.KeyPage{}
	err = s.admitted(ctx, "read keys", id, refIDs, admit, &page.Access, func(run Runner, g *capability.Grant) error {
		found := map[string]*session.Entry{}
		run.Queue(readEntryMeta, pairRows(map[string][]string{id: keys}), nil, func(row Scanner) error {
			e, err := scanEntryMeta(row)
			if err == nil && session.ShowsEntry(g, e) {
				found[e.Key] = e
			}
			return err
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var shown []*session.Entry
		for _, key := range keys {
			if e := found[key]; e != nil {
				shown = append(shown, e)
			}
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
func (s *Store) ListKeys(ctx context.Context, id string, q session.KeyQuery, maxBytes int, refIDs []string, admit session.Admit) (*session.Unscoped[*session.KeyPage], error) {
	if err := checkText(q.Prefix, q.After); err != nil {
		return nil, err
	}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.KeyPage{}
	err := s.admitted(ctx, "list keys", id, refIDs, admit, &page.Access, func(run Runner, g *capability.Grant) error {
		after, refused := q.Position(id, &page.Key)
		if refused != nil {
			return refused
		}
		scan := &keyScan{run: run, session: id, order: q.Order, piece: q.MaxEntries() + 1, ranges: session.CoveredRanges(g, cmp.Or(q.From, q.Prefix), cmp.Or(q.Below, session.PrefixEnd(q.Prefix)))}
		if err := scan.begin(ctx, after); err != nil {
			return err
		}
		shown, last, err := shownPage(ctx, scan, g, q.MaxEntries())
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
func shownPage(ctx context.Context, scan *keyScan, g *capability.Grant, most int) (shown []*session.Entry, last *session.Entry, err error) {
	for hidden := 0; ; {
		e, err := scan.next(ctx)
		switch {
		case err != nil || e == nil:
			return shown, nil, err
		case !scan.covers(e.Key) || !session.ShowsEntry(g, e):
			if hidden++; hidden == maxHiddenKeys {
				return shown, e, nil
			}
		case len(shown) == most:
			return shown, shown[most-1], nil
		default:
			shown = append(shown, e)
		}
	}
}

// entryInfos returns the first of entries, which were read without values: of about maxBytes or the
// first alone, with their values or, for all of them, without.
func entryInfos(ctx context.Context, run Runner, entries []*session.Entry, values bool, maxBytes int) ([]*session.EntryInfo, error) {
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
	run.Queue(readEntryFacts, pairRows(map[string][]string{id: keys}), nil, func(row Scanner) error {
		var key string
		var weight int64
		var c session.Change
		err := row.Scan(&key, &weight, &c.Ref, &c.Actor, &c.At)
		if info := infos[key]; err == nil {
			info.Bytes = uint64(weight - entryOverhead)
			info.Change.Ref, info.Change.Actor, info.Change.At = c.Ref, c.Actor, c.At
		}
		return err
	})
	if err := run.Flush(ctx); err != nil {
		return nil, err
	}
	n := len(keys)
	for i, weight := 0, 0; i < n && values; i++ {
		if weight += int(infos[keys[i]].Bytes) + entryOverhead; i > 0 && weight > maxBytes {
			n = i
		}
	}
	changes := map[uint64]session.Change{}
	slices.SortFunc(changed[:n:n], func(a, b []any) int { return int(a[1].(int64) - b[1].(int64)) })
	changed = slices.CompactFunc(changed[:n], func(a, b []any) bool { return a[1] == b[1] })
	run.Queue(readChanges, changed, nil, func(row Scanner) error {
		var cursor int64
		var c session.Change
		err := row.Scan(&cursor, &c.Ref, &c.Actor, &c.At, &c.EventKey, &c.Method)
		c.Cursor = uint64(cursor)
		changes[c.Cursor] = c
		return err
	})
	if values {
		run.Queue(readEntries, pairRows(map[string][]string{id: keys[:n]}), []any{int64(math.MaxInt64)}, func(row Scanner) error {
			e, err := scanEntry(row)
			if err == nil {
				infos[e.Key].Entry = e
			}
			return err
		})
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
	if err := foldOpenDeltas(ctx, run, id, entries[:n]); err != nil {
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
	run     Runner
	session string
	order   session.KeyOrder
	piece   int // entries that are read of a source at once
	ranges  []session.KeyRange
	sources []*keySource
}

// keySource is one sequence of entries in the scan's order.
type keySource struct {
	kind  string           // ByPut: of all its entries
	keys  session.KeyRange // ByKey: of all its entries
	after session.KeyPosition
	rows  []*session.Entry // that were read and not returned
	done  bool             // nothing follows rows
}

// covers reports whether a key is in the scan's ranges.
func (k *keyScan) covers(key string) bool {
	return slices.ContainsFunc(k.ranges, func(r session.KeyRange) bool { return r.From <= key && key < r.Below })
}

// begin sets the sources, to begin after a position.
func (k *keyScan) begin(ctx context.Context, after session.KeyPosition) error {
	if k.order == session.ByKey {
		for _, r := range k.ranges {
			k.sources = append(k.sources, &keySource{keys: r, after: after})
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
		source, err := k.kindSource(ctx, kind, ranges, after)
		if err != nil {
			return err
		}
		k.sources = append(k.sources, source)
	}
	return nil
}

// kinds returns the kinds of the session's keys.
func (k *keyScan) kinds(ctx context.Context) (kinds []string, err error) {
	k.run.Queue(listKinds, nil, []any{k.session, int64(maxKinds) + 1}, collect(&kinds, scanText))
	if err := k.run.Flush(ctx); err != nil {
		return nil, err
	}
	if len(kinds) > maxKinds {
		return nil, fault.TooLarge.With("the session has keys of more than %d kinds, too many for one list by put: list them by key, or with a prefix", maxKinds)
	}
	return kinds, nil
}

// kindSource returns the source of the entries of a kind in some ranges. If the ranges are parts of
// the kind with few entries, it has them sorted; otherwise it goes through the kind's in the order of
// their places.
func (k *keyScan) kindSource(ctx context.Context, kind string, ranges []session.KeyRange, after session.KeyPosition) (*keySource, error) {
	source := &keySource{kind: kind, after: after}
	if slices.ContainsFunc(ranges, func(r session.KeyRange) bool { return r.From <= kind+"/" && r.Below >= session.PrefixEnd(kind+"/") }) {
		return source, nil
	}
	var rows []*session.Entry
	for _, r := range ranges {
		k.run.Queue(listByKey, nil, []any{k.session, r.From, r.Below, int64(maxSortedKeys) + 1}, collect(&rows, scanMeta))
	}
	if err := k.run.Flush(ctx); err != nil || len(rows) > maxSortedKeys {
		return source, err
	}
	slices.SortFunc(rows, func(a, b *session.Entry) int { return session.PositionOf(a).Compare(k.order, session.PositionOf(b)) })
	first := slices.IndexFunc(rows, func(e *session.Entry) bool { return session.PositionOf(e).Compare(k.order, after) > 0 })
	if source.done = true; first >= 0 {
		source.rows = rows[first:]
	}
	return source, nil
}

// next returns the next entry; nil at the end.
func (k *keyScan) next(ctx context.Context) (*session.Entry, error) {
	for {
		var first *keySource
		read := false
		for _, s := range k.sources {
			if len(s.rows) == 0 && !s.done {
				k.queue(s)
				read = true
			}
			if len(s.rows) > 0 && (first == nil || session.PositionOf(s.rows[0]).Compare(k.order, session.PositionOf(first.rows[0])) < 0) {
				first = s
			}
			if k.order == session.ByKey && (read || first != nil) {
				break // the keys of the other ranges follow
			}
		}
		if !read {
			if first == nil {
				return nil, nil
			}
			e := first.rows[0]
			first.rows = first.rows[1:]
			return e, nil
		}
		if err := k.run.Flush(ctx); err != nil {
			return nil, err
		}
	}
}

// keyAfter returns the text that comes after a key and before all keys that do.
func keyAfter(key string) string { return key + " " }

// queue queues a read of the entries that follow in a source.
func (k *keyScan) queue(s *keySource) {
	n := k.piece
	k.piece = min(2*k.piece, session.MaxListKeys) // whoever reads on does not show most of them
	read, statement := 0, listByPut
	args := []any{k.session, s.kind, int64(s.after.Ord.At), int64(s.after.Ord.Index), s.after.Key, int64(n)}
	if k.order == session.ByKey {
		from := s.keys.From
		if s.after.Key >= from {
			from = keyAfter(s.after.Key)
		}
		statement, args = listByKey, []any{k.session, from, s.keys.Below, int64(n)}
	}
	s.done = true
	k.run.Queue(statement, nil, args, func(row Scanner) error {
		e, err := scanMeta(row)
		if err != nil {
			return err
		}
		read++
		s.rows, s.after, s.done = append(s.rows, e), session.PositionOf(e), read < n
		return nil
	})
}

// scanMeta is scanEntryMeta without further columns.
func scanMeta(row Scanner) (*session.Entry, error) { return scanEntryMeta(row) }
