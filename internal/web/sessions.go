// /sessions: the list of a space's sessions that a ref may see. The database sorts and searches.

package web

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Bounds of one page of the list.
const (
	rowsPerPage = 50
	maxTitle    = 300 // bytes of a title shown
)

// parseList parses the list's parameters. An unknown order is the last change.
func parseList(v url.Values) (session.ListQuery, *fault.Error) {
	q := session.ListQuery{Order: session.ChangedFirst, After: v.Get("after"), Search: strings.TrimSpace(v.Get("q")), Deleted: v.Get("deleted") == "1"}
	if order, refused := session.ParseListOrder(v.Get("order")); refused == nil && v.Get("order") != "" {
		q.Order = order
	}
	return q, q.Check()
}

// listLink returns the path of the same list from another position; "" is its start.
func listLink(q session.ListQuery, after string) string {
	v := url.Values{"order": {q.Order.String()}}
	if q.Search != "" {
		v.Set("q", q.Search)
	}
	if q.Deleted {
		v.Set("deleted", "1")
	}
	if after != "" {
		v.Set("after", after)
	}
	return "/sessions?" + v.Encode()
}

// serveSessions writes the list, or the page that asks for a ref.
func (q *request) serveSessions() error {
	if q.token == "" {
		return q.serveSignIn()
	}
	space, err := q.fromToken(q.caller())
	var list page.List
	if err == nil {
		list, err = q.readList(space)
	}
	if err != nil {
		return err
	}
	q.writeHTML(http.StatusOK, func(w io.Writer) error { return page.Sessions(w, list) })
	return nil
}

// serveSignIn writes the page that asks for a space's ref.
func (q *request) serveSignIn() error {
	q.writeHTML(http.StatusOK, func(w io.Writer) error { return page.SignIn(w, q.base) })
	return nil
}

// readList reads one page of the list.
func (q *request) readList(space *objects.Capability) (page.List, error) {
	asked, refused := parseList(q.r.URL.Query())
	if refused != nil {
		return page.List{}, refused
	}
	if err := q.site.acquireRender(q.r.Context()); err != nil {
		return page.List{}, err
	}
	defer q.site.releaseRender()
	desc, err := space.Describe(q.r.Context())
	if err != nil {
		return page.List{}, err
	}
	manages := desc.Grant.Rights.Has(capability.Manage)
	asked.Activity = manages
	list := page.List{Access: len(mayOf(space, desc.Grant)) > 0, Base: q.base, Query: asked.Search, Order: asked.Order.String(), Deleted: asked.Deleted}
	if asked.After != "" {
		list.First = listLink(asked, "")
	}
	piece := asked
	for range q.site.cfg.ListReads {
		piece.Limit = rowsPerPage - len(list.Rows)
		found, err := space.List(q.r.Context(), piece)
		if err != nil {
			return list, err
		}
		for _, one := range found.Sessions {
			row := rowOf(one)
			if manages && one.Life == session.Live {
				row.Link = "/sessions/" + one.ID
			}
			list.Rows = append(list.Rows, row)
		}
		piece.After = found.Next
		if piece.After == "" || len(list.Rows) == rowsPerPage {
			break
		}
	}
	if piece.After != "" {
		list.Next = listLink(asked, piece.After)
		if len(list.Rows) < rowsPerPage {
			list.Note = "There are many sessions, and the search has not been through all of them: More goes on with it."
		}
	}
	return list, q.linkRows(list.Rows)
}

func rowOf(s *session.Listing) page.Row {
	title := s.Title
	if len(title) > maxTitle {
		title = strings.ToValidUTF8(title[:maxTitle], "")
	}
	row := page.Row{Title: strings.Clone(title), ID: s.ID, External: s.External, Created: s.Created, Updated: s.Updated, Cursor: s.Cursor,
		Deleted: s.Life == session.Deleted, Bytes: s.Bytes}
	if a := s.Activity; a != nil {
		row.Running, row.By = a.Running, cmp.Or(a.Actor, a.Ref)
	}
	return row
}

// linkRows links the rows of publicly shared sessions to their pages.
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
			if rows[i].Link == "" {
				rows[i].Link = "/share/" + id
			} else {
				rows[i].Public = "/share/" + id
			}
		}
	}
	return err
}
