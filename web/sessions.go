// /sessions: what a space's ref may list, searched and sorted.
//
// The store lists sessions by id, oldest first. Sorted by start, upwards, the list
// goes on from page to page like that, however many there are. Any other order is
// that of the newest sessions alone where there are more than Config.SessionsLimit,
// and the page says so.

package web

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/page"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

// Bounds of a list's page and of what asks for it.
const (
	rowsAtOnce  = 50
	maxQuery    = 200 // bytes of a search
	maxTitle    = 300 // bytes of a title that are shown and sorted by
	listedPiece = 500 // sessions read at a time
)

// wanted is what a list is asked for.
type wanted struct {
	query string // as typed
	sort  string // updated, created or title
	order string // asc or desc
	page  int    // from 0, of an order that is not the ids'
	after string // the id to go on after, of the ids' order
}

// byID says that the list goes through the ids.
func (l *wanted) byID() bool { return l.sort == "created" && l.order == "asc" }

// parseWanted reads a list's query. What it does not know takes its default.
func parseWanted(v url.Values) (wanted, error) {
	l := wanted{query: v.Get("q"), sort: v.Get("sort"), order: v.Get("order"), after: v.Get("after")}
	if len(l.query) > maxQuery || !utf8.ValidString(l.query) {
		return l, fault.BadArgument.With("a search is text of at most %d bytes", maxQuery)
	}
	if l.sort != "created" && l.sort != "title" {
		l.sort = "updated"
	}
	if l.order != "asc" && l.order != "desc" {
		l.order = "desc"
		if l.sort == "title" {
			l.order = "asc"
		}
	}
	if n, err := strconv.Atoi(v.Get("page")); err == nil && n > 0 && n < 1<<20 {
		l.page = n
	}
	if !l.byID() {
		l.after = ""
	} else if l.after != "" && !capability.IsSession(l.after) {
		return l, fault.BadArgument.With("a list goes on after a session's id")
	}
	return l, nil
}

// link is the path of the same list from another place.
func (l *wanted) link(name, value string) string {
	v := url.Values{"sort": {l.sort}, "order": {l.order}}
	if l.query != "" {
		v.Set("q", l.query)
	}
	if value != "" {
		v.Set(name, value)
	}
	return "/sessions?" + v.Encode()
}

// sessions answers with the list, or asks for a ref that may see one.
func (q *request) sessions() {
	if q.token == "" {
		q.html(func(w io.Writer) error { return page.SignIn(w, q.base) })
		return
	}
	held, err := q.acting(q.caller(), "")
	var list page.List
	if err == nil {
		list, err = q.list(held)
	}
	if err != nil {
		q.refuse(err)
		return
	}
	q.html(func(w io.Writer) error { return page.Sessions(w, list) })
}

// list reads and arranges what is asked for.
func (q *request) list(held *server.Held) (page.List, error) {
	l, err := parseWanted(q.r.URL.Query())
	if err != nil {
		return page.List{}, err
	}
	if err := q.site.render(q.r.Context()); err != nil {
		return page.List{}, err
	}
	defer q.site.rendered()
	list := page.List{Base: q.base, Query: l.query, Sort: l.sort, Order: l.order}
	if l.byID() {
		err = q.walk(held, &l, &list)
	} else {
		err = q.arrange(held, &l, &list)
	}
	if err == nil {
		err = q.linkRows(list.Rows)
	}
	return list, err
}

// walk fills the list with the next rows by id, looking at no more sessions than
// one list may.
func (q *request) walk(held *server.Held, l *wanted, list *page.List) error {
	after, looked := l.after, 0
	if after != "" {
		list.Prev = l.link("after", "") // there is no way back but to the start
	}
	for looked < q.site.cfg.SessionsLimit {
		found, more, err := held.List(q.r.Context(), after, min(listedPiece, q.site.cfg.SessionsLimit-looked))
		if err != nil {
			return err
		}
		for _, s := range found {
			after, looked = s.ID, looked+1
			if row := rowOf(s); row.matches(l.query) {
				list.Rows = append(list.Rows, row.Row)
			}
			if len(list.Rows) == rowsAtOnce {
				list.Next = l.link("after", after)
				return nil
			}
		}
		if !more {
			return nil
		}
	}
	list.Next = l.link("after", after)
	if l.query != "" {
		list.Note = fmt.Sprintf("%d sessions were searched on this page: the next one goes on.", looked)
	}
	return nil
}

// arrange fills the list with a page of the sessions in another order than the ids'.
func (q *request) arrange(held *server.Held, l *wanted, list *page.List) error {
	rows, all, err := q.newest(held, l.query)
	if err != nil {
		return err
	}
	if !all {
		list.Note = fmt.Sprintf("There are more than %d sessions: these are of the newest. Sorted by start, upwards, the list shows all.", q.site.cfg.SessionsLimit)
	}
	slices.SortFunc(rows, func(a, b row) int {
		by := 0
		switch l.sort {
		case "title":
			by = cmp.Compare(a.sorted, b.sorted)
		case "created":
			by = cmp.Compare(a.Created, b.Created)
		default:
			by = cmp.Compare(a.Updated, b.Updated)
		}
		if l.order == "desc" {
			by = -by
		}
		return cmp.Or(by, cmp.Compare(a.ID, b.ID))
	})
	from := min(l.page*rowsAtOnce, len(rows))
	to := min(from+rowsAtOnce, len(rows))
	for _, r := range rows[from:to] {
		list.Rows = append(list.Rows, r.Row)
	}
	if l.page > 0 {
		list.Prev = l.link("page", strconv.Itoa(l.page-1))
	}
	if to < len(rows) {
		list.Next = l.link("page", strconv.Itoa(l.page+1))
	}
	return nil
}

// Where there are too many sessions to look at, the newest are looked for in
// pieces of time from now on backwards, each twice as long as the one before. The
// last of so many is all the time before.
const (
	firstAge = time.Hour
	ages     = 19 // some 30 years
)

// newest gives the sessions that match; all says that every one was looked at, and
// not only the newest by their ids' times.
func (q *request) newest(held *server.Held, query string) (rows []row, all bool, err error) {
	budget := q.site.cfg.SessionsLimit
	rows, _, more, err := q.between(held, query, "", "", budget)
	if err != nil || !more {
		return rows, true, err
	}
	rows, below := nil, ""
	now := time.Now()
	for i := 0; i <= ages && budget > 0; i++ {
		after := ""
		if i < ages {
			after = idAt(now.Add(-firstAge << i))
		}
		found, n, _, err := q.between(held, query, after, below, budget)
		if err != nil {
			return nil, false, err
		}
		rows, budget, below = append(rows, found...), budget-n, after
	}
	return rows, false, nil
}

// between gives the matching sessions with ids above after and, if it is not "",
// below below. looked is how many were looked at: no more than limit.
func (q *request) between(held *server.Held, query, after, below string, limit int) (rows []row, looked int, more bool, err error) {
	for more = true; more && looked < limit; {
		var found []*session.Listing
		if found, more, err = held.List(q.r.Context(), after, min(listedPiece, limit-looked)); err != nil {
			return nil, looked, false, err
		}
		for _, s := range found {
			if below != "" && s.ID >= below {
				return rows, looked, false, nil
			}
			after, looked = s.ID, looked+1
			if row := rowOf(s); row.matches(query) {
				rows = append(rows, row)
			}
		}
	}
	return rows, looked, more, nil
}

// idAt is before every session's id of a time and after.
func idAt(at time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(at)) // not beyond the year 10889
	return capability.SessionPrefix + id.String()
}

// row is a session of the list, with what it is sorted by.
type row struct {
	page.Row
	sorted string // its title, without what case makes of it
}

func rowOf(s *session.Listing) row {
	title := s.Title
	if len(title) > maxTitle {
		title = strings.ToValidUTF8(title[:maxTitle], "")
	}
	return row{Row: page.Row{Title: strings.Clone(title), ID: s.ID, External: s.External, Created: s.Created, Updated: s.Updated, Cursor: s.Cursor},
		sorted: strings.ToLower(title)}
}

// matches says whether a search finds the session: in its title or ids.
func (r *row) matches(query string) bool {
	query = strings.ToLower(query)
	return strings.Contains(r.sorted, query) || strings.Contains(strings.ToLower(r.External), query) || strings.Contains(strings.ToLower(r.ID), query)
}

// linkRows has the rows of publicly shared sessions lead to their pages.
func (q *request) linkRows(rows []page.Row) error {
	if q.site.shares == nil || len(rows) == 0 {
		return nil
	}
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	public, err := q.site.shares.PublicIDs(q.r.Context(), ids)
	for i := range rows {
		if id := public[rows[i].ID]; id != "" {
			rows[i].Link = "/share/" + id
		}
	}
	return err
}
