package ledger

// The rows of the table that are recorded: skipped, denied, conflict, rejected, voided,
// applied, in this order, one op after the other.

import (
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// Effects is Decide's view of sessions and authority. All calls are in order, from one
// goroutine.
type Effects interface {
	// Cursor returns the session's cursor, including this batch's events so far; 0 if the
	// submission may not know it, so that any expected cursor differs.
	Cursor() uint64

	// Authorize returns why the submission may not do op, nil if it may. References that
	// resolve are values by then, others are still there; op may be malformed.
	Authorize(op *Intent) *fault.Error

	// Apply does op, which is well-formed and whose arguments are all values. cursor is that of
	// its event, or the present one if it changed nothing; result is a JSON object and is
	// retained. If it fails it has changed nothing.
	Apply(op *Intent) (cursor uint64, result []byte, err *fault.Error)

	// Savepoint and RollbackTo undo everything applied since the savepoint.
	Savepoint() any
	RollbackTo(mark any)
}

// Decide runs the ops of a batch that Admit found new and returns their record, not yet stored;
// st.LastSeq is raised to its last seq. For each op the first row that fits is recorded:
//
//	a reference or depends_on whose op did not apply   Skipped, Cause names it
//	Authorize refuses                                  Denied, with its reason
//	expected_cursor differs                            Conflict, Cursor = the session's; Apply may
//	                                                   answer it too, Cursor = its At
//	cannot be decoded, too large, a bad reference,     Rejected, with the reason
//	or Apply refuses
//	method void                                        Voided
//	otherwise                                          Applied
//
// expected_cursor is compared with the session's cursor as it was before the batch's first op.
// A reference to an op that neither lookup nor this batch before it knows (never sent, or
// pruned) is a bad one, and so is depends_on. If a batch refers to more than MaxExternalRefs
// others, lookup need know none: its ops are not Skipped but, if no other row fits, too large.
// Apply may still find a lack of authority that shows only in its rules: an error of the
// authority block is recorded as Denied.
//
// In an atomic batch the first op that does not apply undoes the others and all are recorded
// BatchAborted, with that op as the Cause and its reason. A void aborts its siblings too,
// unless the whole batch is voids.
//
// A call-level code (Overloaded, NotYetKnown, Internal, …) from Effects ends the call:
// everything is undone, the error returned, nothing recorded, st as it was.
func Decide(st *Stream, b *Batch, lookup func(opID string) (*Outcome, bool), lim Limits, eff Effects) (*Record, *fault.Error) {
	d := decision{lookup: lookup, lim: lim, eff: eff, baseCursor: eff.Cursor(), sizeErr: CheckSize(b.Ops, lim)}
	d.tooManyRefs = d.sizeErr != nil && len(ExternalRefs(b.Ops)) > MaxExternalRefs
	rec := &Record{BatchID: b.BatchID, FirstSeq: b.Ops[0].Seq, Outcomes: make([]Outcome, 0, len(b.Ops))}
	var mark any
	if len(b.Ops) > 1 {
		mark = eff.Savepoint()
	}
	atomic := b.Atomic && !allVoid(b.Ops)
	for i := range b.Ops {
		o, err := d.decide(&b.Ops[i])
		if err != nil {
			if len(b.Ops) > 1 {
				eff.RollbackTo(mark)
			}
			return nil, err
		}
		if atomic && o.Status != Applied {
			if len(b.Ops) > 1 {
				eff.RollbackTo(mark)
			}
			rec.Outcomes = abortAll(b.Ops, i, o)
			break
		}
		rec.Outcomes = append(rec.Outcomes, o)
		d.record(rec.Outcomes)
	}
	st.LastSeq = rec.LastSeq()
	return rec, nil
}

// decision is the state of one Decide.
type decision struct {
	lookup      func(string) (*Outcome, bool)
	lim         Limits
	eff         Effects
	baseCursor  uint64              // session's cursor before the batch
	sizeErr     *fault.Error        // why the batch as a whole is too large
	tooManyRefs bool                // it refers to more than MaxExternalRefs ops, so none is looked up
	outcomes    []Outcome           // outcomes of this batch's ops decided so far
	byOp        map[string]*Outcome // outcomes by op id; built on the first lookup
}

// record sets the outcomes decided so far: the former ones, and one more.
func (d *decision) record(so []Outcome) {
	d.outcomes = so
	if d.byOp != nil {
		o := &so[len(so)-1]
		d.byOp[o.OpID] = o
	}
}

func (d *decision) outcome(opID string) (*Outcome, bool) {
	if d.byOp == nil {
		d.byOp = make(map[string]*Outcome, len(d.outcomes))
		for i := range d.outcomes {
			d.byOp[d.outcomes[i].OpID] = &d.outcomes[i]
		}
	}
	if o, ok := d.byOp[opID]; ok {
		return o, true
	}
	return d.lookup(opID)
}

// decide returns one op's outcome; its error is call-level.
func (d *decision) decide(op *Intent) (Outcome, *fault.Error) {
	out := Outcome{OpID: op.OpID, Digest: op.Digest()}

	cause, unknown := d.dependencies(op)
	if cause != nil && !d.tooManyRefs {
		out.setFailure(Skipped, fault.Skipped.With("op %s, which it needs, did not apply (%s)", cause.OpID, cause.Reason))
		out.Cause, out.Reason = cause.OpID, cause.Reason
		return out, nil
	}
	came := op // its shape is checked before references are replaced
	op, unresolved := d.resolve(op)
	if err := d.eff.Authorize(op); err != nil {
		if isCallLevel(err.Code) {
			return out, err
		}
		out.setFailure(Denied, err)
		return out, nil
	}
	if op.Expected.Set && op.Expected.Ref == nil && op.Expected.Cursor != d.baseCursor {
		out.setFailure(Conflict, fault.Conflict.With("expected cursor %d, the session was at %d: read what is new and decide again", op.Expected.Cursor, d.baseCursor))
		out.Cursor = d.baseCursor
		return out, nil
	}
	for _, err := range []*fault.Error{d.sizeErr, CheckIntent(came, d.lim), unknown, unresolved} {
		if err != nil {
			out.setFailure(Rejected, err)
			return out, nil
		}
	}
	if op.Method == MethodVoid {
		out.setFailure(Voided, fault.Voided.With("dropped by its own outbox"))
		return out, nil
	}
	cursor, result, err := d.eff.Apply(op)
	switch {
	case err == nil && !isJSONObject(result):
		return out, fault.Internal.With("the result of %s is not a JSON object", op.Method)
	case err == nil:
		out.Status, out.Cursor, out.Result = Applied, cursor, result
	case isCallLevel(err.Code):
		return out, err
	case err.Code.Authority():
		out.setFailure(Denied, err)
	case err.Code == fault.Conflict: // with what the op expects of its key
		out.setFailure(Conflict, err)
		out.Cursor = err.At
	default:
		out.setFailure(Rejected, err)
	}
	return out, nil
}

// dependencies looks up every op that op refers to or depends on, and returns the first that
// did not apply, else an error for the first unknown one.
func (d *decision) dependencies(op *Intent) (cause *Outcome, unknown *fault.Error) {
	look := func(id string) bool {
		o, ok := d.outcome(id)
		if ok && o.Status != Applied {
			cause = o
			return false
		}
		if !ok && unknown == nil {
			unknown = fault.BadReference.With("op %s is not known here: it was not sent before this one on this stream, or its outcome was acknowledged and is gone; commit its value instead of a reference", id)
		}
		return true
	}
	for _, id := range op.DependsOn {
		if !look(id) {
			return cause, nil
		}
	}
	for _, a := range op.Args {
		if a.Ref != nil && !look(a.Ref.Op) {
			return cause, nil
		}
	}
	if r := op.Expected.Ref; r != nil && !look(r.Op) {
		return cause, nil
	}
	return nil, unknown
}

// setFailure sets the status and the reason of an op that did not apply.
func (o *Outcome) setFailure(s Status, err *fault.Error) {
	o.Status, o.Reason, o.Message = s, err.Code, truncateMessage(err.Message)
	if err.Code == fault.WrongOffset {
		o.At = err.At
	}
}

// abortAll records a whole atomic batch as aborted by the op at index i.
func abortAll(ops []Intent, i int, cause Outcome) []Outcome {
	all := make([]Outcome, len(ops))
	for j := range ops {
		all[j] = Outcome{OpID: ops[j].OpID, Digest: ops[j].Digest(), Status: BatchAborted,
			Reason: cause.Reason, Cause: cause.OpID}
		if j == i {
			all[j].Message, all[j].At, all[j].Cursor = cause.Message, cause.At, cause.Cursor
			continue
		}
		all[j].Message = "op " + cause.OpID + " of the same atomic batch did not apply (" + cause.Reason.String() + ")"
	}
	return all
}

func allVoid(ops []Intent) bool {
	for i := range ops {
		if ops[i].Method != MethodVoid {
			return false
		}
	}
	return true
}

// isCallLevel reports whether a code answers the whole call: the codes of fault's second block,
// and of internal defects.
func isCallLevel(c fault.Code) bool {
	return c >= fault.Fenced && c < fault.UnknownRef || c == fault.Internal || c == fault.DiskFull || c == fault.Canceled
}

// maxMessage bounds an outcome's message in its record, in bytes.
const maxMessage = 1024

// truncateMessage makes a message fit to be recorded and repeated word for word.
func truncateMessage(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxMessage {
		return s
	}
	s = s[:maxMessage]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + " …"
}
