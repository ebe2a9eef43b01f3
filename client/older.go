// Old sessions of a space: deleted, or a key of each purged, many in one call.

package client

import (
	"context"
	"errors"
	"iter"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

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
		return call(ctx, live, methods.SpaceRemoveOlder, func(s capnp.Struct, _ *rpc.CapTable) error {
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
		stopped = refusalErr(r.Stopped())
		return page.read(r)
	})
	if err == nil {
		err = stopped
	}
	return page, err
}

func (p *OldPage) read(r wire.Space_removeOlder_Results) error {
	var t textReader
	*p = OldPage{Before: timeOf(r.Before()), Done: int(r.Done()), Unchanged: int(r.Unchanged()), Next: t.get(r.Next())}
	list, err := r.Sessions()
	for i := 0; err == nil && i < list.Len(); i++ {
		one := list.At(i)
		p.Sessions = append(p.Sessions, OldSession{ID: t.get(one.Id()), Updated: timeOf(one.Updated()), Events: one.Events(), Bytes: one.Bytes(), Err: refusalErr(one.Refusal())})
	}
	return errors.Join(err, t.err)
}
