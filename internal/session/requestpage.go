package session

// Reads of what is open or claimed: a page costs in proportion to that, however many requests a session had.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// RequestQuery is a request for a page of a session's requests that are open or claimed.
type RequestQuery struct {
	Kinds []string // nil: all
	After uint64   // the previous page's RequestPage.Next; 0: from the start
}

// maxQueryKinds bounds the kinds of a query.
const maxQueryKinds = 64

// Check refuses an invalid query.
func (q *RequestQuery) Check() *fault.Error {
	if q.Kinds != nil && (len(q.Kinds) == 0 || len(q.Kinds) > maxQueryKinds) {
		return fault.BadArgument.With("kinds are 1 to %d kinds of requests", maxQueryKinds)
	}
	for _, kind := range q.Kinds {
		if !capability.IsKind(kind) {
			return fault.BadArgument.With("%q is not a kind of requests: use prompt, stop, permission, question or one of your own", fault.Clip(kind))
		}
	}
	return nil
}

// Selects reports whether the query is for requests of a kind.
func (q *RequestQuery) Selects(kind string) bool {
	return q.Kinds == nil || slices.Contains(q.Kinds, kind)
}

// RequestPage is requests in the order in which they were asked, in one snapshot.
type RequestPage struct {
	Access
	Requests []*RequestInfo
	Next     uint64 // the After of the next page; 0: there are no others
}

// RequestInfo is a request as its two values are.
type RequestInfo struct {
	ID    string
	Asked *Entry
	State *Entry // nil: nothing has become of it, or the ref does not show what
}

// Cursor returns the cursor of the request's last change.
func (r *RequestInfo) Cursor() uint64 {
	if r.State != nil {
		return r.State.Cursor
	}
	return r.Asked.Cursor
}

func (p *RequestPage) access() *Access { return &p.Access }

func (p *RequestPage) limitedTo(g *capability.Grant) *RequestPage {
	if ShowsAll(g) {
		return p
	}
	shown := &RequestPage{Access: p.Access.limitedTo(g), Next: p.Next}
	for _, r := range p.Requests {
		if !ShowsEntry(g, r.Asked) {
			continue
		}
		if r.State != nil && !ShowsEntry(g, r.State) {
			r = &RequestInfo{ID: r.ID, Asked: r.Asked}
		}
		shown.Requests = append(shown.Requests, r)
	}
	return shown
}
