//go:build unix

// Batches and replies as a peer writes and reads them, and small messages that stand for large batches.

package node

import (
	"cmp"
	"encoding/base64"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func hashText(s capability.Secret) string {
	h := s.Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// Ops that tests append, and what encodes a batch.
var op, put, writeBatch = batchtest.Op, batchtest.Put, batchtest.Write

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
	return stream.Call(within(t), methods.StreamApply.Method, methods.StreamApply.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
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

// fieldReader collects the first error of several getters.
type fieldReader struct{ err error }

func (r *fieldReader) text(s string, err error) string {
	r.err = cmp.Or(r.err, err)
	return s
}

// fieldWriter collects the first error of several setters.
type fieldWriter struct{ err error }

func (w *fieldWriter) do(err error) { w.err = cmp.Or(w.err, err) }

// text sets a field unless it is empty.
func (w *fieldWriter) text(set func(string) error, v string) {
	if v != "" {
		w.do(set(v))
	}
}

func (w *fieldWriter) data(set func([]byte) error, v []byte) {
	if len(v) > 0 {
		w.do(set(v))
	}
}

func TestASmallMessageIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	p := r.dial()
	m := r.create(p)
	for name, craft := range batchtest.Crafted {
		got := readReply(t, m.stream.Call(within(t), methods.StreamApply.Method, methods.StreamApply.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
			b, err := wire.Stream_apply_Params(s).NewBatch()
			craft(t, b)
			return err
		}))
		if got.refusal == nil || got.refusal.Code != fault.TooLarge && got.refusal.Code != fault.Malformed {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("after all that: %+v", ack)
	}
}
