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
	done := func(v any, err error) {
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
	}
	if args := o.encodedArgs(c, m); args != nil {
		o.to.(stubCaller).callEncoded(c.Context(), args, done)
		return
	}
	arg, err := o.argument(c, m)
	if err != nil {
		c.Fail(rpc.Failedf("parameters: %v", err))
		return
	}
	o.to.call(c.Context(), arg, done)
}

// argument converts a call's parameters to the function's argument.
func (o *callback) argument(c *rpc.Call, m *methodPlan) (any, error) {
	params, caps := c.Params()
	r := reader{conn: o.conn, caps: caps}
	object, err := r.object(m.params, params)
	if err != nil {
		r.release()
		return nil, err
	}
	return map[string]any{m.name: unwrapSingle(m.params, object)}, nil
}

// encodedArgs returns the argument of a call that is made alike to many functions of peers, converted and encoded once for all that
// this bridge makes; nil for any other call, and for one that cannot be converted.
func (o *callback) encodedArgs(c *rpc.Call, m *methodPlan) *capnweb.EncodedArgs {
	params := c.Encoded()
	if _, peers := o.to.(stubCaller); params == nil || !peers {
		return nil
	}
	args, _ := params.Derived(m, func() any {
		arg, err := o.argument(c, m)
		if err != nil {
			return nil
		}
		args, err := capnweb.EncodeArgs(arg)
		if err != nil {
			return nil
		}
		return args
	}).(*capnweb.EncodedArgs)
	return args
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
	then(s.stub.Call(ctx, "", arg), done)
}

func (s stubCaller) callEncoded(ctx context.Context, args *capnweb.EncodedArgs, done func(any, error)) {
	then(s.stub.CallEncoded(ctx, "", args), done)
}

func then(answer *capnweb.Promise, done func(any, error)) {
	answer.Then(func(v any, err error) {
		done(v, err)
		answer.Release()
	})
}

func (s stubCaller) release() { s.stub.Release() }
