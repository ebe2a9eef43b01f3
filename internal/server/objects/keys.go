// Session.get, Session.list: the entries of keys, and pages of a prefix's.

package objects

import (
	"cmp"
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

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
	found, next, err := o.service.cfg.Store.ReadKeys(ctx, o.auth.session, keys, maxEntriesBytes, o.auth.Refs(), o.admit("get", &grant))
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
	found, err := o.service.cfg.Store.ListKeys(ctx, o.auth.session, q, cmp.Or(q.MaxBytes, maxEntriesBytes), o.auth.Refs(), o.admit("list", &grant))
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
	var r fieldReader
	list, err := wire.Session_get_Params(s).Keys()
	keys := r.texts(list, err, session.MaxGetKeys)
	refused := r.fault("the keys")
	var page *session.KeyPage
	next := 0
	if refused == nil {
		page, next, refused = o.readKeys(ctx, keys)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_get_Results(s)
		r.SetCursor(page.Row.Cursor)
		if page.More {
			r.SetNext(uint32(next))
		}
		return encodeEntryInfos(r.NewEntries, page.Entries)
	})
}

func (o *sess) list(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_list_Params(s)
	var r fieldReader
	prefix, after, order := r.text(p.Prefix()), r.text(p.After()), r.text(p.Order())
	refused := r.fault("the call")
	q := session.KeyQuery{Prefix: prefix, After: after, Limit: int(p.Limit()), Values: p.Values(), Compacted: p.Compacted()}
	if refused == nil {
		q.Order, refused = session.ParseKeyOrder(order)
	}
	var page *session.KeyPage
	if refused == nil {
		page, refused = o.listKeys(ctx, q)
	}
	if refused != nil {
		fail(c, refused)
		return
	}
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_list_Results(s)
		r.SetCursor(page.Row.Cursor)
		if r.SetMore(page.More); page.More {
			if err := r.SetNext(page.Next); err != nil {
				return err
			}
		}
		return encodeEntryInfos(r.NewEntries, page.Entries)
	})
}

func encodeEntryInfos(list func(int32) (wire.EntryInfo_List, error), entries []*session.EntryInfo) error {
	to, err := list(int32(len(entries)))
	for i := 0; err == nil && i < len(entries); i++ {
		err = encodeEntryInfo(to.At(i), entries[i])
	}
	return err
}
