// Live capabilities: attenuated ones to be passed in a call, and those received in one. They have
// no ref of their own; they end with the connection they came over and with the ref they derive
// from.

package client

import (
	"context"
	"errors"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// AttenuateOptions limit a live capability; zero fields keep the present limits, and nothing can
// be widened.
type AttenuateOptions struct {
	Rights   capability.Rights // 0: all it has now
	Children capability.Rights // in the session's children; 0: it does not reach them, whatever it does now
	Methods  []string          // append only these methods; nil all it has now, and an empty list is refused
	Lifetime time.Duration     // lifetime from when it is made, by the server's clock; 0 as before
	Expires  time.Time         // instead of Lifetime: when it ends, by the server's clock, which must not be past it
	From     uint64            // first visible cursor; 0 as before
	Message  string            // only this message, with its parts and turn; "" all
	// ReadKeys are the keys that it shows, and WriteKeys those that it writes; nil all. See Batch.Share.
	ReadKeys, WriteKeys []string
	// AskKinds are the kinds of requests that it asks, and AnswerKinds those that it claims and answers; nil all.
	AskKinds, AnswerKinds []string
	Label                 string
	Actor                 string // a path under the present one
}

// check refuses options that would be read as allowing more than intended.
func (o *AttenuateOptions) check() error {
	if err := checkLifetime(o.Lifetime, o.Expires); err != nil {
		return err
	}
	return checkLimits(o.Methods, o.ReadKeys, o.WriteKeys, o.Message, o.Label, o.Actor)
}

// Live is a live capability of a session or space. Its methods may be called concurrently; they
// are tried once, on the connection it is bound to.
type Live struct {
	cap     *rpc.Ref
	space   bool
	session string // its id, if it is known
}

// Attenuate returns a narrower live capability of the session, to be passed to another party in a
// call. It takes no right, and is tried once. The error is Widening if it would allow more. The
// caller releases it.
func (s *Session) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	cap, err := s.client.attenuate(ctx, s.access(s.saved), methods.SessionAttenuate, o)
	if err != nil {
		return nil, err
	}
	return &Live{cap: cap, session: s.id}, nil
}

// Attenuate is Session.Attenuate for a space.
func (sp *Space) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	cap, err := sp.client.attenuate(ctx, sp.access(), methods.SpaceAttenuate, o)
	if err != nil {
		return nil, err
	}
	return &Live{cap: cap, space: true}, nil
}

func (c *Client) attenuate(ctx context.Context, ref access, method methods.Method, o AttenuateOptions) (cap *rpc.Ref, err error) {
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

// callAttenuate narrows a session or, by methods.SpaceAttenuate, a space: the calls are laid out
// alike.
func callAttenuate(ctx context.Context, live *rpc.Ref, method methods.Method, o AttenuateOptions) *rpc.Promise {
	return calls.Make(ctx, live, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		limits, err := wire.Session_attenuate_Params(s).NewLimits()
		if err != nil {
			return err
		}
		return encodeAttenuation(limits, o)
	})
}

func encodeAttenuation(to wire.Attenuation, o AttenuateOptions) error {
	rights := uint16(o.Rights)
	if o.ReadKeys != nil || o.WriteKeys != nil {
		rights |= wire.KeyLimits
	}
	to.SetRights(rights)
	to.SetChildren(uint16(o.Children))
	if !o.Expires.IsZero() {
		to.SetExpires(o.Expires.UnixMilli())
	}
	if o.Lifetime > 0 {
		to.SetExpires(expiryOf(o.Lifetime))
		to.SetLifetime(uint64(o.Lifetime.Milliseconds()))
	}
	to.SetFrom(o.From)
	return errors.Join(calls.SetTexts(to.NewMethods, o.Methods), calls.SetTexts(to.NewReadKeys, o.ReadKeys), calls.SetTexts(to.NewWriteKeys, o.WriteKeys), calls.SetTexts(to.NewAsk, o.AskKinds), calls.SetTexts(to.NewAnswer, o.AnswerKinds),
		to.SetMessage_(o.Message), to.SetLabel(o.Label), to.SetActor(o.Actor))
}

// Release releases the capability. Further calls fail.
func (l *Live) Release() { l.cap.Release() }

// Attenuate returns a still narrower capability.
func (l *Live) Attenuate(ctx context.Context, o AttenuateOptions) (*Live, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	method := methods.SessionAttenuate
	if l.space {
		method = methods.SpaceAttenuate
	}
	answer := callAttenuate(ctx, l.cap, method, o)
	defer answer.Release()
	if _, _, err := answer.Wait(ctx); err != nil {
		return nil, calls.FaultOf(err)
	}
	return &Live{cap: answer.Cap(0), space: l.space, session: l.session}, nil
}

// Describe returns the capability's target and what it allows.
func (l *Live) Describe(ctx context.Context) (d Description, err error) {
	if l.space {
		err = l.call(ctx, calls.Make(ctx, l.cap, methods.SpaceDescribe, nil), d.readSpace)
	} else {
		err = l.call(ctx, calls.Make(ctx, l.cap, methods.SessionDescribe, nil), d.readSession)
	}
	return d, err
}

// Events is Session.Events.
func (l *Live) Events(ctx context.Context, after uint64, limit uint32) (Page, error) {
	return l.EventsFrom(ctx, Position{Cursor: after}, limit)
}

// EventsFrom is Session.EventsFrom.
func (l *Live) EventsFrom(ctx context.Context, after Position, limit uint32) (page Page, err error) {
	err = l.call(ctx, callEvents(ctx, l.cap, after, nil, limit), func(s capnp.Struct) error { return page.read(l.session, s) })
	return page, err
}

// Snapshot is Session.Snapshot.
func (l *Live) Snapshot(ctx context.Context) (*State, error) { return l.SnapshotOf(ctx, Position{}) }

// SnapshotOf is Session.SnapshotOf.
func (l *Live) SnapshotOf(ctx context.Context, at Position) (*State, error) {
	state := &snapshotSink{session: l.session}
	sink := rpc.NewLocal(state)
	defer sink.Release()
	err := l.call(ctx, callSnapshot(ctx, l.cap, SnapshotOptions{At: at}, sink), state.read)
	if err != nil {
		return nil, err
	}
	return &state.state, nil
}

// Save has the server mint a durable ref from the capability, which dies with the ref it derives
// from (Persistent.save). It takes the right to share. at is an address of that server.
func (l *Live) Save(ctx context.Context, at capability.Ref) (made capability.Ref, err error) {
	if err := checkHosts(at); err != nil {
		return made, err
	}
	err = l.call(ctx, calls.Make(ctx, l.cap, methods.PersistentSave, nil), func(s capnp.Struct) error {
		id, secret, err := readSaved(s)
		made = at.With(id, secret)
		return err
	})
	return made, err
}

// Share mints a durable ref from the capability, by the rules of Batch.Share: it allows at most
// what the capability does and dies with the ref it derives from. at is an address of that
// server. It does not use the outbox: the ref works when this returns; if the answer is lost, a
// ref whose secret is lost may have been minted.
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
	method, ref := methods.SessionShare, o.newRef(at, d.Grant.Target)
	if l.space {
		method = methods.SpaceShare
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
		return fault.BadRefText.With("give the capability's server: any ref to it, or capability.ParseAddress")
	}
	return nil
}

func (l *Live) call(ctx context.Context, answer *rpc.Promise, read func(capnp.Struct) error) error {
	defer answer.Release()
	results, _, err := answer.Wait(ctx)
	if err != nil {
		return calls.FaultOf(err)
	}
	return asFault(read(results))
}
