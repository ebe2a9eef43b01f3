// Live capabilities: narrower ones to be passed in a call, and those that came in
// one. They have no ref of their own and live as long as the connection they came
// over, and no longer than the ref they stand on.

package client

import (
	"context"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// AttenuateOptions say what a live capability is to allow; zero fields keep what
// there is, and nothing can be wider.
type AttenuateOptions struct {
	Rights   capability.Rights // 0: all there are
	Methods  []string          // append only these; nil all there are, and an empty list is refused
	Lifetime time.Duration     // how long it lasts, from when it is made, by the server's clock; 0 as before
	Expires  time.Time         // in place of Lifetime: when it ends, by the server's clock, which must not be past it
	From     uint64            // first visible cursor; 0 as before
	Message  string            // one message alone, with its parts and turn; "" all
	Label    string
	Actor    string // a path under the present one
}

// check refuses options that would be taken for more than is meant.
func (o *AttenuateOptions) check() error {
	if err := checkLifetime(o.Lifetime, o.Expires); err != nil {
		return err
	}
	return checkLimits(o.Methods, o.Message, o.Label, o.Actor)
}

// Live is a live capability of a session or space. Its methods may be called
// concurrently; they are tried once, on the connection it lives on.
type Live struct {
	cap     *rpc.Ref
	space   bool
	session string // its id, if it is known
}

// Attenuate makes a narrower live capability of the session, to be passed to
// others in a call. It takes no right, and is tried once. Widening if it would
// allow more. The caller releases it.
func (s *Session) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	cap, err := s.client.attenuate(ctx, s.saved, methodAttenuate, o)
	if err != nil {
		return nil, err
	}
	return &Live{cap: cap, session: s.id}, nil
}

// Attenuate is Session.Attenuate for a space.
func (sp *Space) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	cap, err := sp.client.attenuate(ctx, sp.saved, methodSpaceAttenuate, o)
	if err != nil {
		return nil, err
	}
	return &Live{cap: cap, space: true}, nil
}

func (c *Client) attenuate(ctx context.Context, ref outbox.SavedRef, method rpc.Method, o AttenuateOptions) (cap *rpc.Ref, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	err = c.try(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		answer := callAttenuate(ctx, live, method, o)
		cap = answer.Cap(0)
		return answer
	}, func(capnp.Struct) error { return nil })
	if err != nil && cap != nil {
		cap.Release()
		cap = nil
	}
	return cap, err
}

// LiveSession is a session that came as a capability in a call: in what a peer was
// asked for, or asked us with. It owns cap. Its id is learned with Describe.
func LiveSession(cap *rpc.Ref) *Live { return &Live{cap: cap} }

// Cap is the capability, to be passed in a call; it stays l's.
func (l *Live) Cap() *rpc.Ref { return l.cap }

// Release gives the capability back. Further calls fail.
func (l *Live) Release() { l.cap.Release() }

// Attenuate makes a narrower one still.
func (l *Live) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	method := methodAttenuate
	if l.space {
		method = methodSpaceAttenuate
	}
	answer := callAttenuate(ctx, l.cap, method, o)
	defer answer.Release()
	if _, _, err := answer.Wait(ctx); err != nil {
		return nil, faultOf(err)
	}
	return &Live{cap: answer.Cap(0), space: l.space, session: l.session}, nil
}

// Describe tells what the capability is for and what it allows.
func (l *Live) Describe(ctx context.Context) (d Description, err error) {
	if l.space {
		err = l.call(ctx, l.cap.Call(ctx, methodSpaceDescribe, structSize(0, 0), nil), d.readSpace)
	} else {
		err = l.call(ctx, l.cap.Call(ctx, methodDescribe, structSize(0, 0), nil), d.readSession)
	}
	return d, err
}

// Events is Session.Events.
func (l *Live) Events(ctx context.Context, after uint64, limit uint32) (Page, error) {
	return l.EventsFrom(ctx, Position{Cursor: after}, limit)
}

// EventsFrom is Session.EventsFrom.
func (l *Live) EventsFrom(ctx context.Context, after Position, limit uint32) (page Page, err error) {
	err = l.call(ctx, callEvents(ctx, l.cap, after, limit), func(s capnp.Struct) error { return page.read(l.session, s) })
	return page, err
}

// Snapshot is Session.Snapshot.
func (l *Live) Snapshot(ctx context.Context) (*State, error) { return l.SnapshotOf(ctx, Position{}) }

// SnapshotOf is Session.SnapshotOf.
func (l *Live) SnapshotOf(ctx context.Context, at Position) (*State, error) {
	state := &snapshotSink{session: l.session}
	sink := rpc.NewLocal(state)
	defer sink.Release()
	err := l.call(ctx, callSnapshot(ctx, l.cap, at, sink), state.read)
	if err != nil {
		return nil, err
	}
	return &state.state, nil
}

// Save has the server make a durable ref of it, which dies with the ref it stands
// on (Persistent.save). It takes share. at is an address of that server.
func (l *Live) Save(ctx context.Context, at capability.Ref) (made capability.Ref, err error) {
	if err := checkHosts(at); err != nil {
		return made, err
	}
	err = l.call(ctx, l.cap.Call(ctx, methodSave, structSize(0, 1), nil), func(s capnp.Struct) error {
		id, secret, err := readSaved(s)
		made = at.With(id, secret)
		return err
	})
	return made, err
}

// Share mints a durable ref from it, by the rules of Batch.Share, which allows at
// most what it does and dies with the ref it stands on. at is an address of that
// server. Without the outbox: the ref works when this returns; if the answer is
// lost, nobody has what may have been minted.
func (l *Live) Share(ctx context.Context, at capability.Ref, o ShareOptions) (capability.Ref, error) {
	err := checkHosts(at)
	if err == nil {
		err = o.check()
	}
	if err != nil {
		return capability.Ref{}, err
	}
	d, err := l.Describe(ctx)
	if err != nil {
		return capability.Ref{}, err
	}
	method, ref := methodShare, o.newRef(at, d.Grant.Target)
	if l.space {
		method = methodSpaceShare
	}
	err = l.call(ctx, callShare(ctx, l.cap, method, ref, o), readShared)
	if err != nil {
		return capability.Ref{}, err
	}
	return ref, nil
}

// checkHosts refuses an address without a host: a ref made there could not be used.
func checkHosts(at capability.Ref) error {
	if len(at.Hosts) == 0 {
		return fault.BadRefText.With("say at which server the capability lives: any ref to it will do, or capability.ParseAddress")
	}
	return nil
}

func (l *Live) call(ctx context.Context, answer *rpc.Promise, read func(capnp.Struct) error) error {
	defer answer.Release()
	results, _, err := answer.Wait(ctx)
	if err != nil {
		return faultOf(err)
	}
	return asFault(read(results))
}
