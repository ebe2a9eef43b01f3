// Batches and acks by hand. They are the most frequent calls, so usual ones are decoded and encoded with capnpfast, where
// the generated code follows one pointer after the other. All others are left to that code (batch.go), which gives the
// answers and refusals.

package codec

import (
	"bytes"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
)

// DecodePlain is DecodeBatch for the parameters of an apply, with capnpfast. ok is false for an
// unusual or too large batch, which DecodeBatch decodes or refuses. The arguments' values stay in
// the message, unless they are less than half of it.
func DecodePlain(m capnpfast.Message, session, outbox string, incarnation uint64, limit int) (b ledger.Batch, size int, ok bool) {
	params := m.Root()
	from := params.Struct(wirelayout.ParamsBatch)
	ops := from.List(wirelayout.BatchOps)
	if !m.Supported() || !params.Null(wirelayout.ParamsWith) || !from.Null(wirelayout.BatchHints) || ops.Len() > ledger.MaxFrameOps {
		return b, 0, false
	}
	r := FieldReader{limit: limit, sizeHint: m.Size()}
	b = ledger.Batch{Session: session, Outbox: outbox, Incarnation: incarnation,
		AckedThrough: from.Uint64(wirelayout.BatchAckedThrough), BatchID: r.Text(string(from.Text(wirelayout.BatchID)), nil),
		Atomic: from.Bit(wirelayout.BatchAtomic), Ops: make([]ledger.Intent, ops.Len())}
	before := &ledger.Intent{} // whose names are likely to repeat
	for i := range b.Ops {
		op := &b.Ops[i]
		op.BatchID, op.Session, op.Atomic = b.BatchID, session, b.Atomic
		if !r.fastOp(ops.At(i), op, before, len(b.Ops)-i) || !m.Supported() {
			return b, 0, false
		}
		before = op
	}
	if r.size < m.Size()/2 {
		cloneArgs(b.Ops)
	}
	return b, r.size + opBytes*len(b.Ops), r.err == nil && m.Supported()
}

// cloneArgs copies the arguments' values out of their message, so that it can be freed.
func cloneArgs(ops []ledger.Intent) {
	for i := range ops {
		for j := range ops[i].Args {
			a := &ops[i].Args[j]
			a.JSON = bytes.Clone(a.JSON)
		}
	}
}

// fastOp is op with capnpfast. before is the previous op, and left the number of ops
// left, including this one.
func (r *FieldReader) fastOp(from capnpfast.Struct, to, before *ledger.Intent, left int) bool {
	to.OpID = r.Text(string(from.Text(wirelayout.OpID)), nil)
	to.Seq = from.Uint64(wirelayout.OpSeq)
	to.Method = r.internLike(from.Text(wirelayout.OpMethod), before.Method)
	args := from.List(wirelayout.OpArgs)
	n := args.Len()
	if !from.Null(wirelayout.OpDependsOn) || !r.checkList(n, argBytes, argsLabel) {
		return false
	}
	if n > len(r.argPool) {
		r.argPool = make([]ledger.Arg, max(n, min(n*left, r.sizeHint/argBytes))) // as many as may follow
	}
	if n > 0 {
		to.Args, r.argPool = r.argPool[:n:n], r.argPool[n:]
	}
	for i := range to.Args {
		arg, a, likely := args.At(i), &to.Args[i], ""
		if i < len(before.Args) {
			likely = before.Args[i].Name
		}
		a.Name = r.internLike(arg.Text(wirelayout.ArgName), likely)
		if arg.Uint16(wirelayout.ArgWhich) != uint16(wire.Arg_Which_json) {
			return false
		}
		if text := arg.Text(wirelayout.ArgJSON); len(text) > 0 {
			r.charge(len(text))
			a.JSON = text
		}
		if r.err != nil {
			return false
		}
	}
	switch wire.Op_expected_Which(from.Uint16(wirelayout.OpExpected)) {
	case wire.Op_expected_Which_none:
	case wire.Op_expected_Which_cursor:
		to.Expected = ledger.Expect{Set: true, Cursor: from.Uint64(wirelayout.OpExpectedCursor)}
	default:
		return false
	}
	return r.err == nil
}

// internLike is intern for a name that is probably equal to likely.
func (r *FieldReader) internLike(b []byte, likely string) string {
	if string(b) != likely {
		return r.intern(b, nil)
	}
	r.charge(len(b))
	return likely
}

// EncodeAck writes an ack into the reply of an apply.
func EncodeAck(reply wire.ApplyReply, a *decide.Answer) error {
	seg := capnp.Struct(reply).Segment()
	at := len(seg.Data())
	to, err := reply.NewAck()
	if err != nil {
		return err
	}
	encodeCounts(to, a)
	if len(seg.Data()) == at+wirelayout.Ack.Bytes() { // not in another segment
		if piece, ok := capnpfast.Reserve(seg, outcomesSize(a.Outcomes)); ok {
			writeOutcomes(&piece, at/capnpfast.Bytes, a)
			return nil
		}
	}
	return encodeOutcomes(to, a)
}

// outcomesSize returns the size of outcomes as a list, in words.
func outcomesSize(outcomes []ledger.Outcome) int {
	size := capnpfast.ListSize(len(outcomes), wirelayout.Outcome)
	for i := range outcomes {
		o := &outcomes[i]
		size += capnpfast.TextSize(len(o.OpID)) + capnpfast.TextSize(len(o.Message)) + capnpfast.TextSize(len(o.Cause)) +
			capnpfast.TextSize(len(o.Result))
	}
	return size
}

// writeOutcomes writes the targets of the Ack at a word, in the order of encodeOutcomes.
func writeOutcomes(p *capnpfast.Builder, ack int, a *decide.Answer) {
	at := p.PutList(ack+wirelayout.Ack.Data+wirelayout.AckOutcomes, len(a.Outcomes), wirelayout.Outcome)
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		p.PutUint8(at, wirelayout.OutcomeStatus, uint8(o.Status))
		if a.Duplicate {
			p.PutUint8(at, wirelayout.OutcomeDuplicate/8, 1<<(wirelayout.OutcomeDuplicate%8))
		}
		p.PutUint16(at, wirelayout.OutcomeReason, uint16(o.Reason))
		p.PutUint64(at, wirelayout.OutcomeCursor, o.Cursor)
		p.PutUint64(at, wirelayout.OutcomeAt, o.At)
		pointers := at + wirelayout.Outcome.Data
		p.PutText(pointers+wirelayout.OutcomeOp, o.OpID)
		p.PutText(pointers+wirelayout.OutcomeMessage, o.Message)
		p.PutText(pointers+wirelayout.OutcomeCause, o.Cause)
		p.PutTextBytes(pointers+wirelayout.OutcomeResult, o.Result)
		at += wirelayout.Outcome.Words()
	}
}

func encodeCounts(to wire.Ack, a *decide.Answer) {
	applied, duplicates, rejected := a.Counts()
	to.SetCursor(a.Cursor)
	to.SetApplied(uint32(applied))
	to.SetDuplicates(uint32(duplicates))
	to.SetRejected(uint32(rejected))
}

func encodeOutcomes(to wire.Ack, a *decide.Answer) error {
	return EncodeList(to.NewOutcomes, a.Outcomes, func(to wire.Outcome, o ledger.Outcome) error {
		return encodeOutcome(to, &o, a.Duplicate)
	})
}

func encodeOutcome(to wire.Outcome, o *ledger.Outcome, duplicate bool) error {
	var w FieldWriter
	to.SetStatus(uint8(o.Status))
	to.SetDuplicate(duplicate)
	to.SetReason(uint16(o.Reason))
	to.SetCursor(o.Cursor)
	to.SetAt(o.At)
	w.Text(to.SetOp, o.OpID)
	w.Text(to.SetMessage_, o.Message)
	w.Text(to.SetCause, o.Cause)
	w.Do(setBytes(capnp.Struct(to), wirelayout.OutcomeResult, o.Result))
	return w.err
}
