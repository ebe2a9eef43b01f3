// Lists of sessions.

package reads

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	listOldest = dialect.Both("", sessionListSQL(`s.id > {2} ORDER BY s.id`, 2))
	listNewest = dialect.Both("", sessionListSQL(`s.id < {2} ORDER BY s.id DESC`, 2))

	// listChanged uses the index by minute of change, and sorts within a minute.
	listChanged = dialect.Both("", sessionListSQL(`s.minute <= {2} AND (s.updated, s.id) < ({3}, {4})
			ORDER BY s.minute DESC, s.updated DESC, s.id DESC`, 4))
	listTitled = dialect.Both("", sessionListSQL(`(s.title, s.id) > ({2}, {3}) ORDER BY s.title, s.id`, 3))

	// listChildren lists the children of a session.
	listChildren = dialect.Both("", listingSQL(`s.above = (SELECT `+txn.Chain+` FROM sessions t WHERE t.id = {1}) AND s.above <> '' AND s.id > {2} ORDER BY s.id`, 2))

	// readActivity reads of sessions, each with its cursor, by whom the last event is, and whether a turn is being written
	// at {1}.
	readActivity = dialect.Both("ti", `
		SELECT w.a, e.ref, e.actor, (SELECT count(*) FROM turns t {by turns_streaming} WHERE t.session = w.a AND t.status = 1 AND t.lease > {1})
		FROM {w} CROSS JOIN events e WHERE e.session = w.a AND e.cursor = w.b`)
)

// InfoPrefix selects the beginning of the info of a session s, mostly all of it: lists show titles,
// and an info may be of any size.
var InfoPrefix = fmt.Sprintf(`(SELECT substr(%s, 1, %d) FROM entries e WHERE e.session = s.id AND e.key = 'session')`, txn.EntryValue, MaxInfoBytes)

// MaxInfoBytes is how many bytes of an info are read for a list.
const MaxInfoBytes = 64 << 10

// sessionListSQL selects a space's sessions; part is the conditions and order of the list.
func sessionListSQL(part string, args int) string {
	return listingSQL(`s.space = {1} AND s.space <> '' AND `+part, args)
}

// listingSQL selects the sessions of a list; part, with so many arguments, is its conditions and order. Five more are the same for
// each (see listScan): of the list is skipped {offset}, and {bound} sessions are examined, of which at most {limit} are
// selected, the deleted ones too if {deleted} is 1, that may have the {search} text.
//
// Those are more than have it: titles are not up to date in titles_due, and SQLite's lower is that of ASCII. The info that has
// the title is read of the selected sessions only.
func listingSQL(part string, args int) string {
	names := []string{}
	for i, name := range []string{"{offset}", "{bound}", "{deleted}", "{search}", "{limit}"} {
		names = append(names, name, fmt.Sprintf("{%d}", args+1+i))
	}
	return strings.NewReplacer(names...).Replace(`SELECT ` + txn.SessionColumns + `, s.title, ` + InfoPrefix + ` FROM (
			SELECT ` + txn.SessionColumns + `, s.title FROM sessions s WHERE ` + part + ` LIMIT {bound} OFFSET {offset}) AS s
		WHERE (s.life <> 2 OR CAST({deleted} AS BIGINT) = 1) AND ({search} = ''
			OR {instr}(substr(s.title, 2), {search}) > 0 OR {instr}(lower(s.id), {search}) > 0 OR {instr}(lower(s.origin), {search}) > 0
			OR {instr}(lower(s.external), {search}) > 0 OR octet_length(s.external) > length(s.external)
			OR EXISTS (SELECT 1 FROM titles_due d WHERE d.session = s.id))
		LIMIT {limit}`)
}

// A page that is not full ends when the database has examined maxListScan sessions, or the titles of maxCompared have been
// read, so many at once.
const (
	maxListScan = 5000
	maxCompared = 2000
	listBatch   = 250
)

// ListSessions returns a page of a space's sessions, with at most maxTitleBytes of each title. The
// page's Access has the refs' rows and no session's.
func (s *Reads) ListSessions(ctx context.Context, space string, q session.ListQuery, refIDs []string) (*session.ListPage, error) {
	if err := txn.CheckText(space, q.After, q.Search, q.Parent); err != nil {
		return nil, err
	}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	if q.Order == session.ByTitle {
		s.refreshTitles(ctx)
	}
	page := &session.ListPage{}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, "", refIDs)
		if err := listPage(ctx, run, space, &q, page); err != nil || !q.Activity || len(page.Sessions) == 0 {
			return err
		}
		return addActivity(ctx, run, page)
	})
	return page, txn.Wrap("list sessions", err)
}

// addActivity adds what goes on in the sessions of a page.
func addActivity(ctx context.Context, run dialect.Runner, page *session.ListPage) error {
	at, rows := map[string]*session.Listing{}, [][]any{}
	for _, l := range page.Sessions {
		at[l.ID], rows = l, append(rows, []any{l.ID, int64(l.Cursor)})
	}
	return dialect.Query(ctx, run, readActivity, rows, []any{page.Now}, func(row dialect.Scanner) error {
		var id string
		var a session.Activity
		var running int64
		if err := row.Scan(&id, &a.Ref, &a.Actor, &running); err != nil {
			return err
		}
		a.Running = running > 0
		at[id].Activity = &a
		return nil
	})
}

// ReadChildren implements session.Reader.
func (s *Reads) ReadChildren(ctx context.Context, id, after string, limit int, refIDs []string, admit session.Admit) (*session.ListPage, error) {
	q := session.ListQuery{Parent: id, After: after, Limit: limit}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.ListPage{}
	var refused error
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var g *capability.Grant
		if g, refused = admit(&page.Access); refused != nil {
			return refused
		}
		if err := listPage(ctx, run, page.Row.Space, &q, page); err != nil {
			return err
		}
		page.Sessions = session.ChildrenShown(g, page.Sessions)
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	return page, txn.Wrap("list children", err)
}

// listPage fills a page.
func listPage(ctx context.Context, run dialect.Runner, space string, q *session.ListQuery, page *session.ListPage) error {
	limit := max(q.Limit, 1)
	at, refused := q.Position()
	if refused != nil {
		return refused
	}
	search := strings.ToLower(strings.TrimSpace(q.Search))
	for examined, compared := 0, 0; ; {
		from, seen, room, full, left := at, 0, limit-len(page.Sessions), false, false
		if search != "" || compared > 0 {
			room = max(room, listBatch)
		}
		scan := listScan{bound: maxListScan, deleted: q.Deleted, search: search, limit: room + 1}
		scan.queue(run, q, space, from, func(l *session.Listing, position session.ListPosition) {
			if left = full || seen == room; left {
				return
			}
			seen++
			if at = position; l.Space == space && q.Matches(l) {
				page.Sessions = append(page.Sessions, l)
				full = len(page.Sessions) == limit
			}
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if !left { // the list may still go on behind the bound
			more := false
			scan = listScan{offset: maxListScan - 1, bound: 1, deleted: true, limit: 1}
			scan.queue(run, q, space, from, func(_ *session.Listing, position session.ListPosition) { at, more = position, true })
			if err := run.Flush(ctx); err != nil || !more {
				return err
			}
			examined += maxListScan
		}
		compared += seen
		enough := examined >= maxListScan || compared >= maxCompared
		if full || enough && (q.Search != "" || len(page.Sessions) > 0) { // clients of earlier versions stop at an empty page
			page.Next = at.Text(q.Order)
			return nil
		}
	}
}

// listScan is what is examined of a list, and what is selected of that (see listingSQL).
type listScan struct {
	offset, bound int
	deleted       bool
	search        string
	limit         int
}

// queue reads what is selected after a position, each session with the position after it.
func (c *listScan) queue(run dialect.Runner, q *session.ListQuery, space string, from session.ListPosition, each func(*session.Listing, session.ListPosition)) {
	list, args := listFrom(q.Order, space, from)
	if q.Parent != "" {
		list, args = listChildren, []any{q.Parent, from.ID}
	}
	deleted := int64(0)
	if c.deleted {
		deleted = 1
	}
	args = append(args, int64(c.offset), int64(c.bound), deleted, c.search, int64(c.limit))
	run.Queue(list, nil, args, func(row dialect.Scanner) error {
		var title string
		var info []byte
		r, err := txn.ScanSession(row, &title, &info)
		if err == nil {
			each(&session.Listing{Row: *r, Title: InfoTitle(info)}, session.ListPosition{ID: r.ID, Updated: r.Updated, Title: title})
		}
		return err
	})
}

// listFrom returns the statement that reads a space's sessions after a position, with its first values.
func listFrom(order session.ListOrder, space string, at session.ListPosition) (*dialect.Statement, []any) {
	const behind = capability.SessionPrefix + "~" // above every id
	switch {
	case order == session.OldestFirst:
		return listOldest, []any{space, at.ID}
	case order == session.NewestFirst && at.ID == "":
		return listNewest, []any{space, behind}
	case order == session.NewestFirst:
		return listNewest, []any{space, at.ID}
	case order == session.ByTitle:
		return listTitled, []any{space, at.Title, at.ID}
	case at.ID == "":
		return listChanged, []any{space, int64(math.MaxInt64), int64(math.MaxInt64), behind}
	}
	return listChanged, []any{space, at.Updated / 60_000, at.Updated, at.ID}
}

// maxTitleBytes is the maximum length of a title in a list: writers may store an info of any size.
const maxTitleBytes = 256

// InfoTitle returns the title in the beginning of an info, cut to maxTitleBytes, in memory of its
// own.
func InfoTitle(info []byte) string {
	title := gjson.GetBytes(info, "title")
	if !title.Exists() && len(info) == MaxInfoBytes { // it may end within the title, perhaps behind a backslash
		title = gjson.GetBytes(append(info, `""`...), "title")
	}
	text := title.String()
	if len(text) <= maxTitleBytes {
		return text
	}
	n := maxTitleBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n])
}
