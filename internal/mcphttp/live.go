// Sessions through live capabilities.

package mcphttp

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// source is what a ref reaches: the sessions of its space, or its session and those below it.
type source struct{ live *objects.Capability }

// List implements mcpserver.Source.
func (s source) List(ctx context.Context, search, after string, limit int) (list []mcpserver.Info, next string, err error) {
	if s.live.IsSpace() {
		q := session.ListQuery{Search: search, After: after, Limit: limit, Order: session.ChangedFirst}
		if refused := q.Check(); refused != nil {
			return nil, "", refused
		}
		page, err := s.live.List(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return infos(page.Sessions), page.Next, nil
	}
	if after == "" {
		own, err := one(s).Describe(ctx)
		if err != nil {
			return nil, "", err
		}
		if mcpserver.Matches(own, search) {
			list = append(list, own)
		}
	}
	page, err := s.live.Children(ctx, after, limit)
	switch fault.CodeOf(err) {
	case fault.None:
	case fault.MissingRight, fault.Unsupported: // a ref that does not reach them
		return list, "", nil
	default:
		return nil, "", err
	}
	for _, i := range infos(page.Sessions) {
		if mcpserver.Matches(i, search) {
			list = append(list, i)
		}
	}
	return list, page.Next, nil
}

func infos(listed []*session.Listing) (list []mcpserver.Info) {
	for _, l := range listed {
		list = append(list, info(&l.Row, l.Title))
	}
	return list
}

func info(r *session.Row, title string) mcpserver.Info {
	return mcpserver.Info{ID: r.ID, External: r.External, Title: title, Parent: r.Parent.Session, Cursor: r.Cursor, Updated: time.UnixMilli(r.Updated)}
}

// Open implements mcpserver.Source.
func (s source) Open(ctx context.Context, id string) (mcpserver.Session, error) {
	if s.live.Target() == id {
		return one(s), nil
	}
	open := s.live.OpenChild
	if s.live.IsSpace() {
		open = s.live.Open
	}
	live, err := open(ctx, id)
	if code := fault.CodeOf(err); !s.live.IsSpace() && (code == fault.MissingRight || code == fault.Unsupported) {
		return nil, fault.NotFound.With("the ref does not reach the session %s: list_sessions has those that it does", fault.Clip(id))
	}
	if err != nil {
		return nil, err
	}
	return one{live}, nil
}

// one is a session.
type one struct{ live *objects.Capability }

// Describe implements mcpserver.Session.
func (o one) Describe(ctx context.Context) (mcpserver.Info, error) {
	d, err := o.live.Describe(ctx)
	if err != nil {
		return mcpserver.Info{}, err
	}
	return info(d.Row, d.Title()), nil
}

// Keys implements mcpserver.Session.
func (o one) Keys(ctx context.Context, q session.KeyQuery) (list []mcpserver.Entry, next string, err error) {
	page, err := o.live.ListKeys(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if page.More {
		next = page.Next
	}
	return entries(page.Entries), next, nil
}

func entries(read []*session.EntryInfo) []mcpserver.Entry {
	list := make([]mcpserver.Entry, len(read))
	for i, e := range read {
		list[i] = entry(e)
	}
	return list
}

func entry(e *session.EntryInfo) mcpserver.Entry {
	return mcpserver.Entry{Key: e.Key, Value: e.Payload, Bytes: e.Bytes, Cursor: e.Change.Cursor, Actor: e.Change.Actor, At: time.UnixMilli(e.Change.At)}
}

// Get implements mcpserver.Session.
func (o one) Get(ctx context.Context, keys ...string) (list []mcpserver.Entry, err error) {
	for len(keys) > 0 {
		page, next, err := o.live.GetKeys(ctx, keys)
		if err != nil {
			return nil, err
		}
		list, keys = append(list, entries(page.Entries)...), keys[next:]
	}
	return list, nil
}

// Search implements mcpserver.Session.
func (o one) Search(ctx context.Context, q session.SearchQuery) (found mcpserver.Found, err error) {
	page, err := o.live.Search(ctx, q)
	if err != nil {
		return found, err
	}
	for _, f := range page.Found {
		found.Matches = append(found.Matches, mcpserver.Match{Entry: entry(f.EntryInfo), Excerpt: f.Excerpt})
	}
	found.Next, found.Indexing = page.Next, page.Indexing
	return found, nil
}

// Requests implements mcpserver.Session.
func (o one) Requests(ctx context.Context, kinds []string, after uint64) (list []mcpserver.Request, more bool, err error) {
	page, err := o.live.Requests(ctx, session.RequestQuery{Kinds: kinds, After: after})
	if err != nil {
		return nil, false, err
	}
	for _, r := range page.Requests {
		var state []byte
		if r.State != nil {
			state = r.State.Payload
		}
		shown, err := mcpserver.ParseRequest(r.ID, r.Asked.Payload, state)
		if err != nil {
			return nil, false, err
		}
		shown.Place = r.Asked.Cursor
		list = append(list, shown)
	}
	return list, page.Next != 0, nil
}

// Follow implements mcpserver.Session.
func (o one) Follow(ctx context.Context, keys []string, changed func() error) error {
	selected, refused := session.SelectKeys(keys)
	if refused != nil {
		return refused
	}
	d, err := o.live.Describe(ctx)
	if err == nil {
		err = changed()
	}
	if err != nil {
		return err
	}
	return o.live.Follow(ctx, fanout.Position{Cursor: d.Row.Cursor}, selected, func(events []*session.Event) error {
		for _, e := range events {
			if !e.Hidden {
				return changed()
			}
		}
		return nil
	})
}

// Apply implements mcpserver.Session.
func (o one) Apply(ctx context.Context, ops ...mcpserver.Op) (mcpserver.Applied, error) {
	batch := ulid.Make().String()
	intents := make([]ledger.Intent, len(ops))
	for i, op := range ops {
		intents[i] = ledger.Intent{OpID: ulid.Make().String(), BatchID: batch, Session: o.live.Target(), Method: op.Method, Args: op.Args}
	}
	cursor, err := o.live.ApplyDirect(ctx, intents...)
	return mcpserver.Applied{Cursor: cursor}, err
}
