// mooring mcp: sessions through a client and its outbox.

package agentcmd

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
	"github.com/mooring-rpc/mooring/internal/session"
)

// mcpSource is the sessions that some refs reach.
type mcpSource struct {
	home   *home.Folder
	client *client.Client
	roots  []mcpRoot

	mu    sync.Mutex
	found map[string]*client.Session // those opened so far, of more than one root
}

// mcpRoot is what a REF is of: a session or a space.
type mcpRoot struct {
	session *client.Session
	space   *client.Space
}

// all yields what a root reaches that has a text in its title or id.
func (r mcpRoot) all(ctx context.Context, search string) iter.Seq2[client.SessionInfo, error] {
	if r.space != nil {
		return r.space.List(ctx, client.ListOptions{Order: client.ChangedFirst, Search: search})
	}
	return func(yield func(client.SessionInfo, error) bool) {
		d, err := r.session.Describe(ctx)
		if !yield(d.Session, err) || err != nil {
			return
		}
		for info, err := range r.session.Children(ctx) {
			if code := fault.CodeOf(err); code == fault.MissingRight || code == fault.Unsupported { // it does not reach them
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// List implements mcpserver.Source. after is how many were listed before.
func (from *mcpSource) List(ctx context.Context, search, after string, limit int) (list []mcpserver.Info, next string, err error) {
	skip := 0
	if after != "" {
		if skip, err = strconv.Atoi(after); err != nil || skip < 0 {
			return nil, "", fault.BadArgument.With("after is the next of the previous page")
		}
	}
	n := 0
	for _, r := range from.roots {
		for i, err := range r.all(ctx, search) {
			if err != nil {
				return nil, "", err
			}
			info := mcpInfo(i)
			if r.session != nil && !mcpserver.Matches(info, search) {
				continue
			}
			if n++; n <= skip {
				continue
			}
			if len(list) == limit {
				return list, strconv.Itoa(skip + limit), nil
			}
			list = append(list, info)
		}
	}
	return list, "", nil
}

func mcpInfo(i client.SessionInfo) mcpserver.Info {
	return mcpserver.Info{ID: i.ID, External: i.External, Title: i.Title, Parent: i.Parent.Session, Cursor: i.Cursor, Updated: i.Updated}
}

// Open implements mcpserver.Source.
func (from *mcpSource) Open(ctx context.Context, id string) (mcpserver.Session, error) {
	s, err := from.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return mcpSession{from, s}, nil
}

// session returns a session by its id. With one root no server is asked: what is written waits in the outbox without one.
func (from *mcpSource) session(ctx context.Context, id string) (*client.Session, error) {
	for _, r := range from.roots {
		if r.session != nil && r.session.ID() == id {
			return r.session, nil
		}
	}
	if len(from.roots) == 1 {
		return from.roots[0].open(id)
	}
	from.mu.Lock()
	known := from.found[id]
	from.mu.Unlock()
	if known != nil {
		return known, nil
	}
	err := error(fault.NotFound.With("no REF reaches the session %s: list_sessions has those that they reach", fault.Clip(id)))
	for _, r := range from.roots {
		s, bad := r.open(id)
		if bad != nil {
			return nil, bad
		}
		if _, bad = s.Describe(ctx); bad == nil {
			from.mu.Lock()
			defer from.mu.Unlock()
			if from.found == nil {
				from.found = map[string]*client.Session{}
			}
			from.found[id] = s
			return s, nil
		}
		if fault.CodeOf(bad).Transient() {
			err = bad
		}
	}
	return nil, err
}

func (r mcpRoot) open(id string) (*client.Session, error) {
	if r.space != nil {
		return r.space.Open(id)
	}
	return r.session.Open(id)
}

// mcpSession is a session.
type mcpSession struct {
	from *mcpSource
	s    *client.Session
}

// Describe implements mcpserver.Session.
func (o mcpSession) Describe(ctx context.Context) (mcpserver.Info, error) {
	d, err := o.s.Describe(ctx)
	return mcpInfo(d.Session), err
}

// Keys implements mcpserver.Session.
func (o mcpSession) Keys(ctx context.Context, q session.KeyQuery) ([]mcpserver.Entry, string, error) {
	page, err := o.s.ListPage(ctx, client.KeyOptions{Prefix: q.Prefix, Order: client.KeyOrder(q.Order.String()), Values: q.Values}, q.After, uint32(q.Limit))
	return mcpEntries(page), page.Next, err
}

func mcpEntries(page client.EntryPage) []mcpserver.Entry {
	list := make([]mcpserver.Entry, len(page.Entries))
	for i, e := range page.Entries {
		list[i] = mcpEntry(e)
	}
	return list
}

func mcpEntry(e client.EntryInfo) mcpserver.Entry {
	return mcpserver.Entry{Key: e.Key, Value: e.Payload, Bytes: e.Bytes, Cursor: e.Cursor, Actor: e.Actor, At: e.At}
}

// Get implements mcpserver.Session.
func (o mcpSession) Get(ctx context.Context, keys ...string) ([]mcpserver.Entry, error) {
	page, err := o.s.Get(ctx, keys...)
	return mcpEntries(page), err
}

// Search implements mcpserver.Session.
func (o mcpSession) Search(ctx context.Context, q session.SearchQuery) (found mcpserver.Found, err error) {
	page, err := o.s.SearchPage(ctx, q.Text, q.After, uint32(q.Limit))
	for _, f := range page.Found {
		found.Matches = append(found.Matches, mcpserver.Match{Entry: mcpEntry(f.EntryInfo), Excerpt: f.Excerpt})
	}
	found.Next, found.Indexing = page.Next, page.Indexing
	return found, err
}

// Requests implements mcpserver.Session.
func (o mcpSession) Requests(ctx context.Context, kinds []string, after uint64) (list []mcpserver.Request, more bool, err error) {
	place := uint64(0)
	for r, err := range o.s.ListRequests(ctx, client.RequestOptions{Kinds: kinds}) {
		if err != nil {
			return nil, false, err
		}
		if place++; place <= after {
			continue
		}
		shown := mcpserver.Request{ID: r.ID, Place: place, Kind: r.Kind, Message: r.Message, Payload: r.Payload, AskedBy: r.AskedBy, Asked: r.AskedAt, Expires: r.Expires,
			State: session.RequestState(r.State), Choice: r.Choice, Answer: r.Answer, By: r.By, Reason: r.Reason}
		for _, c := range r.Choices {
			shown.Choices = append(shown.Choices, mcpserver.Choice{ID: c.ID, Label: c.Label})
		}
		list = append(list, shown)
	}
	return list, false, nil
}

// Follow implements mcpserver.Session.
func (o mcpSession) Follow(ctx context.Context, keys []string, changed func() error) error {
	d, err := o.s.Describe(ctx)
	if err == nil {
		err = changed()
	}
	if err != nil {
		return err
	}
	options := client.SubscribeOptions{After: d.Session.Cursor, Keys: keys, StartOver: func(*client.State) error { return changed() }}
	return o.s.Subscribe(ctx, options, func(e client.Event) error {
		if e.Hidden {
			return nil
		}
		return changed()
	})
}

// Apply implements mcpserver.Session. The ops are durable in the outbox; what the server makes of them is waited for while
// one can be reached.
func (o mcpSession) Apply(ctx context.Context, ops ...mcpserver.Op) (done mcpserver.Applied, err error) {
	b := o.s.Batch()
	if len(ops) > 1 {
		b.Atomic()
	}
	for _, op := range ops {
		args := make([]client.Arg, len(op.Args))
		for i, a := range op.Args {
			args[i] = client.Arg{Name: a.Name, Value: json.RawMessage(a.JSON)}
		}
		b.Do(op.Method, args...)
	}
	ticket, err := b.Commit(ctx)
	if err != nil {
		return done, err
	}
	wait, stop := home.WhileReachable(ctx, o.from.client, 0)
	defer stop()
	results, still, err := home.AwaitResults(ctx, wait, o.from.client, ticket)
	switch {
	case err != nil:
		return done, err
	case still != nil: // else it would be applied later, when nobody expects it any more
		return done, errors.Join(home.StoppedError(still), home.DropBatch(ctx, o.from.client, ticket))
	case results == nil:
		return mcpserver.Applied{Queued: true}, nil
	}
	if i := slices.IndexFunc(results, func(r client.Outcome) bool { return r.Err() != nil }); i >= 0 {
		return done, results[i].Reason.Because(results[i].Err(), "%s", results[i].Message) // that of the op that is to blame, too
	}
	return mcpserver.Applied{Cursor: results[len(results)-1].Cursor}, nil
}
