// Calls and their answers: which method of an object a call is for, and how it is answered. Errors
// are data where the schema has a Refusal, else an exception whose reason is the fault's text form,
// which clients parse.

package objects

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/rpc"
)

// methodTable has the methods of objects of type O. Its functions do not block.
type methodTable[O any] struct {
	object  string
	methods map[rpc.Method]func(O, *rpc.Call)
}

func newMethodTable[O any](object string, all map[methods.Method]func(O, *rpc.Call)) methodTable[O] {
	t := methodTable[O]{object: object, methods: make(map[rpc.Method]func(O, *rpc.Call), len(all))}
	for m, serve := range all {
		t.methods[unnamed(m.Method)] = serve
	}
	return t
}

// unnamed returns a method as it comes over a wire.
func unnamed(m rpc.Method) rpc.Method { return rpc.Method{Interface: m.Interface, ID: m.ID} }

// serve passes a call to its method.
func (t methodTable[O]) serve(o O, c *rpc.Call) {
	m := unnamed(c.Method())
	if serve := t.methods[m]; serve != nil {
		serve(o, c)
		return
	}
	c.Fail(rpc.Unimplementedf("%s has no method %d of interface %#x", t.object, m.ID, m.Interface))
}

// inBackground returns a method that may block, which has the context of its call.
func inBackground[O any](serve func(O, context.Context, *rpc.Call)) func(O, *rpc.Call) {
	return func(o O, c *rpc.Call) { c.Go(func(ctx context.Context) { serve(o, ctx, c) }) }
}

// uncanceled returns a method that may block, and that a caller who goes away does not cancel.
func uncanceled[O any](serve func(O, *rpc.Call)) func(O, *rpc.Call) {
	return func(o O, c *rpc.Call) { c.Go(func(context.Context) { serve(o, c) }) }
}

// resultSizes are the sizes of the schema's results.
var resultSizes = func() map[rpc.Method]capnp.ObjectSize {
	sizes := make(map[rpc.Method]capnp.ObjectSize, len(methods.All))
	for _, m := range methods.All {
		sizes[unnamed(m.Method)] = m.Results
	}
	return sizes
}()

// reply answers c with the results of its method, which fill sets.
func reply(c *rpc.Call, fill func(results capnp.Struct, caps *rpc.CapTable) error) {
	c.Return(resultSizes[unnamed(c.Method())], fill)
}

// answer answers c with what fill sets, unless the call is refused.
func answer(c *rpc.Call, refused *fault.Error, fill func(results capnp.Struct, caps *rpc.CapTable) error) {
	if refused != nil {
		fail(c, refused)
		return
	}
	reply(c, fill)
}

// fail answers c with a fault.
func fail(c *rpc.Call, f *fault.Error) { c.Fail(admission.NewException(f)) }

// setRefusal encodes and counts the refusal of an answer, if there is one.
func (s *Service) setRefusal(field func() (wire.Refusal, error), refused *fault.Error) error {
	if refused == nil {
		return nil
	}
	s.cfg.Instruments.CountRefusal(refused)
	to, err := field()
	if err != nil {
		return err
	}
	return codec.EncodeRefusal(to, refused)
}
