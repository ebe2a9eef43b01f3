// Pages of entries, with the texts that were appended to them.

package txn

import (
	"context"
	"math"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// EntryPage flushes the queue, and returns the entries of the keys from from on and below below, in
// order: at most most entries and, except for the first, at most about maxBytes, with the texts of
// their deltas. more reports that there are others.
func EntryPage(ctx context.Context, run dialect.Runner, id, from, below string, maxBytes, most int) (entries []*session.Entry, more bool, err error) {
	return pageOf(ctx, run, readRange, readOpenDeltas, id, id, from, below, maxBytes, most)
}

// pageOf is EntryPage by other statements, of entries whose deltas are in the log of a session.
func pageOf(ctx context.Context, run dialect.Runner, read, deltas *dialect.Statement, id, log, from, below string, maxBytes, most int) (entries []*session.Entry, more bool, err error) {
	size := 0
	if err := dialect.Query(ctx, run, read, nil, []any{id, from, below, int64(max(most, 1)) + 1, int64(max(maxBytes, 0))}, func(row dialect.Scanner) error {
		e, err := ScanEntry(row)
		if err != nil {
			return err
		}
		size += entrySize(e)
		if len(entries) > 0 && (size > maxBytes || len(entries) >= most) {
			more = true
			return dialect.ErrStopRows
		}
		entries = append(entries, e)
		return nil
	}); err != nil {
		return nil, false, err
	}
	if err := foldDeltasBy(ctx, run, deltas, log, entries); err != nil {
		return nil, false, err
	}
	return entries, more, nil
}

// FoldOpenDeltas adds to a session's entries the texts of their deltas.
func FoldOpenDeltas(ctx context.Context, run dialect.Runner, id string, entries []*session.Entry) error {
	return foldDeltasBy(ctx, run, readOpenDeltas, id, entries)
}

// foldDeltasBy is FoldOpenDeltas by a statement.
func foldDeltasBy(ctx context.Context, run dialect.Runner, read *dialect.Statement, id string, entries []*session.Entry) error {
	var grown []*session.Entry
	from, to := uint64(math.MaxInt64), uint64(0)
	var first, last string
	for _, e := range entries {
		if e.LastAppend > 0 {
			if grown = append(grown, e); len(grown) == 1 {
				first, last = e.Key, e.Key
			}
			from, to, first, last = min(from, e.Cursor), max(to, e.LastAppend), min(first, e.Key), max(last, e.Key)
		}
	}
	if len(grown) == 0 {
		return nil
	}
	texts := make(map[string][]delta, len(grown))
	for _, e := range grown {
		texts[e.Key] = nil
	}
	if err := dialect.Query(ctx, run, read, nil, []any{id, int64(from), int64(to), first, last}, func(row dialect.Scanner) error {
		d, err := scanDelta(row)
		if deltas, wanted := texts[d.key]; wanted {
			texts[d.key] = append(deltas, d)
		}
		return err
	}); err != nil {
		return err
	}
	for _, e := range grown {
		foldDeltas(e, texts[e.Key])
	}
	return nil
}

// foldDeltas folds a part's deltas into its payload.
func foldDeltas(e *session.Entry, deltas []delta) {
	var text []byte
	for _, d := range deltas {
		if d.cursor > e.Cursor {
			text = append(text, d.text...)
		}
	}
	if len(text) > 0 {
		e.Payload = session.FoldText(e.Payload, text)
	}
}
