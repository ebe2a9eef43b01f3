// Decoding: the structs of the schema to the domain's values. Everything is copied, so no decoded
// value refers to a message, except in stream.go. A struct that cannot be read is Malformed.
//
// A message may stand for far more than its bytes: lists of structs without a size cost nothing,
// and many pointers may share a target. So a list's length is checked before memory is allocated
// for it, and copies are counted as if each had been written out.

package objects

import (
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
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

// fieldReader collects the first error of several getters, and counts their bytes.
type fieldReader struct {
	err      error
	size     int
	limit    int    // of size; 0 for none
	buf      []byte // data copies into it
	sizeHint int    // bytes that may be copied in all; 0 if not known

	argPool []ledger.Arg // allocated for several ops at once, and unused yet
}

// bufBytes bounds one allocation of buf, for short values.
const bufBytes = 4096

func (r *fieldReader) text(s string, err error) string {
	r.fail(err)
	r.charge(len(s))
	return s
}

// maxShortText bounds each text of a list, in bytes: the texts may share data, and are copied.
const maxShortText = 1024

// texts reads a list of keys or names: most of them, and one more if there are too many. Of a text
// that is too long to be either it reads the beginning, which is none either.
func (r *fieldReader) texts(list capnp.TextList, err error, most int) (texts []string) {
	for i := 0; err == nil && i < min(list.Len(), most+1); i++ {
		var text []byte
		text, err = list.BytesAt(i)
		texts = append(texts, string(text[:min(len(text), maxShortText)]))
	}
	r.fail(err)
	return texts
}

func (r *fieldReader) data(b []byte, err error) []byte {
	r.fail(err)
	if r.charge(len(b)); len(b) == 0 {
		return nil
	}
	size := min(r.sizeHint, bufBytes)
	if len(b) > size/4 {
		return append([]byte(nil), b...)
	}
	if len(b) > cap(r.buf)-len(r.buf) {
		r.buf = make([]byte, 0, size)
	}
	from := len(r.buf)
	r.buf = append(r.buf, b...)
	return r.buf[from:len(r.buf):len(r.buf)]
}

// intern is text for a small set of names: the frequent ones are not allocated.
func (r *fieldReader) intern(b []byte, err error) string {
	r.fail(err)
	r.charge(len(b))
	if s, usual := internedNames[string(b)]; usual {
		return s
	}
	return string(b)
}

// internedNames are the methods, and the arguments of the frequent ones.
var internedNames = func() map[string]string {
	names := map[string]string{}
	for _, s := range append(session.Methods(), ledger.MethodVoid,
		"key", "payload", "schema_version", "message", "offset", "text", "status", "parts", "usage") {
		names[s] = s
	}
	return names
}()

func (r *fieldReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *fieldReader) charge(bytes int) {
	if r.size += bytes; r.limit > 0 && r.size > r.limit {
		r.fail(fault.TooLarge.With("the batch expands to more than the %d bytes that a message may have: its parts share data", r.limit))
	}
}

// checkListLen refuses a list of an op that is too long to be decoded.
func checkListLen(n int, label string) *fault.Error {
	if n <= maxListLen {
		return nil
	}
	return fault.TooLarge.With("an op has %d %s; more than %d are never accepted", n, label, maxListLen)
}

// checkList reports whether a list of n elements, each of at least bytes, may be decoded.
func (r *fieldReader) checkList(n, bytes int, label string) bool {
	if refused := checkListLen(n, label); refused != nil {
		r.fail(refused)
	} else {
		r.charge(n * bytes)
	}
	return r.err == nil
}

// fault returns the fault to send if a getter failed; nil if none did.
func (r *fieldReader) fault(label string) *fault.Error {
	var large *fault.Error
	switch {
	case r.err == nil:
		return nil
	case errors.As(r.err, &large) && large.Code == fault.TooLarge:
		return large
	}
	return fault.Malformed.Because(r.err, "%s cannot be decoded", label)
}

// decodeBatch decodes a batch for the stream of session and outbox, which stands for at most
// limit bytes. size, for the bound of the commit queue, is that of its values plus opBytes an
// op.
func decodeBatch(from wire.Batch, session, outbox string, incarnation uint64, limit int) (b ledger.Batch, size int, refused *fault.Error) {
	r := fieldReader{limit: limit}
	if from := capnp.Struct(from); from.IsValid() {
		r.sizeHint = len(from.Segment().Data())
	}
	b = ledger.Batch{Session: session, Outbox: outbox, Incarnation: incarnation,
		AckedThrough: from.AckedThrough(), BatchID: r.text(from.Id()), Atomic: from.Atomic()}
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
	r.fail(err)
	for i := range hints.Len() {
		if r.hints(hints.At(i), b.Ops); r.err != nil {
			break
		}
	}
	return b, r.size + opBytes*len(b.Ops), r.fault("the batch")
}

func (r *fieldReader) op(from wire.Op, to *ledger.Intent) {
	to.OpID = r.text(from.Id())
	to.Seq = from.Seq()
	to.Method = r.intern(from.MethodBytes())
	args, err := from.Args()
	r.fail(err)
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
	r.fail(err)
	if !r.checkList(deps.Len(), pointerBytes, depsLabel) {
		return
	}
	for i := range deps.Len() {
		if to.DependsOn = append(to.DependsOn, r.text(deps.At(i))); r.err != nil {
			return
		}
	}
	switch e := from.Expected(); e.Which() {
	case wire.Op_expected_Which_none:
	case wire.Op_expected_Which_cursor:
		to.Expected = ledger.Expect{Set: true, Cursor: e.Cursor()}
	case wire.Op_expected_Which_ref:
		ref, err := e.Ref()
		r.fail(err)
		to.Expected = ledger.Expect{Set: true, Ref: r.opRef(ref)}
	default:
		r.fail(fault.Malformed.With("op %s expects a cursor in a form that this version does not know", to.OpID))
	}
}

// hints appends hints to the arguments of one of ops. Other arguments are dropped, since no digest
// would cover them.
func (r *fieldReader) hints(from wire.Hints, ops []ledger.Intent) {
	args, err := from.Args()
	r.fail(err)
	if !r.checkList(args.Len(), argBytes, argsLabel) {
		return
	}
	if uint64(from.Op()) >= uint64(len(ops)) {
		r.fail(fault.Malformed.With("hints are for op %d of %d", from.Op(), len(ops)))
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

func (r *fieldReader) arg(from wire.Arg, to *ledger.Arg) {
	to.Name = r.intern(from.NameBytes())
	switch from.Which() {
	case wire.Arg_Which_json:
		to.JSON = r.data(from.JsonBytes())
	case wire.Arg_Which_ref:
		ref, err := from.Ref()
		r.fail(err)
		to.Ref = r.opRef(ref)
	default:
		r.fail(fault.Malformed.With("argument %q has a value of a kind this version does not know", to.Name))
	}
}

func (r *fieldReader) opRef(from wire.OpRef) *ledger.Ref {
	return &ledger.Ref{Op: r.text(from.Op()), Path: r.text(from.Path())}
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
