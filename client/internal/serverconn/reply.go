// Decoding of the answers to apply: the usual acks by hand, all others by the generated code.

package serverconn

import (
	"fmt"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
)

// decodeReplyFast is DecodeReply without the generated code; ok is false for an uncommon ack,
// which DecodeReply decodes.
func decodeReplyFast(m byhand.Message, ops []ledger.Intent) (out []ledger.Outcome, ok bool) {
	from := m.Root().Struct(wirelayout.ResultsReply)
	if from.Uint16(wirelayout.ReplyWhich) != uint16(wire.ApplyReply_Which_ack) {
		return nil, false
	}
	ack := from.Struct(wirelayout.ReplyAck)
	list := ack.List(wirelayout.AckOutcomes)
	if !m.Supported() || list.Len() != len(ops) {
		return nil, false
	}
	out = make([]ledger.Outcome, len(ops))
	results := make([]byte, 0, 24*len(out)) // as in DecodeReply
	for i := range out {
		w, to := list.At(i), &out[i]
		if to.OpID = ops[i].OpID; string(w.Text(wirelayout.OutcomeOp)) != to.OpID {
			return nil, false
		}
		to.Status = ledger.Status(w.Uint8(wirelayout.OutcomeStatus))
		to.Reason = fault.Code(w.Uint16(wirelayout.OutcomeReason))
		to.Message = string(w.Text(wirelayout.OutcomeMessage))
		to.Cursor = w.Uint64(wirelayout.OutcomeCursor)
		if result := w.Text(wirelayout.OutcomeResult); len(result) > 0 {
			from := len(results)
			results = append(results, result...)
			to.Result = results[from:len(results):len(results)]
		}
		to.Cause = string(w.Text(wirelayout.OutcomeCause))
		to.At = w.Uint64(wirelayout.OutcomeAt)
	}
	return out, m.Supported()
}

// DecodeReply reads the answer to an apply of ops: one outcome for each. A refusal of the whole call is the error, as it was sent.
func DecodeReply(s capnp.Struct, ops []ledger.Intent) ([]ledger.Outcome, error) {
	r, err := wire.Stream_apply_Results(s).Reply()
	if err != nil {
		return nil, fmt.Errorf("decode reply: %w", err)
	}
	if r.Which() == wire.ApplyReply_Which_refusal {
		w, err := r.Refusal()
		if err != nil {
			return nil, fmt.Errorf("decode reply: %w", err)
		}
		f, err := calls.RefusalOf(w)
		if err != nil {
			return nil, err
		}
		if f == nil {
			return nil, fault.Incompatible.With("the server refused a batch without a reason")
		}
		return nil, f
	}
	if r.Which() != wire.ApplyReply_Which_ack {
		return nil, fault.Incompatible.With("the server's answer to a batch is of a kind that this version does not know")
	}
	ack, err := r.Ack()
	if err != nil {
		return nil, fmt.Errorf("decode ack: %w", err)
	}
	list, err := ack.Outcomes()
	if err != nil {
		return nil, fmt.Errorf("decode ack: %w", err)
	}
	if list.Len() != len(ops) {
		return nil, fault.Incompatible.With("the server gave %d outcomes for %d ops", list.Len(), len(ops))
	}
	out := make([]ledger.Outcome, len(ops))
	results := make([]byte, 0, 24*len(out)) // capacity for cursors; larger results are allocated separately
	for i := range out {
		if results, err = decodeOutcome(list.At(i), ops[i].OpID, &out[i], results); err != nil {
			return nil, fmt.Errorf("decode outcome %d: %w", i, err)
		}
	}
	return out, nil
}

// decodeOutcome decodes an outcome, and appends its result to results. op is the id that it must
// have.
func decodeOutcome(w wire.Outcome, op string, to *ledger.Outcome, results []byte) ([]byte, error) {
	t := calls.Texts{}
	if to.OpID = op; string(t.Bytes(w.OpBytes())) != op {
		to.OpID = t.Get(w.Op())
	}
	to.Status = ledger.Status(w.Status())
	to.Reason = fault.Code(w.Reason())
	to.Message = t.Get(w.Message_())
	to.Cursor = w.Cursor()
	if result := t.Bytes(w.ResultBytes()); len(result) > 0 {
		from := len(results)
		results = append(results, result...)
		to.Result = results[from:len(results):len(results)]
	}
	to.Cause = t.Get(w.Cause())
	to.At = w.At()
	return results, t.Err
}
