// The apply call, the most frequent message: a batch for a stream. A common batch is encoded by a
// fast path, in one piece, where the generated code allocates pointer by pointer; a batch that
// refers to results or depends on other ops is left to that code.

package serverconn

import (
	"context"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// CallApply sends a batch; held are the live sessions that its ops refer to.
func CallApply(ctx context.Context, stream *rpc.Ref, b *ledger.Batch, held []*rpc.Ref) *rpc.Promise {
	return calls.Make(ctx, stream, methods.StreamApply, func(s capnp.Struct, caps *rpc.CapTable) error {
		if err := fillBatch(wire.Stream_apply_Params(s), b); err != nil {
			return err
		}
		if len(held) == 0 {
			return nil
		}
		list, err := capnp.NewPointerList(s.Segment(), int32(len(held)))
		if err != nil {
			return err
		}
		for i, r := range held {
			iface := capnp.NewInterface(s.Segment(), capnp.CapabilityID(caps.Add(r)))
			if err := list.Set(i, iface.ToPtr()); err != nil {
				return err
			}
		}
		return s.SetPtr(1, list.ToPtr())
	})
}

// fillBatch encodes the batch of an apply.
func fillBatch(p wire.Stream_apply_Params, b *ledger.Batch) error {
	seg := capnp.Struct(p).Segment()
	at := len(seg.Data())
	to, err := p.NewBatch()
	if err != nil {
		return err
	}
	size, plain := fastPathSize(b)
	if !plain || len(seg.Data()) != at+wirelayout.Batch.Bytes() { // the batch is not at the expected offset
		return encodeBatch(to, b)
	}
	piece, ok := byhand.Reserve(seg, size)
	if !ok {
		return encodeBatch(to, b)
	}
	to.SetAtomic(b.Atomic)
	to.SetAckedThrough(b.AckedThrough)
	writeFastPath(&piece, at/byhand.Bytes, b)
	return nil
}

// fastPathSize returns how many words a batch takes beyond the Batch struct; ok is false for a
// batch that needs the generated code.
func fastPathSize(b *ledger.Batch) (size int, ok bool) {
	size = byhand.TextSize(len(b.BatchID)) + byhand.ListSize(len(b.Ops), wirelayout.Op)
	for i := range b.Ops {
		op := &b.Ops[i]
		if len(op.DependsOn) > 0 || op.Expected.Set && op.Expected.Ref != nil || op.HintCount() > 0 {
			return 0, false
		}
		size += byhand.TextSize(len(op.OpID)) + byhand.TextSize(len(op.Method))
		if len(op.Args) > 0 {
			size += byhand.ListSize(len(op.Args), wirelayout.Arg)
		}
		for j := range op.Args {
			a := &op.Args[j]
			if a.Ref != nil {
				return 0, false
			}
			size += byhand.TextSize(len(a.Name)) + byhand.TextSize(len(a.JSON))
		}
	}
	return size, true
}

// writeFastPath writes the pointees of the Batch at a word, in the same order as encodeBatch.
func writeFastPath(p *byhand.Builder, batch int, b *ledger.Batch) {
	pointers := batch + wirelayout.Batch.Data
	p.PutText(pointers+wirelayout.BatchID, b.BatchID)
	op := p.PutList(pointers+wirelayout.BatchOps, len(b.Ops), wirelayout.Op)
	for i := range b.Ops {
		in := &b.Ops[i]
		p.PutUint64(op, wirelayout.OpSeq, in.Seq)
		if in.Expected.Set {
			p.PutUint16(op, wirelayout.OpExpected, uint16(wire.Op_expected_Which_cursor))
			p.PutUint64(op, wirelayout.OpExpectedCursor, in.Expected.Cursor)
		}
		pointers := op + wirelayout.Op.Data
		p.PutText(pointers+wirelayout.OpID, in.OpID)
		p.PutText(pointers+wirelayout.OpMethod, in.Method)
		if len(in.Args) > 0 {
			arg := p.PutList(pointers+wirelayout.OpArgs, len(in.Args), wirelayout.Arg)
			for j := range in.Args {
				pointers := arg + wirelayout.Arg.Data
				p.PutText(pointers+wirelayout.ArgName, in.Args[j].Name)
				p.PutTextBytes(pointers+wirelayout.ArgJSON, in.Args[j].JSON)
				arg += wirelayout.Arg.Words()
			}
		}
		op += wirelayout.Op.Words()
	}
}

func encodeBatch(to wire.Batch, b *ledger.Batch) error {
	if err := to.SetId(b.BatchID); err != nil {
		return err
	}
	to.SetAtomic(b.Atomic)
	to.SetAckedThrough(b.AckedThrough)
	ops, err := to.NewOps(int32(len(b.Ops)))
	if err != nil {
		return err
	}
	hinted := 0
	for i := range b.Ops {
		if b.Ops[i].HintCount() > 0 {
			hinted++
		}
		if err := encodeOp(ops.At(i), &b.Ops[i]); err != nil {
			return err
		}
	}
	if hinted == 0 {
		return nil
	}
	hints, err := to.NewHints(int32(hinted))
	if err != nil {
		return err
	}
	next := 0
	for i := range b.Ops {
		if n := b.Ops[i].HintCount(); n > 0 {
			of := hints.At(next)
			of.SetOp(uint32(i))
			if err := encodeArgs(&b.Ops[i], n, of.NewArgs, true); err != nil {
				return err
			}
			next++
		}
	}
	return nil
}

// encodeArgs encodes the n arguments of an op that are hints, or the n that are not.
func encodeArgs(in *ledger.Intent, n int, list func(int32) (wire.Arg_List, error), hints bool) error {
	if n == 0 {
		return nil
	}
	args, err := list(int32(n))
	if err != nil {
		return err
	}
	next := 0
	for i := range in.Args {
		if in.IsHint(i) != hints {
			continue
		}
		if err := encodeArg(args.At(next), &in.Args[i]); err != nil {
			return err
		}
		next++
	}
	return nil
}

func encodeOp(to wire.Op, in *ledger.Intent) error {
	to.SetSeq(in.Seq)
	if err := to.SetId(in.OpID); err != nil {
		return err
	}
	if err := to.SetMethod(in.Method); err != nil {
		return err
	}
	if len(in.DependsOn) > 0 {
		list, err := to.NewDependsOn(int32(len(in.DependsOn)))
		if err != nil {
			return err
		}
		for i, op := range in.DependsOn {
			if err := list.Set(i, op); err != nil {
				return err
			}
		}
	}
	if err := encodeArgs(in, len(in.Args)-in.HintCount(), to.NewArgs, false); err != nil {
		return err
	}
	switch expected := to.Expected(); {
	case !in.Expected.Set:
		expected.SetNone()
	case in.Expected.Ref == nil:
		expected.SetCursor(in.Expected.Cursor)
	default:
		ref, err := expected.NewRef()
		if err != nil {
			return err
		}
		return encodeOpRef(ref, in.Expected.Ref)
	}
	return nil
}

func encodeArg(to wire.Arg, a *ledger.Arg) error {
	if err := to.SetName(a.Name); err != nil {
		return err
	}
	if a.Ref == nil {
		if err := to.SetJson(""); err != nil || len(a.JSON) == 0 {
			return err
		}
		return capnp.Struct(to).SetTextFromBytes(wirelayout.ArgJSON, a.JSON) // SetJson takes a string: one more copy
	}
	ref, err := to.NewRef()
	if err != nil {
		return err
	}
	return encodeOpRef(ref, a.Ref)
}

func encodeOpRef(to wire.OpRef, r *ledger.Ref) error {
	if err := to.SetOp(r.Op); err != nil {
		return err
	}
	return to.SetPath(r.Path)
}
