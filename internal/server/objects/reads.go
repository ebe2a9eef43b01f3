// Session.stat, get, list and search: how much a session has, the entries of keys, pages of a prefix's, and the entries
// that have some words. Handlers within the process have its open and claimed requests, too.

package objects

import (
	"cmp"
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// admit returns the check of a read within its snapshot: it counts a use of the method, or audits its
// refusal. to, if not nil, is set to the grant.
func (o *sess) admit(method string, to **capability.Grant) session.Admit {
	return func(at *session.Access) (*capability.Grant, error) {
		grant, refused := o.check(at, capability.Read, method)
		if refused != nil {
			return nil, refused
		}
		o.service.cfg.Usage.Record(o.conn.peer, grant, method, at.Row.Cursor)
		if to != nil {
			*to = grant
		}
		return grant, nil
	}
}

// readStat reads how much of the session the ref shows.
func (o *sess) readStat(ctx context.Context) (*session.Stat, *fault.Error) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	stat, err := o.service.cfg.Store.ReadStat(ctx, o.auth.Session, o.auth.Refs(), o.admit("stat", nil))
	return stat, fault.From(o.conn.log, err, "count what the session has")
}

// Stat returns how much of the session the ref shows. It needs the right to read.
func (h *Capability) Stat(ctx context.Context) (*session.Stat, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	stat, refused := o.readStat(ctx)
	return stat, errOrNil(refused)
}

func (o *sess) stat(ctx context.Context, c *rpc.Call) {
	stat, refused := o.readStat(ctx)
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		to, err := wire.Session_stat_Results(s).NewStat()
		if err != nil {
			return err
		}
		to.SetCursor(stat.Cursor)
		to.SetEvents(stat.Events)
		to.SetFirst(stat.First)
		to.SetLast(stat.Last)
		return codec.EncodeList(to.NewKinds, stat.Kinds, func(to wire.KindStat, kind session.KindStat) error {
			to.SetKeys(kind.Keys)
			to.SetBytes(kind.Bytes)
			return to.SetKind(kind.Kind)
		})
	})
}

// maxEntriesBytes is the limit of one answer of get and list.
const maxEntriesBytes = maxEventsBytes

// readKeys reads the entries of keys; next is the number of keys that were read.
func (o *sess) readKeys(ctx context.Context, keys []string) (page *session.KeyPage, next int, refused *fault.Error) {
	if refused := session.CheckKeys(keys); refused != nil {
		return nil, 0, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	var grant *capability.Grant
	found, next, err := o.service.cfg.Store.ReadKeys(ctx, o.auth.Session, keys, maxEntriesBytes, o.auth.Refs(), o.admit("get", &grant))
	if err != nil {
		return nil, 0, fault.From(o.conn.log, err, "read the keys")
	}
	return found.Shown(grant), next, nil
}

// listKeys reads a page of the keys below a prefix.
func (o *sess) listKeys(ctx context.Context, q session.KeyQuery) (*session.KeyPage, *fault.Error) {
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	var grant *capability.Grant
	found, err := o.service.cfg.Store.ListKeys(ctx, o.auth.Session, q, cmp.Or(q.MaxBytes, maxEntriesBytes), o.auth.Refs(), o.admit("list", &grant))
	if err != nil {
		return nil, fault.From(o.conn.log, err, "list the keys")
	}
	return found.Shown(grant), nil
}

// GetKeys returns the entries of 1 to session.MaxGetKeys keys, in their order and from one snapshot,
// about as many as an answer of the wires has. next is the number of keys that were read. Keys without
// a value, or that the ref does not show, have no entry. It needs the right to read.
func (h *Capability) GetKeys(ctx context.Context, keys []string) (page *session.KeyPage, next int, err error) {
	o, refused := h.session()
	if refused == nil {
		page, next, refused = o.readKeys(ctx, keys)
	}
	return page, next, errOrNil(refused)
}

// ListKeys returns a page of the keys below a prefix, of about as many bytes as an answer of the wires
// has. It needs the right to read.
func (h *Capability) ListKeys(ctx context.Context, q session.KeyQuery) (page *session.KeyPage, err error) {
	o, refused := h.session()
	if refused == nil {
		page, refused = o.listKeys(ctx, q)
	}
	return page, errOrNil(refused)
}

func (o *sess) get(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	var r codec.FieldReader
	list, err := wire.Session_get_Params(s).Keys()
	keys := r.Texts(list, err, session.MaxGetKeys)
	refused := r.Fault("the keys")
	var page *session.KeyPage
	next := 0
	if refused == nil {
		page, next, refused = o.readKeys(ctx, keys)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_get_Results(s)
		r.SetCursor(page.Row.Cursor)
		if page.More {
			r.SetNext(uint32(next))
		}
		return codec.EncodeEntryInfos(r.NewEntries, page.Entries)
	})
}

func (o *sess) list(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_list_Params(s)
	var r codec.FieldReader
	prefix, after, order := r.Text(p.Prefix()), r.Text(p.After()), r.Text(p.Order())
	refused := r.Fault("the call")
	q := session.KeyQuery{Prefix: prefix, After: after, Limit: int(p.Limit()), Values: p.Values(), Compacted: p.Compacted()}
	if refused == nil {
		q.Order, refused = session.ParseKeyOrder(order)
	}
	var page *session.KeyPage
	if refused == nil {
		page, refused = o.listKeys(ctx, q)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_list_Results(s)
		r.SetCursor(page.Row.Cursor)
		if r.SetMore(page.More); page.More {
			if err := r.SetNext(page.Next); err != nil {
				return err
			}
		}
		return codec.EncodeEntryInfos(r.NewEntries, page.Entries)
	})
}

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
	found, err := o.service.cfg.Store.Search(ctx, o.auth.Session, q, o.auth.Refs(), func(at *session.Access) (*capability.Grant, error) {
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
	var r codec.FieldReader
	q := session.SearchQuery{Text: r.Text(p.Query()), After: r.Text(p.After()), Limit: int(p.Limit())}
	refused := r.Fault("the call")
	var page *session.SearchPage
	if refused == nil {
		page, refused = o.findWords(ctx, q)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_search_Results(s)
		r.SetCursor(page.Row.Cursor)
		r.SetIndexing(page.Indexing)
		if err := r.SetNext(page.Next); err != nil {
			return err
		}
		return codec.EncodeList(r.NewFound, page.Found, codec.EncodeFound)
	})
}

// Requests returns a page of the session's requests that are open or claimed, in the order in which they were asked, of
// about as many bytes as an answer of the wires has. It needs the right to read.
func (h *Capability) Requests(ctx context.Context, q session.RequestQuery) (*session.RequestPage, error) {
	o, refused := h.session()
	if refused == nil {
		refused = q.Check()
	}
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	var grant *capability.Grant
	found, err := o.service.cfg.Store.ReadRequests(ctx, o.auth.Session, q, maxEntriesBytes, o.auth.Refs(), o.admit("requests", &grant))
	if err != nil {
		return nil, fault.From(o.conn.log, err, "read the requests")
	}
	return found.Shown(grant), nil
}
