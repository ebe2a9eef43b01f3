// Exception: the error that crosses the wire: a type that says how the caller might react, and a reason.

package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/rpc/internal/transport"
)

// ExceptionType says how a caller might react to an Exception (rpc.capnp's Exception.Type, same numbers).
type ExceptionType uint16

const (
	// Failed is a generic problem: repeating the call would meet it again.
	Failed ExceptionType = ExceptionType(rpccp.Exception_Type_failed)
	// Overloaded is a temporary lack of resources: try again later, not at once.
	Overloaded ExceptionType = ExceptionType(rpccp.Exception_Type_overloaded)
	// Disconnected means that a connection the call needed has ended: start over from sturdy refs.
	Disconnected ExceptionType = ExceptionType(rpccp.Exception_Type_disconnected)
	// Unimplemented means that the object does not implement the interface or method.
	Unimplemented ExceptionType = ExceptionType(rpccp.Exception_Type_unimplemented)
)

// String returns rpc.capnp's name of the type.
func (t ExceptionType) String() string {
	switch t {
	case Failed:
		return "failed"
	case Overloaded:
		return "overloaded"
	case Disconnected:
		return "disconnected"
	case Unimplemented:
		return "unimplemented"
	}
	return fmt.Sprintf("exception type %d", uint16(t))
}

// Exception is the error of a call, a capability or a connection. It is what Promise.Wait returns (errors.As) and what
// Call.Fail sends verbatim. Reason is for people and never carries a secret.
type Exception struct {
	Type   ExceptionType
	Reason string
	Remote bool // made by the peer, not by this vat
}

// Error returns the type, the side and the reason.
func (e *Exception) Error() string {
	if e.Remote {
		return "rpc: remote: " + e.Type.String() + ": " + e.Reason
	}
	return "rpc: " + e.Type.String() + ": " + e.Reason
}

// RPCException lets an Exception pass Call.Fail unchanged.
func (e *Exception) RPCException() (ExceptionType, string) { return e.Type, e.Reason }

// Excepter is implemented by errors that define how they cross the wire. Call.Fail sends any other error as "failed"
// with a text that reveals nothing, and logs the original.
type Excepter interface {
	error
	RPCException() (ExceptionType, string)
}

// Failedf makes an exception of type Failed. Like its siblings it is for errors of this vat.
func Failedf(format string, args ...any) *Exception { return newException(Failed, format, args) }

// Overloadedf makes an exception of type Overloaded.
func Overloadedf(format string, args ...any) *Exception {
	return newException(Overloaded, format, args)
}

// Disconnectedf makes an exception of type Disconnected.
func Disconnectedf(format string, args ...any) *Exception {
	return newException(Disconnected, format, args)
}

// Unimplementedf makes an exception of type Unimplemented.
func Unimplementedf(format string, args ...any) *Exception {
	return newException(Unimplemented, format, args)
}

func newException(t ExceptionType, format string, args []any) *Exception {
	return &Exception{Type: t, Reason: fmt.Sprintf(format, args...)}
}

// TypeOf returns an Exception's type, or Failed for any other error; ok reports whether err is an Exception.
func TypeOf(err error) (t ExceptionType, ok bool) {
	if e, found := errors.AsType[*Exception](err); found {
		return e.Type, true
	}
	return Failed, false
}

// IsFailed reports whether err is an Exception of type Failed.
func IsFailed(err error) bool { return isType(err, Failed) }

// IsOverloaded reports whether err is an Exception of type Overloaded.
func IsOverloaded(err error) bool { return isType(err, Overloaded) }

// IsDisconnected reports whether err is an Exception of type Disconnected: the link or the object behind it has ended.
func IsDisconnected(err error) bool { return isType(err, Disconnected) }

// IsUnimplemented reports whether err is an Exception of type Unimplemented.
func IsUnimplemented(err error) bool { return isType(err, Unimplemented) }

func isType(err error, t ExceptionType) bool {
	got, ok := TypeOf(err)
	return ok && got == t
}

// exceptionFor converts a handler's error to an exception for the peer. hidden is true if the text was withheld.
func exceptionFor(err error) (ex *Exception, hidden bool) {
	if e, ok := errors.AsType[*Exception](err); ok {
		return &Exception{Type: e.Type, Reason: e.Reason}, false
	}
	if e, ok := errors.AsType[Excepter](err); ok {
		t, reason := e.RPCException()
		return &Exception{Type: t, Reason: reason}, false
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Failedf("the call was cancelled"), false
	case errors.Is(err, context.DeadlineExceeded):
		return Overloadedf("the operation took too long"), false
	}
	return Failedf("internal error"), true
}

// maxReasonBytes bounds the bytes of a reason that are sent and kept.
const maxReasonBytes = 4096

// maxReason is how long a reason may be for its exception to fit into SendBytes: the rest takes less than 100.
func (co *core) maxReason() int { return min(maxReasonBytes, co.limits.SendBytes/3) }

// writeException writes an exception, with a reason of at most most bytes.
func writeException(e rpccp.Exception, ex *Exception, most int) error {
	e.SetType(rpccp.Exception_Type(ex.Type))
	return e.SetReason(transport.Clip(ex.Reason, most))
}

func readException(e rpccp.Exception) *Exception {
	reason, err := e.ReasonBytes()
	if err != nil {
		reason = []byte("an exception that cannot be read")
	}
	t := ExceptionType(e.Type())
	if t > Unimplemented {
		t = Failed
	}
	text := strings.ToValidUTF8(string(reason[:min(len(reason), maxReasonBytes+utf8.UTFMax)]), "?")
	return &Exception{Type: t, Reason: transport.Clip(text, maxReasonBytes), Remote: true}
}
