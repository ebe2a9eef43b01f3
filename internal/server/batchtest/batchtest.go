// Package batchtest has the batches that the tests of packages codec and node share: as a peer writes them, honest or not.
package batchtest

import (
	"fmt"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// Op returns an intent without its place in a batch; its arguments are those of ledgertest.Args.
func Op(method string, args ...any) ledger.Intent {
	return ledger.Intent{OpID: ulid.Make().String(), Method: method, Args: ledgertest.Args(args...)}
}

// Put returns the op that tests mostly append with.
func Put(n int) ledger.Intent {
	return Op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]int{"n": n})
}

// Write encodes a batch.
func Write(to wire.Batch, b *ledger.Batch) error {
	var failed error
	do := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	do(to.SetId(b.BatchID))
	to.SetAtomic(b.Atomic)
	to.SetAckedThrough(b.AckedThrough)
	ops, err := to.NewOps(int32(len(b.Ops)))
	do(err)
	for i := range b.Ops {
		in, o := &b.Ops[i], ops.At(i)
		o.SetSeq(in.Seq)
		do(o.SetId(in.OpID))
		do(o.SetMethod(in.Method))
		if len(in.DependsOn) > 0 { // an empty list would not be read by hand
			deps, err := o.NewDependsOn(int32(len(in.DependsOn)))
			do(err)
			for j, d := range in.DependsOn {
				do(deps.Set(j, d))
			}
		}
		args, err := o.NewArgs(int32(len(in.Args)))
		do(err)
		for j, a := range in.Args {
			to := args.At(j)
			do(to.SetName(a.Name))
			if a.Ref == nil {
				do(to.SetJson(string(a.JSON)))
				continue
			}
			ref, err := to.NewRef()
			do(err)
			do(ref.SetOp(a.Ref.Op))
			do(ref.SetPath(a.Ref.Path))
		}
		if in.Expected.Set {
			o.Expected().SetCursor(in.Expected.Cursor)
		}
	}
	return failed
}

// Many is a number of structs without a size that a message of a few words may list.
const Many = 8_000_000

// Voids returns a list of n structs without a size.
func Voids(t testing.TB, seg *capnp.Segment, n int32) capnp.Ptr {
	t.Helper()
	l, err := capnp.NewCompositeList(seg, capnp.ObjectSize{}, n)
	if err != nil {
		t.Fatal(err)
	}
	return l.ToPtr()
}

// pointers returns a list of n pointers to the same thing.
func pointers(t testing.TB, seg *capnp.Segment, n int32, to capnp.Ptr) capnp.Ptr {
	t.Helper()
	l, err := capnp.NewPointerList(seg, n)
	for i := range n {
		if err == nil {
			err = l.Set(int(i), to)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return l.ToPtr()
}

// listLen is the longest list that is decoded.
const listLen = 2000

// Crafted has small messages that stand for large batches: lists of structs without a size, and
// pointers that share their target.
var Crafted = map[string]func(t testing.TB, b wire.Batch){
	"ops": func(t testing.TB, b wire.Batch) {
		Set(t, capnp.Struct(b), 1, Voids(t, b.Segment(), Many))
	},
	"args": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		Set(t, capnp.Struct(ops.At(0)), 2, Voids(t, b.Segment(), Many))
	},
	"dependsOn": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		Set(t, capnp.Struct(ops.At(0)), 3, pointers(t, b.Segment(), 100_000, capnp.Ptr{}))
	},
	"one args of many ops": func(t testing.TB, b wire.Batch) {
		const n = 3000
		ops, _ := b.NewOps(n)
		args := Voids(t, b.Segment(), listLen)
		for i := range n {
			Set(t, capnp.Struct(ops.At(i)), 2, args)
		}
	},
	"one dependsOn of many ops": func(t testing.TB, b wire.Batch) {
		const n = 3000
		ops, _ := b.NewOps(n)
		deps := pointers(t, b.Segment(), listLen, capnp.Ptr{})
		for i := range n {
			Set(t, capnp.Struct(ops.At(i)), 3, deps)
		}
	},
	"one text of many dependsOn": func(t testing.TB, b wire.Batch) {
		ops, _ := b.NewOps(1)
		text, _ := capnp.NewTextFromBytes(b.Segment(), make([]byte, 60_000))
		Set(t, capnp.Struct(ops.At(0)), 3, pointers(t, b.Segment(), 1000, text.ToPtr()))
	},
	"one argument of many ops": func(t testing.TB, b wire.Batch) {
		const n = 1000
		ops, _ := b.NewOps(n)
		arg, _ := wire.NewArg_List(b.Segment(), 1)
		if err := arg.At(0).SetJson(string(make([]byte, 60_000))); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			Set(t, capnp.Struct(ops.At(i)), 2, arg.ToPtr())
		}
	},
}

// Set sets a pointer of a struct.
func Set(t testing.TB, s capnp.Struct, pointer uint16, to capnp.Ptr) {
	t.Helper()
	if err := s.SetPtr(pointer, to); err != nil {
		t.Fatal(err)
	}
}

// StructSize returns the size of a struct, in words of data and pointers.
func StructSize(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}
