// Callbacks: functions of a peer as objects of the vat.

package bridge

import (
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/rpc"
)

// Func is a callback of this process, for rules to use in place of a peer's. It is called with the argument a peer's would
// be, by one goroutine at a time, and its result answers the call.
type Func func(call any) (any, error)

// callback is an object of an interface that calls a function.
type callback struct {
	conn  *Conn
	iface *interfacePlan
	to    caller
}

// caller is a function, of the peer or a Func. call calls it, and done once, perhaps later; done must not be blocked.
type caller interface {
	call(ctx context.Context, arg any, done func(any, error))
	release()
}

func newCallback(side *Conn, iface *interfacePlan, to caller) *callback {
	side.addCallbacks(1)
	return &callback{conn: side, iface: iface, to: to}
}

// Serve implements rpc.Object. Where the peer does not read it waits, and with it the deliveries to this object.
func (o *callback) Serve(c *rpc.Call) {
	name := c.Method()
	name.Name = ""
	m := o.iface.byID[name]
	if m == nil {
		c.Fail(rpc.Unimplementedf("%s has no method %d of interface %#x", o.iface.name, name.ID, name.Interface))
		return
	}
	params, caps := c.Params()
	r := reader{conn: o.conn, caps: caps}
	object, err := r.object(m.params, params)
	if err != nil {
		r.release()
		c.Fail(rpc.Failedf("parameters: %v", err))
		return
	}
	o.to.call(c.Context(), map[string]any{m.name: unwrapSingle(m.params, object)}, func(v any, err error) {
		if err != nil {
			c.Fail(exceptionOf(err))
			return
		}
		c.Return(m.results.size, func(s capnp.Struct, caps *rpc.CapTable) error {
			if err := o.conn.writer(caps).returned(m, s, v); err != nil {
				return rpc.Failedf("what the function returned: %v", err)
			}
			return nil
		})
	})
}

// Release implements rpc.Releaser.
func (o *callback) Release() {
	o.to.release()
	o.conn.addCallbacks(-1)
}

// returned writes a function's return value as a method's results.
func (w *writer) returned(m *methodPlan, s capnp.Struct, v any) error {
	switch len(m.results.fields) {
	case 0:
		return nil // the return value is ignored
	case 1:
		if isAbsent(v) {
			return nil
		}
		f := &m.results.fields[0]
		return withPath(f.name, w.field(f, s, v))
	}
	return w.object(m.results, s, v)
}

// exceptionOf returns the vat's exception for a peer's error.
func exceptionOf(err error) error {
	if e, ok := errors.AsType[*capnweb.Error](err); ok {
		return rpc.Failedf("%s", e.Error())
	}
	if _, ok := errors.AsType[*capnweb.BrokenError](err); ok {
		return rpc.Disconnectedf("%s", err.Error())
	}
	return err
}

func (f Func) call(_ context.Context, arg any, done func(any, error)) { done(f(arg)) }
func (f Func) release()                                               {}

// stubCaller is a peer's function.
type stubCaller struct{ stub *capnweb.Stub }

func (s stubCaller) call(ctx context.Context, arg any, done func(any, error)) {
	answer := s.stub.Call(ctx, "", arg)
	answer.Then(func(v any, err error) {
		done(v, err)
		answer.Release()
	})
}

func (s stubCaller) release() { s.stub.Release() }
