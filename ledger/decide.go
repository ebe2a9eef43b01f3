package ledger

// The rows of the table that are recorded: skipped, denied, conflict,
// rejected, voided, applied, in this order, one op after the other.

import (
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// Effects is what Decide needs of whoever knows sessions and authority. All
// calls are in order, from one goroutine.
type Effects interface {
	// Cursor is the session's cursor now, with what this batch has done so far; 0
	// for who may not be told, who then finds that any other expected one differs.
	Cursor() uint64

	// Authorize says why the submission may not do op, nil if it may. References
	// that resolve are values by then, others are still there; op may be malformed.
	Authorize(op *Intent) *fault.Error

	// Apply does op, whose shape is sound and whose arguments are all values.
	// cursor is that of its event, or the present one if it changed nothing;
	// result is a JSON object and is kept. If it fails it has changed nothing.
	Apply(op *Intent) (cursor uint64, result []byte, err *fault.Error)

	// Mark and Undo take back everything applied since the mark.
	Mark() any
	Undo(mark any)
}

// Decide runs the ops of a batch that Admit let pass and returns their record,
// not yet stored; st.LastSeq is raised to its last seq. For each op the first
// row that fits is recorded:
//
//	a reference or depends_on whose op did not apply   Skipped, Cause names it
//	Authorize refuses                                  Denied, with its reason
//	expected_cursor differs                            Conflict, Cursor = the session's
//	cannot be decoded, too large, a bad reference,     Rejected, with the reason
//	or Apply refuses
//	method void                                        Voided
//	otherwise                                          Applied
//
// expected_cursor is compared with the session's cursor as it was before the
// batch's first op. A reference to an op that neither lookup nor this batch
// before it knows (never sent, or pruned) is a bad one, and so is depends_on. Of
// a batch that refers to more than MaxOutside others, lookup need know none: its
// ops are not Skipped but, if nothing else, too large.
// Apply may still find a lack of authority that shows only in its rules: an
// error of the authority block is recorded as Denied.
//
// In an atomic batch the first op that does not apply undoes the others and all
// are recorded BatchAborted, with that op as the Cause and its reason. A void
// aborts its siblings too, unless the whole batch is voids.
//
// A call-level code (Overloaded, NotYetKnown, Internal, …) from Effects ends the
// call: everything is undone, the error returned, nothing recorded, st as it was.
func Decide(st *Stream, b *Batch, lookup func(opID string) (*Outcome, bool), lim Limits, eff Effects) (*Record, *fault.Error) {
	d := decision{lookup: lookup, lim: lim, eff: eff, base: eff.Cursor(), size: CheckSize(b.Ops, lim)}
	d.lost = d.size != nil && len(Outside(b.Ops)) > MaxOutside
	rec := &Record{BatchID: b.BatchID, FirstSeq: b.Ops[0].Seq, Outcomes: make([]Outcome, 0, len(b.Ops))}
	var mark any
	if len(b.Ops) > 1 {
		mark = eff.Mark()
	}
	atomic := b.Atomic && !allVoid(b.Ops)
	for i := range b.Ops {
		o, err := d.decide(&b.Ops[i])
		if err != nil {
			if len(b.Ops) > 1 {
				eff.Undo(mark)
			}
			return nil, err
		}
		if atomic && o.Status != Applied {
			if len(b.Ops) > 1 {
				eff.Undo(mark)
			}
			rec.Outcomes = abort(b.Ops, i, o)
			break
		}
		rec.Outcomes = append(rec.Outcomes, o)
		d.decided(rec.Outcomes)
	}
	st.LastSeq = rec.LastSeq()
	return rec, nil
}

// decision is the state of one Decide.
type decision struct {
	lookup func(string) (*Outcome, bool)
	lim    Limits
	eff    Effects
	base   uint64              // cursor before the batch
	size   *fault.Error        // why the batch as a whole is too large
	lost   bool                // it refers to so many ops that nobody looks for them
	so     []Outcome           // ops of this batch decided so far
	done   map[string]*Outcome // so by op id, once one is asked for
}

// decided takes what has been decided so far: as before, and one more.
func (d *decision) decided(so []Outcome) {
	d.so = so
	if d.done != nil {
		o := &so[len(so)-1]
		d.done[o.OpID] = o
	}
}

func (d *decision) outcome(opID string) (*Outcome, bool) {
	if d.done == nil {
		d.done = make(map[string]*Outcome, len(d.so))
		for i := range d.so {
			d.done[d.so[i].OpID] = &d.so[i]
		}
	}
	if o, ok := d.done[opID]; ok {
		return o, true
	}
	return d.lookup(opID)
}

// decide gives one op's outcome; its error is call-level.
func (d *decision) decide(op *Intent) (Outcome, *fault.Error) {
	out := Outcome{OpID: op.OpID, Digest: op.Digest()}

	cause, unknown := d.dependencies(op)
	if cause != nil && !d.lost {
		out.refuse(Skipped, fault.Skipped.With("op %s, which it needs, did not apply (%s)", cause.OpID, cause.Reason))
		out.Cause, out.Reason = cause.OpID, cause.Reason
		return out, nil
	}
	came := op // its shape is judged as it came: what it refers to has no part in that
	op, unresolved := d.resolve(op)
	if err := d.eff.Authorize(op); err != nil {
		if callLevel(err.Code) {
			return out, err
		}
		out.refuse(Denied, err)
		return out, nil
	}
	if op.Expected.Set && op.Expected.Ref == nil && op.Expected.Cursor != d.base {
		out.refuse(Conflict, fault.Conflict.With("expected cursor %d, the session was at %d: read what is new and decide again", op.Expected.Cursor, d.base))
		out.Cursor = d.base
		return out, nil
	}
	for _, err := range []*fault.Error{d.size, CheckIntent(came, d.lim), unknown, unresolved} {
		if err != nil {
			out.refuse(Rejected, err)
			return out, nil
		}
	}
	if op.Method == MethodVoid {
		out.refuse(Voided, fault.Voided.With("dropped by its own outbox"))
		return out, nil
	}
	cursor, result, err := d.eff.Apply(op)
	switch {
	case err == nil && !isObject(result):
		return out, fault.Internal.With("the result of %s is not a JSON object", op.Method)
	case err == nil:
		out.Status, out.Cursor, out.Result = Applied, cursor, result
	case callLevel(err.Code):
		return out, err
	case err.Code.Authority():
		out.refuse(Denied, err)
	default:
		out.refuse(Rejected, err)
	}
	return out, nil
}

// dependencies looks up every op that op refers to or depends on: the first
// that did not apply, else an error for the first that nobody knows.
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

// refuse sets why an op did not apply.
func (o *Outcome) refuse(s Status, err *fault.Error) {
	o.Status, o.Reason, o.Message = s, err.Code, bounded(err.Message)
	if err.Code == fault.WrongOffset {
		o.At = err.At
	}
}

// abort records a whole atomic batch for the sake of the op at place i.
func abort(ops []Intent, i int, cause Outcome) []Outcome {
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

// callLevel says whether a code answers the whole call: the list's second
// block, and defects of ours.
func callLevel(c fault.Code) bool {
	return c >= fault.Fenced && c < fault.UnknownRef || c == fault.Internal || c == fault.DiskFull || c == fault.Canceled
}

// maxMessage bounds what one outcome's message takes in its record, in bytes.
const maxMessage = 1024

// bounded makes a message fit to be recorded and repeated word for word.
func bounded(s string) string {
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
