// Session.search: the entries of a session that have some words.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// findWords reads a page of what a search finds.
func (o *sess) findWords(ctx context.Context, q session.SearchQuery) (*session.SearchPage, *fault.Error) {
	if _, refused := q.Parse(); refused != nil {
		return nil, refused
	}
	// A server of the previous version would not remove what is purged from the index.
	if refused := session.CheckFeatures(session.FeatureSearch, o.service.cfg.Features()); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	var grant *capability.Grant
	first := o.admit("search", &grant)
	found, err := o.service.cfg.Store.Search(ctx, o.auth.session, q, o.auth.Refs(), func(at *session.Access) (*capability.Grant, error) {
		if grant == nil {
			return first(at)
		}
		var refused *fault.Error
		if grant, refused = o.check(at, capability.Read, "search"); refused != nil { // of one use
			return nil, refused
		}
		return grant, nil
	})
	if err != nil {
		return nil, fault.From(o.conn.log, err, "search")
	}
	return found.Shown(grant), nil
}

// Search returns a page of the entries that a query finds. It needs the right to read.
func (h *Capability) Search(ctx context.Context, q session.SearchQuery) (page *session.SearchPage, err error) {
	o, refused := h.session()
	if refused == nil {
		page, refused = o.findWords(ctx, q)
	}
	return page, errOrNil(refused)
}

func (o *sess) search(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_search_Params(s)
	var r fieldReader
	q := session.SearchQuery{Text: r.text(p.Query()), After: r.text(p.After()), Limit: int(p.Limit())}
	refused := r.fault("the call")
	var page *session.SearchPage
	if refused == nil {
		page, refused = o.findWords(ctx, q)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_search_Results(s)
		r.SetCursor(page.Row.Cursor)
		r.SetIndexing(page.Indexing)
		if err := r.SetNext(page.Next); err != nil {
			return err
		}
		list, err := r.NewFound(int32(len(page.Found)))
		for i := 0; err == nil && i < len(page.Found); i++ {
			err = encodeFound(list.At(i), page.Found[i])
		}
		return err
	})
}

func encodeFound(to wire.Found, found *session.Found) error {
	entry, err := to.NewEntry()
	if err != nil {
		return err
	}
	if err := encodeEntryInfo(entry, found.EntryInfo); err != nil {
		return err
	}
	var w fieldWriter
	w.text(to.SetPlace, found.Place)
	pieces, err := to.NewExcerpt(int32(len(found.Excerpt)))
	w.do(err)
	for i := 0; w.err == nil && i < len(found.Excerpt); i++ {
		w.do(pieces.Set(i, found.Excerpt[i]))
	}
	return w.err
}
