// Pages of a tree of refs.

package reads

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	// readTree walks the tree of the ref {1}.{2}, depth first, from {3}.{4} on, until it has found
	// {6} refs; {5} is 1 if the first counts as one of them. Its cost is that of the page, however
	// large the tree is.
	readTree = treeWalk()

	// readLineageIDs reads a ref and its ancestors, up to the one without a parent.
	readLineageIDs = dialect.Both("", `
		WITH RECURSIVE line(target, tail, up) AS (
			SELECT g.target, g.tail, 0 FROM grants g WHERE g.target = {1} AND g.tail = {2}
			UNION ALL
			SELECT g.parent_target, g.parent_tail, line.up + 1 FROM line CROSS JOIN grants g
			WHERE g.target = line.target AND g.tail = line.tail AND g.parent_target <> '')
		SELECT line.target, line.tail FROM line ORDER BY line.up`)
)

// treeWalk returns readTree. A step of the walk goes down to a ref: to its first child or to its
// next sibling; or back up to its parent if there is neither. Children are ordered by creation, so
// that a new one mostly comes last.
func treeWalk() *dialect.Statement {
	ways := func(place string) string {
		return `
			SELECT 0 AS way, c.* FROM (
				SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
				WHERE w.down = 1 AND g.parent_target = w.target AND g.parent_tail = w.tail
				ORDER BY g.created, g.target, g.tail LIMIT 1) AS c
			UNION ALL
			SELECT 1, s.* FROM (
				SELECT g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
				WHERE (w.target, w.tail) <> ({1}, {2}) AND g.parent_target = w.parent_target AND g.parent_tail = w.parent_tail
				AND (g.created, g.target, g.tail) > ` + place + `
				ORDER BY g.created, g.target, g.tail LIMIT 1) AS s
			UNION ALL
			SELECT 2, g.target, g.tail, g.parent_target, g.parent_tail, g.created FROM grants g
			WHERE (w.target, w.tail) <> ({1}, {2}) AND g.target = w.parent_target AND g.tail = w.parent_tail`
	}
	// Each database has a fast plan for only one of these, and on the other form fails or reads all
	// refs. SQLite uses all columns of the index for a row comparison only if its values are no
	// plain columns: hence the + signs.
	onPostgres := `CROSS JOIN LATERAL (
			SELECT * FROM (` + ways(`(w.created, w.target, w.tail)`) + `) AS y ORDER BY y.way LIMIT 1) AS x WHERE w.n < {6}`
	onSQLite := `CROSS JOIN grants x WHERE w.n < {6} AND (x.target, x.tail) = (
			SELECT y.target, y.tail FROM (` + ways(`(+w.created, +w.target, +w.tail)`) + `) AS y ORDER BY y.way LIMIT 1)`
	text := func(step string) string {
		const down = `CASE WHEN x.target = w.parent_target AND x.tail = w.parent_tail THEN 0 ELSE 1 END`
		return `
		WITH RECURSIVE walk(step, n, down, target, tail, parent_target, parent_tail, created) AS (
			SELECT 0, CAST({5} AS bigint), 1, g.target, g.tail, g.parent_target, g.parent_tail, g.created
			FROM grants g WHERE g.target = {3} AND g.tail = {4}
			UNION ALL
			SELECT w.step + 1, w.n + ` + down + `, ` + down + `, x.target, x.tail, x.parent_target, x.parent_tail, x.created
			FROM walk w ` + step + `),
		page AS (SELECT step, target, tail FROM walk WHERE down = 1 AND n > 0)
		SELECT ` + txn.GrantColumns + `, COALESCE(s.epoch, 0), COALESCE(u.uses, 0), COALESCE(u.last, 0)
		FROM page CROSS JOIN grants g
		LEFT JOIN sessions s ON s.id = g.target
		LEFT JOIN uses u ON u.target = g.target AND u.tail = g.tail
		WHERE g.target = page.target AND g.tail = page.tail
		ORDER BY page.step`
	}
	s := dialect.Both("", text(onPostgres))
	s.SQLite = dialect.Both("", text(onSQLite)).SQLite
	return s
}

// ReadTree returns a page of the refs below q.Under, that ref first, from the position q.After on.
// The page's Access has the rows of the session id ("" for none) and of refIDs.
func (s *Reads) ReadTree(ctx context.Context, id string, q session.TreeQuery, refIDs []string) (*session.TreePage, error) {
	under, after, limit := q.Under, q.After, max(q.Limit, 1)
	if err := txn.CheckText(under, after); err != nil {
		return nil, err
	}
	page := &session.TreePage{}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		start, first, up := under, int64(1), []string(nil)
		queueLineage(run, under, &page.Lineage)
		if after != "" {
			start, first = session.TreePositionRef(after), 0
			queueLineage(run, start, &up)
			if err := run.Flush(ctx); err != nil {
				return err
			}
			end := slices.Index(up, under)
			if up = up[:end+1]; !session.IsTreePosition(after, up) {
				page.Moved = true
				return nil
			}
		}
		target, tail := txn.SplitRef(under)
		startTarget, startTail := txn.SplitRef(start)
		run.Queue(readTree, nil, []any{target, tail, startTarget, startTail, first, int64(limit) + 1}, func(row dialect.Scanner) error {
			if len(page.Rows) == limit {
				page.Next = session.TreePosition(lineageOf(page.Rows, up))
				return nil
			}
			r := session.TreeRow{}
			var epoch, uses int64
			g, err := txn.ScanGrant(row, &epoch, &uses, &r.LastUsed)
			if err != nil {
				return err
			}
			r.Grant, r.Epoch, r.Uses = g, uint64(epoch), uint64(uses)
			page.Rows = append(page.Rows, r)
			return nil
		})
		return nil
	})
	return page, txn.Wrap("read refs", err)
}

// queueLineage queues a read of the ids from a ref up to its root.
func queueLineage(run dialect.Runner, ref string, to *[]string) {
	target, tail := txn.SplitRef(ref)
	run.Queue(readLineageIDs, nil, []any{target, tail}, func(row dialect.Scanner) error {
		var target, tail string
		err := row.Scan(&target, &tail)
		*to = append(*to, txn.JoinRef(target, tail))
		return err
	})
}

// lineageOf returns the ids from the last of a page's rows up to the ref whose tree it is; up is
// the same for the ref that the page continues after.
func lineageOf(rows []session.TreeRow, up []string) (line []string) {
	parent := ""
	for i, r := range slices.Backward(rows) { // each row comes after its parent
		if i == len(rows)-1 || r.Grant.ID == parent {
			line, parent = append(line, r.Grant.ID), r.Grant.Parent
		}
	}
	if i := slices.Index(up, parent); i >= 0 {
		line = append(line, up[i:]...)
	}
	return line
}
