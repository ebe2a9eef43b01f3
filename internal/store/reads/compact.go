// The compacted view: reads without the messages that a summary stands for.

package reads

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	// readLeftOut reads the messages up to a place in the session's order, by the index alone.
	readLeftOut = dialect.Both("", `
		SELECT e.key FROM entries e WHERE e.session = {1} AND {kind} = 'message' AND (e.ord, e.ord_index, e.key) <= ({2}, {3}, {4})
		ORDER BY e.ord, e.ord_index, e.key`)

	// findFilled returns the first keys of those ranges that have entries: one seek for each.
	findFilled = dialect.Both("tt", `
		SELECT w.a FROM {w} WHERE EXISTS (SELECT 1 FROM entries e WHERE e.session = {1} AND e.key >= w.a AND e.key < w.b)`)
)

// leftOut returns the ids of the messages that a compacted view leaves out, in the session's order.
func leftOut(ctx context.Context, run dialect.Runner, hide *hiding, c *session.Compaction) (ids []string, err error) {
	var keys []string
	if err := dialect.Query(ctx, run, readLeftOut, nil, []any{hide.session, int64(c.Ord.At), int64(c.Ord.Index), c.Upto}, dialect.Collect(&keys, dialect.ScanText)); err != nil {
		return nil, err
	}
	for piece := range slices.Chunk(keys, 1000) {
		if err := hide.look(ctx, piece); err != nil {
			return nil, err
		}
	}
	for _, key := range keys {
		if head := hide.heads[key]; key != c.Summary && (head == nil || !hide.reverts.Hides(head, head)) {
			ids = append(ids, strings.TrimPrefix(key, session.MessageKey("")))
		}
	}
	return ids, nil
}

// withoutMessages returns the ranges of keys, in order, without messages and their parts, as far as they have
// entries: what is between two messages is mostly nothing.
func withoutMessages(ctx context.Context, run dialect.Runner, id string, ranges []session.KeyRange, messages []string) ([]session.KeyRange, error) {
	pieces := cutRanges(ranges, messages)
	filled := make(map[string]bool, len(pieces))
	for some := range slices.Chunk(pieces, 1000) {
		list := make([][]any, len(some))
		for i, r := range some {
			list[i] = []any{r.From, r.Below}
		}
		run.Queue(findFilled, list, []any{id}, func(row dialect.Scanner) error {
			from, err := dialect.ScanText(row)
			filled[from] = true
			return err
		})
	}
	err := run.Flush(ctx)
	return slices.DeleteFunc(pieces, func(r session.KeyRange) bool { return !filled[r.From] }), err
}

// cutRanges returns ranges of keys, in order, without those of messages and their parts.
func cutRanges(ranges []session.KeyRange, messages []string) (pieces []session.KeyRange) {
	cuts := make([]session.KeyRange, 0, 2*len(messages))
	for _, message := range messages {
		from, below := txn.PartRange(message)
		key := session.MessageKey(message)
		cuts = append(cuts, session.KeyRange{From: key, Below: txn.KeyAfter(key)}, session.KeyRange{From: from, Below: below})
	}
	slices.SortFunc(cuts, func(a, b session.KeyRange) int { return cmp.Compare(a.From, b.From) })
	for _, r := range ranges {
		first, _ := slices.BinarySearchFunc(cuts, r.From, func(cut session.KeyRange, from string) int { return cmp.Compare(cut.Below, from) })
		for _, cut := range cuts[first:] {
			if cut.From >= r.Below {
				break
			}
			if cut.From > r.From {
				pieces = append(pieces, session.KeyRange{Kind: r.Kind, From: r.From, Below: cut.From})
			}
			r.From = cut.Below
		}
		if r.From < r.Below {
			pieces = append(pieces, r)
		}
	}
	return pieces
}
