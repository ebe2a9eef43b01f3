// Package calls has what all calls of the schema have in common on the client's side: how one is made, and how a list of texts, an
// error and a refusal are read in answers. Packages client and serverconn use it for each call; what a call is for is theirs. It
// touches nothing but the messages it is given; of what it returns only Texts.Bytes refers to one. A Texts belongs to one goroutine.
package calls

import (
	"context"
	"errors"
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// Make calls a method, with the parameters that fill sets.
func Make(ctx context.Context, on *rpc.Ref, m methods.Method, fill func(params capnp.Struct, caps *rpc.CapTable) error) *rpc.Promise {
	return on.Call(ctx, m.Method, m.Params, fill)
}

// SetTexts sets a list of texts; nil leaves it unset.
func SetTexts(make func(int32) (capnp.TextList, error), texts []string) error {
	if texts == nil {
		return nil
	}
	list, err := make(int32(len(texts)))
	for i := 0; err == nil && i < len(texts); i++ {
		err = list.Set(i, texts[i])
	}
	return err
}

// FaultOf converts the error of a call or a connection into a fault. A server sends a fault as an
// exception whose reason is the fault's Reason.
func FaultOf(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Canceled.Because(err, "%v", err)
	}
	var ex *rpc.Exception
	if !errors.As(err, &ex) {
		return err
	}
	if f, ok := fault.ParseReason(ex.Reason); ok {
		return f
	}
	switch ex.Type {
	case rpc.Disconnected:
		return fault.Disconnected.Because(ex, "%s", ex.Reason)
	case rpc.Overloaded:
		return fault.Overloaded.Because(ex, "%s", ex.Reason)
	case rpc.Unimplemented:
		return fault.Incompatible.Because(ex, "the server does not know this call: %s", ex.Reason)
	}
	return fault.Internal.Because(ex, "the server failed: %s", ex.Reason)
}

// RefusalOf decodes a refusal; nil if there is none.
func RefusalOf(r wire.Refusal) (*fault.Error, error) {
	message, err := r.Message_()
	if err != nil {
		return nil, fmt.Errorf("decode refusal: %w", err)
	}
	code := fault.Code(r.Code())
	if code == fault.None {
		return nil, nil
	}
	return code.With("%s", message).Pos(r.At()), nil
}

// Texts reads text fields and keeps the first error.
type Texts struct{ Err error }

// Get returns a text.
func (t *Texts) Get(s string, err error) string {
	if err != nil && t.Err == nil {
		t.Err = err
	}
	return s
}

// List reads a list of texts; nil if it is empty.
func (t *Texts) List(l capnp.TextList, err error) (texts []string) {
	if _ = t.Get("", err); err != nil {
		return nil
	}
	for i := range l.Len() {
		texts = append(texts, t.Get(l.At(i)))
	}
	return texts
}

// Bytes returns the bytes of a text, which are the message's.
func (t *Texts) Bytes(b []byte, err error) []byte {
	if err != nil && t.Err == nil {
		t.Err = err
	}
	return b
}

// RefusalErr returns an answer's refusal as an error, nil if there is none.
func RefusalErr(w wire.Refusal, err error) error {
	if err != nil {
		return err
	}
	f, err := RefusalOf(w)
	if err != nil {
		return err
	}
	if f != nil {
		return f
	}
	return nil
}
