// Lists of sessions, page by page: those of a space, the children of a session, and old ones, which may be removed.

package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// listPage is how many sessions are requested at once.
const listPage = 200

// ListOptions filter and order a list of sessions.
type ListOptions struct {
	Order   ListOrder
	Search  string // a part of the title, or of an id, its own or that of the session that it was forked from, case-insensitive
	Deleted bool   // include deleted sessions
	Parent  string // only the children of the session with this id, OldestFirst; "": all
}

// List yields the space's sessions, page by page: the server sorts and searches them. In
// ChangedFirst a session that changes during the iteration may be left out, since it moves to the
// list's beginning; in ByTitle one whose title changes may be left out or come twice. The
// iteration ends after an error.
func (sp *Space) List(ctx context.Context, o ListOptions) iter.Seq2[SessionInfo, error] {
	return func(yield func(SessionInfo, error) bool) {
		if q := (session.ListQuery{Search: o.Search, Parent: o.Parent}); q.Check() != nil {
			yield(SessionInfo{}, q.Check())
			return
		}
		after := ""
		for more := true; more; {
			next := ""
			var page []SessionInfo
			err := sp.client.call(ctx, sp.access(), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
				return callList(ctx, live, after, o, listPage)
			}, func(results capnp.Struct) error {
				r := wire.Space_list_Results(results)
				var err error
				if page, err = decodeSessions(r.Sessions()); err != nil {
					return err
				}
				more = r.More()
				next, err = r.Next()
				return err
			})
			if err != nil {
				yield(SessionInfo{}, err)
				return
			}
			for _, info := range page {
				// A server of the version before lists all sessions, and knows no children.
				if (o.Parent == "" || info.Parent.Session == o.Parent) && !yield(info, nil) {
					return
				}
				after = info.ID
			}
			if next != "" {
				after = next
			} else if len(page) == 0 {
				return // an older server, which lists by id alone
			}
		}
	}
}

// ListOrder is the order of a list of sessions; "" is OldestFirst.
type ListOrder string

// OldestFirst and NewestFirst go by the time of creation.
const (
	OldestFirst  ListOrder = "oldest"
	NewestFirst  ListOrder = "newest"
	ChangedFirst ListOrder = "changed" // the last changed first
	ByTitle      ListOrder = "title"   // the ids of equal titles decide
)

func callList(ctx context.Context, space *rpc.Ref, after string, o ListOptions, limit uint32) *rpc.Promise {
	return calls.Make(ctx, space, methods.SpaceList, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Space_list_Params(s)
		p.SetLimit(limit)
		p.SetDeleted(o.Deleted)
		return errors.Join(p.SetAfter(after), p.SetOrder(string(cmp.Or(o.Order, OldestFirst))), p.SetSearch(o.Search), p.SetParent(o.Parent))
	})
}

func decodeSessions(list wire.SessionInfo_List, err error) (infos []SessionInfo, _ error) {
	for i := 0; err == nil && i < list.Len(); i++ {
		var info SessionInfo
		info, err = decodeSessionInfo(list.At(i))
		infos = append(infos, info)
	}
	return infos, err
}

// Children yields the living sessions that were created with this one as their parent, by id, page by
// page: of each its ID, Parent and Created, and nothing else. A ref of some keys shows those that were
// started by these, one with a first cursor none. The iteration ends after an error: Incompatible if the
// server is too old.
func (s *Session) Children(ctx context.Context) iter.Seq2[SessionInfo, error] {
	return func(yield func(SessionInfo, error) bool) {
		for after, more := "", true; more; more = after != "" {
			var page []SessionInfo
			next := ""
			err := s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
				return calls.Make(ctx, live, methods.SessionChildren, func(s capnp.Struct, _ *rpc.CapTable) error {
					p := wire.Session_children_Params(s)
					p.SetLimit(listPage)
					return p.SetAfter(after)
				})
			}, func(results capnp.Struct) (err error) {
				r := wire.Session_children_Results(results)
				if page, err = decodeSessions(r.Sessions()); err == nil {
					next, err = r.Next()
				}
				return err
			})
			if err != nil {
				yield(SessionInfo{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			after = next
		}
	}
}

// OlderRemoval is what is done to old sessions.
type OlderRemoval string

// What is done to old sessions.
const (
	ListOlder   OlderRemoval = ""                   // nothing
	DeleteOlder OlderRemoval = session.MethodDelete // as Batch.Delete
	PurgeOlder  OlderRemoval = session.MethodPurge  // as Batch.Purge, of one key
)

// OlderOptions say which sessions are old, and what is done to them.
type OlderOptions struct {
	Remove OlderRemoval
	Key    string        // that is purged
	Age    time.Duration // how long nothing has changed in a session, by the database's clock; at least a second
	Before time.Time     // goes before Age: OldPage.Before of an earlier page
	After  string        // begin after the session with this id; "": with the first
	Limit  int           // sessions of a page; 0: as many as a server takes at once
}

// OldSession is a session in which nothing has changed for a while.
type OldSession struct {
	ID      string
	Updated time.Time // when its last event was committed
	Events  uint64    // in its log
	Bytes   uint64    // that it holds
	// Err is why it was left, or, in a list, would be: Conflict if it has changed meanwhile, TurnOpen if a turn
	// is running in it.
	Err error
}

// OldPage is what was done to a page of old sessions.
type OldPage struct {
	Before    time.Time    // their last events are from before: the age, by the database's clock at the first page
	Done      int          // sessions that were deleted, or in which the key was purged
	Unchanged int          // that had nothing to purge
	Sessions  []OldSession // the others or, in a list, all
	Next      string       // the After of the next page; "" at the end
}

// RemoveOlder deletes the sessions of the space in which nothing has changed for o.Age, whoever made them, or purges a
// key of each, or lists them. It yields page by page, by id, and stops where the caller does. It needs the
// right manage, and goes to the server directly, not through the outbox: each session is looked at again
// where it is removed, and one that has changed meanwhile, or in which a turn is running, is left. A
// repetition does nothing to what is done already: so a page whose answer was lost is asked for
// again, and what the first request has done is then in no count.
//
// The iteration ends after an error, which comes with what the page has done before it: Unsupported while servers
// run that do not know the right, Incompatible if the server is too old.
func (sp *Space) RemoveOlder(ctx context.Context, o OlderOptions) iter.Seq2[OldPage, error] {
	return func(yield func(OldPage, error) bool) {
		for more := true; more; more = o.After != "" {
			page, err := sp.removeOlder(ctx, o)
			if fault.CodeOf(err).Transient() && page.Next != o.After && page.Next != "" {
				err = nil // the next request waits until it is over
			}
			if !yield(page, err) || err != nil {
				return
			}
			o.Before, o.After = page.Before, page.Next
		}
	}
}

func (sp *Space) removeOlder(ctx context.Context, o OlderOptions) (page OldPage, err error) {
	if o.Age < 0 {
		return page, fault.BadArgument.With("the age of sessions is how long nothing has changed in them, and not %v", o.Age)
	}
	var stopped error
	err = sp.client.call(ctx, sp.access(), func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SpaceRemoveOlder, func(s capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Space_removeOlder_Params(s)
			p.SetAge(uint64(o.Age.Milliseconds()))
			if !o.Before.IsZero() {
				p.SetBefore(o.Before.UnixMilli())
			}
			p.SetLimit(uint32(max(o.Limit, 0)))
			return errors.Join(p.SetMethod(string(o.Remove)), p.SetKey(o.Key), p.SetAfter(o.After))
		})
	}, func(results capnp.Struct) error {
		r := wire.Space_removeOlder_Results(results)
		stopped = calls.RefusalErr(r.Stopped())
		return page.read(r)
	})
	if err == nil {
		err = stopped
	}
	return page, err
}

func (p *OldPage) read(r wire.Space_removeOlder_Results) error {
	var t calls.Texts
	*p = OldPage{Before: timeOf(r.Before()), Done: int(r.Done()), Unchanged: int(r.Unchanged()), Next: t.Get(r.Next())}
	list, err := r.Sessions()
	for i := 0; err == nil && i < list.Len(); i++ {
		one := list.At(i)
		p.Sessions = append(p.Sessions, OldSession{ID: t.Get(one.Id()), Updated: timeOf(one.Updated()), Events: one.Events(), Bytes: one.Bytes(), Err: calls.RefusalErr(one.Refusal())})
	}
	return errors.Join(err, t.Err)
}
