// Objects of the vat as a peer calls them.

package bridge

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/rpc"
)

// Conn is the bridge's part of one connection. All methods may be called concurrently.
type Conn struct {
	bridge *Bridge
	limit  int
	calls  sync.WaitGroup

	mu            sync.Mutex
	liveCallbacks int           // callbacks that the vat references, or has unanswered calls to
	idle          chan struct{} // closed when there are none; nil if nobody waits
}

// Conn returns the bridge's part of a new connection. The params of a call may take maxBytes as a Cap'n Proto message.
func (b *Bridge) Conn(maxBytes int) *Conn { return &Conn{bridge: b, limit: maxBytes} }

// writer returns a writer for one message.
func (s *Conn) writer(caps *rpc.CapTable) *writer {
	return &writer{conn: s, caps: caps, bytesLeft: s.limit}
}

// Wait waits until every call of the connection has ended within the vat: soon after the connection has ended, and
// with it the calls' contexts.
func (s *Conn) Wait() { s.calls.Wait() }

// WaitIdle waits until the vat references no function of the peer's any more and all calls to them are answered, or ctx
// ends. Releases that this caused have been sent to the peer by then.
func (s *Conn) WaitIdle(ctx context.Context) {
	s.mu.Lock()
	if s.liveCallbacks == 0 {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	quiet := s.idle
	s.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
}

// addCallbacks counts callbacks.
func (s *Conn) addCallbacks(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.liveCallbacks += n; s.liveCallbacks == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// Object is a reference of the vat that a peer may call. It is a capnweb.Object; its Release releases the reference.
type Object struct {
	conn       *Conn
	iface      *interfacePlan
	ref        *rpc.Ref
	properties map[string]any
}

// Object makes an object of a reference, which it takes over, to an object of the interface, one of those the bridge was
// compiled for.
func (s *Conn) Object(ref *rpc.Ref, iface uint64) *Object {
	return &Object{conn: s, iface: s.bridge.interfaces[iface], ref: ref}
}

// SetProperties sets properties that the object has besides its methods, before it is passed to a peer.
func (o *Object) SetProperties(properties map[string]any) { o.properties = properties }

// Get implements capnweb.Getter.
func (o *Object) Get(name string) (any, bool) {
	v, ok := o.properties[name]
	return v, ok
}

// KeepsOrder implements capnweb.Orderer.
func (o *Object) KeepsOrder() bool { return o.iface.ordered }

// Release implements capnweb.Releaser.
func (o *Object) Release() { o.ref.Release() }

// refAs returns another reference, if the interface is the type's or a subclass of it.
func (o *Object) refAs(t *typePlan) (*rpc.Ref, error) {
	if t.iface != nil && !o.iface.supers[t.iface.id] {
		return nil, &typeError{text: "want an object of " + t.iface.name + ", got one of " + o.iface.name}
	}
	return o.ref.AddRef(), nil
}

// Serve implements capnweb.Object: the call goes on within the vat, after those before it.
func (o *Object) Serve(c *capnweb.Call) {
	m := o.iface.methods[c.Method()]
	switch {
	case c.Method() == "":
		c.Fail(capnweb.TypeErrorf("a %s is not a function", o.iface.name))
		return
	case m == nil || len(c.Path()) > 1:
		c.Fail(capnweb.TypeErrorf("%s has no method %q", o.iface.name, clip(c.Method())))
		return
	}
	args, err := m.arguments(c.Args())
	done := func(v any, err error) (any, error) { return v, err }
	if err == nil && m.rule != nil && m.rule.Args != nil {
		var also func(any, error) (any, error)
		if args, also, err = m.rule.Args(args); also != nil {
			done = also
		}
	}
	if err != nil {
		c.Fail(asTypeError(err))
		return
	}
	o.conn.call(c, m, o.ref, args, done)
}

// call makes the call and answers it with the results as done converts them.
func (s *Conn) call(c *capnweb.Call, m *methodPlan, ref *rpc.Ref, args []any, done func(any, error) (any, error)) {
	ctx := c.Context()
	var bad error
	answer := ref.Call(ctx, m.call, m.params.size, func(params capnp.Struct, caps *rpc.CapTable) error {
		bad = s.writer(caps).params(m, params, args)
		return bad
	})
	if bad != nil {
		answer.Release()
		c.Fail(asTypeError(bad))
		return
	}
	s.calls.Add(1)
	stop := context.AfterFunc(ctx, answer.Release)
	answer.Notify(func() {
		defer s.calls.Done()
		defer recoverPanic(c, m)
		stop()
		v, err := done(s.results(m, answer))
		if err != nil {
			c.Fail(asTypeError(err))
		} else {
			c.Return(v)
		}
		answer.Release()
	})
}

// recoverPanic answers a call whose results caused a panic, which must not end the process.
func recoverPanic(c *capnweb.Call, m *methodPlan) {
	if r := recover(); r != nil {
		name := incident.New()
		slog.Error("bridge: an answer caused a panic", "incident", name, "method", m.owner+"."+m.name, "panic", r, "stack", string(debug.Stack()))
		c.Fail(&capnweb.Error{Name: "Error", Message: incident.Internal(name)})
	}
}

// results returns the results of a call that has been answered.
func (s *Conn) results(m *methodPlan, answer *rpc.Promise) (any, error) {
	results, caps, err := answer.Wait(context.Background())
	if err != nil {
		return nil, s.bridge.peerError(err)
	}
	r := reader{conn: s, caps: caps}
	v, err := s.bridge.results(&r, m, results)
	if err != nil {
		r.release()
	}
	return v, err
}

func (b *Bridge) results(r *reader, m *methodPlan, results capnp.Struct) (any, error) {
	object, err := r.object(m.results, results)
	if err != nil {
		return nil, err
	}
	if f := b.cfg.Rules.Results; f != nil {
		if err := f(object); err != nil {
			return nil, err
		}
	}
	if m.rule != nil && m.rule.Results != nil {
		return m.rule.Results(object)
	}
	return unwrapSingle(m.results, object), nil
}

// unwrapSingle returns the only field of a struct that has one, and for others the object.
func unwrapSingle(p *structPlan, object map[string]any) any {
	if len(p.fields) > 1 {
		return object
	}
	for _, v := range object {
		return v
	}
	return capnweb.Undefined{}
}

// peerError returns the peer's error for an error of the vat.
func (b *Bridge) peerError(err error) error {
	ex, ok := errors.AsType[*rpc.Exception](err)
	switch {
	case !ok:
		return err
	case b.cfg.MapException != nil:
		return b.cfg.MapException(ex)
	}
	return &capnweb.Error{Name: "Error", Message: ex.Reason}
}
