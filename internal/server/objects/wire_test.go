//go:build unix

// Batches and replies as a peer writes and reads them.

package objects

import (
	"encoding/base64"
	"fmt"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
	"github.com/mooring-rpc/mooring/rpc"
)

func hashText(s capability.Secret) string {
	h := s.Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// op makes an intent without its place in a batch, of arguments as ledgertest.Args has them.
func op(method string, args ...any) ledger.Intent {
	return ledger.Intent{OpID: ulid.Make().String(), Method: method, Args: ledgertest.Args(args...)}
}

// put is the op most tests append with.
func put(n int) ledger.Intent {
	return op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]int{"n": n})
}

// batch makes the stream's next batch of ops.
func (m *made) batch(ops ...ledger.Intent) *ledger.Batch { return m.box.batch(m.id, ops...) }

func (b *box) batch(session string, ops ...ledger.Intent) *ledger.Batch {
	batch := &ledger.Batch{Session: session, BatchID: ulid.Make().String(), Ops: ops}
	for i := range ops {
		b.seq++
		ops[i].Seq, ops[i].BatchID, ops[i].Session = b.seq, batch.BatchID, session
	}
	return batch
}

// reply is what an apply came back with.
type reply struct {
	refusal                       *fault.Error
	cursor                        uint64
	applied, duplicates, rejected uint32
	outcomes                      []ledger.Outcome
	repeated                      []bool
}

func applying(t testing.TB, stream *rpc.Ref, b *ledger.Batch, with ...*rpc.Ref) *rpc.Promise {
	return stream.Call(within(t), streamApply, structSize(0, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
		to, err := wire.Stream_apply_Params(s).NewBatch()
		if err != nil {
			return err
		}
		if err := writeBatch(to, b); err != nil {
			return err
		}
		if len(with) == 0 {
			return nil
		}
		list, err := capnp.NewPointerList(s.Segment(), int32(len(with)))
		if err != nil {
			return err
		}
		for i, r := range with {
			if err := list.Set(i, capnp.NewInterface(s.Segment(), capnp.CapabilityID(caps.Add(r))).ToPtr()); err != nil {
				return err
			}
		}
		return s.SetPtr(1, list.ToPtr())
	})
}

func writeBatch(to wire.Batch, b *ledger.Batch) error {
	var w fieldWriter
	w.do(to.SetId(b.BatchID))
	to.SetAtomic(b.Atomic)
	to.SetAckedThrough(b.AckedThrough)
	ops, err := to.NewOps(int32(len(b.Ops)))
	w.do(err)
	for i := range b.Ops {
		in, o := &b.Ops[i], ops.At(i)
		o.SetSeq(in.Seq)
		w.do(o.SetId(in.OpID))
		w.do(o.SetMethod(in.Method))
		if len(in.DependsOn) > 0 { // an empty list would not be read by hand
			deps, err := o.NewDependsOn(int32(len(in.DependsOn)))
			w.do(err)
			for j, d := range in.DependsOn {
				w.do(deps.Set(j, d))
			}
		}
		args, err := o.NewArgs(int32(len(in.Args)))
		w.do(err)
		for j, a := range in.Args {
			to := args.At(j)
			w.do(to.SetName(a.Name))
			if a.Ref == nil {
				w.do(to.SetJson(string(a.JSON)))
				continue
			}
			ref, err := to.NewRef()
			w.do(err)
			w.do(ref.SetOp(a.Ref.Op))
			w.do(ref.SetPath(a.Ref.Path))
		}
		if in.Expected.Set {
			o.Expected().SetCursor(in.Expected.Cursor)
		}
	}
	return w.err
}

func readReply(t testing.TB, p *rpc.Promise) *reply {
	t.Helper()
	s, _, err := p.Wait(within(t))
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	defer p.Release()
	w, err := wire.Stream_apply_Results(s).Reply()
	if err != nil {
		t.Fatal(err)
	}
	if w.Which() == wire.ApplyReply_Which_refusal {
		r, _ := w.Refusal()
		return &reply{refusal: readRefusal(r)}
	}
	ack, err := w.Ack()
	if err != nil {
		t.Fatal(err)
	}
	list, err := ack.Outcomes()
	if err != nil {
		t.Fatal(err)
	}
	out := &reply{cursor: ack.Cursor(), applied: ack.Applied(), duplicates: ack.Duplicates(), rejected: ack.Rejected()}
	for i := range list.Len() {
		o := list.At(i)
		var r fieldReader
		out.outcomes = append(out.outcomes, ledger.Outcome{OpID: r.text(o.Op()), Status: ledger.Status(o.Status()),
			Reason: fault.Code(o.Reason()), Message: r.text(o.Message_()), Cursor: o.Cursor(), Result: []byte(r.text(o.Result())),
			Cause: r.text(o.Cause()), At: o.At()})
		out.repeated = append(out.repeated, o.Duplicate())
	}
	return out
}

func readRefusal(r wire.Refusal) *fault.Error {
	text, _ := r.Message_()
	return &fault.Error{Code: fault.Code(r.Code()), Message: text, At: r.At()}
}
