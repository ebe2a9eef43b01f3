// Batches: the ops of a call of apply, and the sessions that come with them. Everything is copied, so no decoded
// value refers to a message, except in plain.go. A struct that cannot be read is Malformed.
//
// A message may stand for far more than its bytes: lists of structs without a size cost nothing,
// and many pointers may share a target. So a list's length is checked before memory is allocated
// for it, and copies are counted as if each had been written out.

package codec

import (
	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// maxListLen bounds the arguments of an op, and its dependencies, that are decoded. It is above
// the ledger's own bounds, so that an honest peer's mistake is recorded with the reason.
const maxListLen = 2000

// Names of an op's lists, for errors.
const (
	argsLabel = "arguments"
	depsLabel = "ops it depends on"
)

// Minimum bytes of a list's element in a message.
const (
	argBytes     = 24
	pointerBytes = 8
)

// opBytes is the fixed cost of an op in its batch's size.
const opBytes = 200

// checkListLen refuses a list of an op that is too long to be decoded.
func checkListLen(n int, label string) *fault.Error {
	if n <= maxListLen {
		return nil
	}
	return fault.TooLarge.With("an op has %d %s; more than %d are never accepted", n, label, maxListLen)
}

// CheckLists refuses an op with more arguments or dependencies than are decoded.
func CheckLists(op *ledger.Intent) *fault.Error {
	if refused := checkListLen(len(op.Args), argsLabel); refused != nil {
		return refused
	}
	return checkListLen(len(op.DependsOn), depsLabel)
}

// checkList reports whether a list of n elements, each of at least bytes, may be decoded.
func (r *FieldReader) checkList(n, bytes int, label string) bool {
	if refused := checkListLen(n, label); refused != nil {
		r.Fail(refused)
	} else {
		r.charge(n * bytes)
	}
	return r.err == nil
}

// DecodeBatch decodes a batch for the stream of session and outbox, which stands for at most
// limit bytes. size, for the bound of the commit queue, is that of its values plus opBytes an
// op.
func DecodeBatch(from wire.Batch, session, outbox string, incarnation uint64, limit int) (b ledger.Batch, size int, refused *fault.Error) {
	r := FieldReader{limit: limit}
	if from := capnp.Struct(from); from.IsValid() {
		r.sizeHint = len(from.Segment().Data())
	}
	b = ledger.Batch{Session: session, Outbox: outbox, Incarnation: incarnation,
		AckedThrough: from.AckedThrough(), BatchID: r.Text(from.Id()), Atomic: from.Atomic()}
	ops, err := from.Ops()
	if err != nil {
		return b, 0, fault.Malformed.Because(err, "the batch cannot be decoded")
	}
	if n := ops.Len(); n > ledger.MaxFrameOps {
		return b, 0, fault.TooLarge.With("the batch has %d ops; more than %d are never accepted: commit smaller batches", n, ledger.MaxFrameOps)
	}
	b.Ops = make([]ledger.Intent, ops.Len())
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, session, b.Atomic
		if r.op(ops.At(i), op); r.err != nil {
			break
		}
	}
	hints, err := from.Hints()
	r.Fail(err)
	for i := range hints.Len() {
		if r.hints(hints.At(i), b.Ops); r.err != nil {
			break
		}
	}
	return b, r.size + opBytes*len(b.Ops), r.Fault("the batch")
}

func (r *FieldReader) op(from wire.Op, to *ledger.Intent) {
	to.OpID = r.Text(from.Id())
	to.Seq = from.Seq()
	to.Method = r.intern(from.MethodBytes())
	args, err := from.Args()
	r.Fail(err)
	if !r.checkList(args.Len(), argBytes, argsLabel) {
		return
	}
	if n := args.Len(); n > 0 {
		to.Args = make([]ledger.Arg, n)
	}
	for i := range to.Args {
		if r.arg(args.At(i), &to.Args[i]); r.err != nil {
			return
		}
	}
	deps, err := from.DependsOn()
	r.Fail(err)
	if !r.checkList(deps.Len(), pointerBytes, depsLabel) {
		return
	}
	for i := range deps.Len() {
		if to.DependsOn = append(to.DependsOn, r.Text(deps.At(i))); r.err != nil {
			return
		}
	}
	switch e := from.Expected(); e.Which() {
	case wire.Op_expected_Which_none:
	case wire.Op_expected_Which_cursor:
		to.Expected = ledger.Expect{Set: true, Cursor: e.Cursor()}
	case wire.Op_expected_Which_ref:
		ref, err := e.Ref()
		r.Fail(err)
		to.Expected = ledger.Expect{Set: true, Ref: r.opRef(ref)}
	default:
		r.Fail(fault.Malformed.With("op %s expects a cursor in a form that this version does not know", to.OpID))
	}
}

// hints appends hints to the arguments of one of ops. Other arguments are dropped, since no digest
// would cover them.
func (r *FieldReader) hints(from wire.Hints, ops []ledger.Intent) {
	args, err := from.Args()
	r.Fail(err)
	if !r.checkList(args.Len(), argBytes, argsLabel) {
		return
	}
	if uint64(from.Op()) >= uint64(len(ops)) {
		r.Fail(fault.Malformed.With("hints are for op %d of %d", from.Op(), len(ops)))
		return
	}
	op := &ops[from.Op()]
	for i := range args.Len() {
		var a ledger.Arg
		if r.arg(args.At(i), &a); r.err != nil {
			return
		}
		op.Args = append(op.Args[:len(op.Args):len(op.Args)], a)
		if !op.IsHint(len(op.Args) - 1) { // of a later version: dropped
			op.Args = op.Args[:len(op.Args)-1]
		}
	}
}

func (r *FieldReader) arg(from wire.Arg, to *ledger.Arg) {
	to.Name = r.intern(from.NameBytes())
	switch from.Which() {
	case wire.Arg_Which_json:
		to.JSON = r.Data(from.JsonBytes())
	case wire.Arg_Which_ref:
		ref, err := from.Ref()
		r.Fail(err)
		to.Ref = r.opRef(ref)
	default:
		r.Fail(fault.Malformed.With("argument %q has a value of a kind this version does not know", to.Name))
	}
}

func (r *FieldReader) opRef(from wire.OpRef) *ledger.Ref {
	return &ledger.Ref{Op: r.Text(from.Op()), Path: r.Text(from.Path())}
}

// capabilities returns the interface pointers of a List(Capability); more than limit are TooLarge.
func capabilities(s capnp.Struct, pointer uint16, limit int) ([]capnp.Ptr, error) {
	p, err := s.Ptr(pointer)
	if err != nil || !p.IsValid() {
		return nil, err
	}
	list := capnp.PointerList(p.List())
	if n := list.Len(); n > limit {
		return nil, fault.TooLarge.With("%d sessions came with the batch, the limit is %d", n, limit)
	}
	ptrs := make([]capnp.Ptr, list.Len())
	for i := range ptrs {
		if ptrs[i], err = list.At(i); err != nil {
			return nil, err
		}
	}
	return ptrs, nil
}

// MaxWith is the maximum number of live sessions that come with one batch.
const MaxWith = 64

// DecodeWith returns the capabilities that came with a batch; the caller releases them.
func DecodeWith(s capnp.Struct, caps *rpc.CapTable) ([]*rpc.Ref, *fault.Error) {
	var r FieldReader
	ptrs, err := capabilities(s, 1, MaxWith)
	r.Fail(err)
	if refused := r.Fault("the sessions that came with the batch"); refused != nil {
		return nil, refused
	}
	var with []*rpc.Ref
	for _, p := range ptrs {
		if source := caps.Get(p); source != nil {
			with = append(with, source)
		}
	}
	return with, nil
}

// OpsSize returns the bytes that ops count for in the commit queue.
func OpsSize(ops []ledger.Intent) int {
	n := opBytes * len(ops)
	for i := range ops {
		op := &ops[i]
		n += len(op.OpID) + len(op.Method)
		for _, id := range op.DependsOn {
			n += len(id)
		}
		for _, a := range op.Args {
			n += argBytes + len(a.Name) + len(a.JSON)
			if a.Ref != nil {
				n += len(a.Ref.Op) + len(a.Ref.Path)
			}
		}
	}
	return n
}
