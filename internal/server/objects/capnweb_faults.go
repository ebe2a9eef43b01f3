// Errors over Cap'n Web: the same codes and texts as over Cap'n Proto.

package objects

import (
	"errors"
	"math/big"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// capnwebError converts a fault to a JavaScript error. Its message begins with the code's name,
// for clients that do not see properties.
func capnwebError(f *fault.Error) *capnweb.Error {
	props := map[string]any{"code": uint64(f.Code), "codeName": f.Code.String()}
	if f.At != 0 {
		props["at"] = jsNumber(f.At)
	}
	return &capnweb.Error{Name: "Error", Message: f.Error(), Props: props}
}

// jsNumber returns n as a type that JavaScript represents exactly.
func jsNumber(n uint64) any {
	if n > 1<<53 {
		return new(big.Int).SetUint64(n)
	}
	return n
}

// exceptionFault converts an rpc exception to a fault.
func exceptionFault(ex *rpc.Exception) *fault.Error {
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

// redact returns the error that a peer is sent for err: a fault as it is, anything else as
// Internal.
func (s *Server) redact(err error) *capnweb.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return capnwebError(f)
	}
	if ex, ok := errors.AsType[exception](err); ok {
		return capnwebError(ex.fault)
	}
	return capnwebError(toFault(s.log, err, "answer the call"))
}
