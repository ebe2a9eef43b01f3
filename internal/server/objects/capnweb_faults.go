// Errors over Cap'n Web: the same codes and texts as over Cap'n Proto.

package objects

import (
	"errors"
	"math/big"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
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

// Redact returns the error that a peer is sent for err: a fault as it is, anything else as
// Internal.
func (s *Service) Redact(err error) *capnweb.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return capnwebError(f)
	}
	return capnwebError(fault.From(s.cfg.Log, err, "answer the call"))
}
