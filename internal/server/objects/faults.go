// Errors of the server on the wire: data where the schema has a Refusal, else an exception whose
// reason is the fault's text form, which clients parse.

package objects

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// toFault returns the fault to send to a peer for err, nil for nil. An error that is
// neither a fault nor a context's is a defect of the server: it is logged, and the peer gets
// Internal only.
func toFault(log *slog.Logger, err error, doing string) *fault.Error {
	var f *fault.Error
	var code fault.Code
	switch {
	case err == nil:
		return nil
	case errors.As(err, &f):
		return f
	case errors.As(err, &code):
		return code.Because(err, "the server could not %s", doing)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.ContextError(err, nil)
	}
	return fault.Unexpected(log, err, doing)
}

// exception is a fault as the error of a call.
type exception struct{ fault *fault.Error }

func (e exception) Error() string { return e.fault.Error() }
func (e exception) Unwrap() error { return e.fault } // for logs and counters; a peer is sent RPCException's

// RPCException returns the exception type, for peers that do not know the codes, and the fault's
// text form.
func (e exception) RPCException() (rpc.ExceptionType, string) {
	t := rpc.Failed
	switch e.fault.Code {
	case fault.Overloaded, fault.Unavailable, fault.NotYetKnown, fault.Gap:
		t = rpc.Overloaded
	case fault.Draining, fault.Disconnected:
		t = rpc.Disconnected
	case fault.UnknownMethod:
		t = rpc.Unimplemented
	}
	return t, e.fault.Reason()
}

// fail answers c with a fault.
func fail(c *rpc.Call, f *fault.Error) { c.Fail(exception{f}) }

// unknownMethod answers a call of a method that an object does not have.
func unknownMethod(c *rpc.Call, object string) {
	m := c.Method()
	c.Fail(rpc.Unimplementedf("%s has no method %d of interface %#x", object, m.ID, m.Interface))
}

// setRefusal encodes and counts the refusal of an answer, if there is one.
func (s *Server) setRefusal(field func() (wire.Refusal, error), refused *fault.Error) error {
	if refused == nil {
		return nil
	}
	s.instruments.countRefusal(refused)
	to, err := field()
	if err != nil {
		return err
	}
	return encodeRefusal(to, refused)
}

// encodeRefusal encodes f; a nil f leaves the refusal empty.
func encodeRefusal(to wire.Refusal, f *fault.Error) error {
	if f == nil {
		return nil
	}
	to.SetCode(uint16(f.Code))
	to.SetAt(f.At)
	return to.SetMessage_(f.Message)
}
