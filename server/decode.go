// The structs of the schema as the domain's values. Everything is copied:
// nothing decoded refers to a message. What cannot be read gives Malformed.

package server

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// reader gathers the first error of many getters.
type reader struct{ err error }

func (r *reader) text(s string, err error) string {
	if err != nil && r.err == nil {
		r.err = err
	}
	return s
}

func (r *reader) data(b []byte, err error) []byte {
	if err != nil && r.err == nil {
		r.err = err
	}
	return append([]byte(nil), b...)
}

// fault is what the peer is told if something could not be read.
func (r *reader) fault(what string) *fault.Error {
	if r.err == nil {
		return nil
	}
	return fault.Malformed.Because(r.err, "%s cannot be decoded", what)
}

// decodeBatch reads a batch for the stream of session and outbox. Its size in
// bytes, for the queue's bound, is that of its arguments and a share an op.
func decodeBatch(from wire.Batch, session, outbox string, incarnation uint64) (b ledger.Batch, size int, refused *fault.Error) {
	var r reader
	b = ledger.Batch{Session: session, Outbox: outbox, Incarnation: incarnation,
		AckedThrough: from.AckedThrough(), BatchID: r.text(from.Id()), Atomic: from.Atomic()}
	ops, err := from.Ops()
	if err != nil {
		return b, 0, fault.Malformed.Because(err, "the batch cannot be decoded")
	}
	b.Ops = make([]ledger.Intent, ops.Len())
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, session, b.Atomic
		r.op(ops.At(i), op)
		size += 200
		for _, a := range op.Args {
			size += len(a.JSON)
		}
	}
	return b, size, r.fault("the batch")
}

func (r *reader) op(from wire.Op, to *ledger.Intent) {
	to.OpID = r.text(from.Id())
	to.Seq = from.Seq()
	to.Method = r.text(from.Method())
	args, err := from.Args()
	if err != nil {
		r.text("", err)
		return
	}
	if n := args.Len(); n > 0 {
		to.Args = make([]ledger.Arg, n)
	}
	for i := range to.Args {
		r.arg(args.At(i), &to.Args[i])
	}
	deps, err := from.DependsOn()
	if err != nil {
		r.text("", err)
		return
	}
	for i := range deps.Len() {
		to.DependsOn = append(to.DependsOn, r.text(deps.At(i)))
	}
	switch e := from.Expected(); e.Which() {
	case wire.Op_expected_Which_none:
	case wire.Op_expected_Which_cursor:
		to.Expected = ledger.Expect{Set: true, Cursor: e.Cursor()}
	case wire.Op_expected_Which_ref:
		ref, err := e.Ref()
		r.text("", err)
		to.Expected = ledger.Expect{Set: true, Ref: r.opRef(ref)}
	default:
		r.text("", fault.Malformed.With("op %s expects a cursor in a way this version does not know", to.OpID))
	}
}

func (r *reader) arg(from wire.Arg, to *ledger.Arg) {
	to.Name = r.text(from.Name())
	switch from.Which() {
	case wire.Arg_Which_json:
		to.JSON = r.data(from.JsonBytes())
	case wire.Arg_Which_ref:
		ref, err := from.Ref()
		r.text("", err)
		to.Ref = r.opRef(ref)
	default:
		r.text("", fault.Malformed.With("argument %q has a value of a kind this version does not know", to.Name))
	}
}

func (r *reader) opRef(from wire.OpRef) *ledger.Ref {
	return &ledger.Ref{Op: r.text(from.Op()), Path: r.text(from.Path())}
}

// capabilities lists the interface pointers of a List(Capability).
func capabilities(s capnp.Struct, pointer uint16) ([]capnp.Ptr, error) {
	p, err := s.Ptr(pointer)
	if err != nil || !p.IsValid() {
		return nil, err
	}
	list := capnp.PointerList(p.List())
	ptrs := make([]capnp.Ptr, list.Len())
	for i := range ptrs {
		if ptrs[i], err = list.At(i); err != nil {
			return nil, err
		}
	}
	return ptrs, nil
}
