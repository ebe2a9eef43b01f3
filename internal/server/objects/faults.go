// Errors of the server on the wire: data where the schema has a Refusal, else an exception whose
// reason is the fault's text form, which clients parse. Over Cap'n Web they have the same codes and
// texts.

package objects

import (
	"errors"
	"math/big"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/rpc"
)

// fail answers c with a fault.
func fail(c *rpc.Call, f *fault.Error) { c.Fail(admission.NewException(f)) }

// unknownMethod answers a call of a method that an object does not have.
func unknownMethod(c *rpc.Call, object string) {
	m := c.Method()
	c.Fail(rpc.Unimplementedf("%s has no method %d of interface %#x", object, m.ID, m.Interface))
}

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
