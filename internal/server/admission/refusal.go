// Refusals: the fault that a peer is sent for an error or a panic, and the fault as the error of a
// call.

package admission

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// exception is a fault as the error of a call.
type exception struct{ fault *fault.Error }

// NewException returns a fault as the error of a call.
func NewException(f *fault.Error) error { return exception{f} }

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

// ExceptionFault converts an rpc exception to a fault.
func ExceptionFault(ex *rpc.Exception) *fault.Error {
	if f, ok := fault.ParseReason(ex.Reason); ok {
		return f
	}
	switch ex.Type {
	case rpc.Overloaded:
		return fault.Overloaded.With("%s", ex.Reason)
	case rpc.Disconnected:
		return fault.Disconnected.With("%s", ex.Reason)
	case rpc.Unimplemented:
		return fault.UnknownMethod.With("%s", ex.Reason)
	}
	return fault.Internal.With("%s", ex.Reason)
}

// callFault converts a call's error to the fault that its caller gets; nil for nil.
func callFault(err error) *fault.Error {
	switch e := err.(type) {
	case nil:
		return nil
	case exception:
		return e.fault
	case *rpc.Exception:
		return ExceptionFault(e)
	}
	return fault.Internal.With("")
}

// CatchPanic runs f and recovers a panic, so that it ends f and not the server. The panic is
// logged; the fault to send for it is returned.
func CatchPanic(log *slog.Logger, doing string, f func()) *fault.Error {
	return fault.From(log, func() (err error) {
		defer RecoverPanic(&err)
		f()
		return nil
	}(), doing)
}

// RecoverPanic turns a panic into an error, so that it ends a transaction and not the server.
// It is called by defer.
func RecoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}
