package ledger

// The rows of the table that need no authority and no state: fenced, server_behind, duplicate,
// outbox_diverged, gap. They answer a batch as a whole, since a batch is never split.

import "github.com/mooring-rpc/mooring/fault"

// Admit answers b by the first row of the table that fits:
//
//	cannot be keyed (CheckBatch)             Malformed, TooLarge
//	an older incarnation                     Fenced
//	acked_through above last_seq             ServerBehind, At = last_seq
//	recorded before, same ops and digests    the recorded outcomes, word for word
//	… and acknowledged since                 outcomes with Status 0 and Reason Pruned
//	recorded before, anything else           OutboxDiverged
//	beyond last_seq + 1                      Gap, At = the expected seq
//	otherwise                                nil, nil: it is new, go on to Decide
//
// An error is for the whole call and nothing is recorded. st is the stream's row under lock; if
// the batch is new or a repeat, Admit raises st's Incarnation to the batch's, and changes
// nothing else. at returns the unpruned record that holds a seq and must know all records from
// the batch's first seq to its last. The outcomes returned are the caller's; their Result is
// shared with the record and must not be changed.
func Admit(st *Stream, b *Batch, at func(seq uint64) *Record) ([]Outcome, *fault.Error) {
	if err := CheckBatch(b); err != nil {
		return nil, err
	}
	if err := checkIncarnation(st, b.Incarnation); err != nil {
		return nil, err
	}
	if b.AckedThrough > st.LastSeq {
		return nil, serverBehind(st, b.AckedThrough)
	}
	first, last := b.Ops[0].Seq, b.Ops[len(b.Ops)-1].Seq
	if first > st.LastSeq+1 {
		return nil, fault.Gap.With("seq %d arrived where %d is next: send from there", first, st.LastSeq+1).Pos(st.LastSeq + 1)
	}
	var outcomes []Outcome
	if first <= st.LastSeq {
		var err *fault.Error
		if outcomes, err = answerRepeat(st, b, first, last, at); err != nil {
			return nil, err
		}
	}
	st.Incarnation = b.Incarnation
	return outcomes, nil
}

// answerRepeat answers a batch whose first seq was recorded before.
func answerRepeat(st *Stream, b *Batch, first, last uint64, at func(seq uint64) *Record) ([]Outcome, *fault.Error) {
	if last > st.LastSeq {
		return nil, diverged(first)
	}
	rec := at(first)
	switch {
	case rec != nil:
		if rec.FirstSeq != first || rec.LastSeq() != last || rec.BatchID != b.BatchID {
			return nil, diverged(first)
		}
		for i := range b.Ops {
			if o := &rec.Outcomes[i]; o.OpID != b.Ops[i].OpID || o.Digest != b.Ops[i].Digest() {
				return nil, diverged(b.Ops[i].Seq)
			}
		}
		return append([]Outcome(nil), rec.Outcomes...), nil

	case first > st.AckedThrough:
		return nil, fault.Internal.With("the record of seq %d is missing", first)

	case last > st.AckedThrough || at(last) != nil:
		return nil, diverged(first) // the record of first was pruned whole, so it ended before last
	}
	if end := &b.Ops[len(b.Ops)-1]; last == st.AckedThrough && (end.OpID != st.AckedOp || end.Digest() != st.AckedDigest) {
		return nil, diverged(last)
	}
	gone := make([]Outcome, len(b.Ops))
	for i := range gone {
		gone[i] = Outcome{OpID: b.Ops[i].OpID, Reason: fault.Pruned,
			Message: "recorded before; its outcome was acknowledged and is gone"}
	}
	return gone, nil
}

// AckThrough records that the client has stored every outcome up to through. It raises st's
// AckedThrough with that op's id and digest, never lowers it, and fails with ServerBehind above
// last_seq. at must know the record that holds through. raised reports whether st changed: then
// records whose last seq is at or below st.AckedThrough are to be pruned (History.Prune, the
// store).
//
// For a batch it comes last, after Admit and Decide.
func AckThrough(st *Stream, through uint64, at func(seq uint64) *Record) (raised bool, _ *fault.Error) {
	if through > st.LastSeq {
		return false, serverBehind(st, through)
	}
	if through <= st.AckedThrough {
		return false, nil
	}
	rec := at(through)
	if rec == nil {
		return false, fault.Internal.With("the record of seq %d is missing", through)
	}
	o := &rec.Outcomes[through-rec.FirstSeq]
	st.AckedThrough, st.AckedOp, st.AckedDigest = through, o.OpID, o.Digest
	return true, nil
}

// Acknowledge is AckThrough without a batch, by the outbox's process of this incarnation: an
// older one is Fenced, and a newer one raises st's.
func Acknowledge(st *Stream, incarnation, through uint64, at func(seq uint64) *Record) (raised bool, _ *fault.Error) {
	if err := checkIncarnation(st, incarnation); err != nil {
		return false, err
	}
	st.Incarnation = incarnation
	return AckThrough(st, through, at)
}

func checkIncarnation(st *Stream, incarnation uint64) *fault.Error {
	if incarnation < st.Incarnation {
		return fault.Fenced.With("incarnation %d of this outbox was superseded by %d: another process has its lease; stop sending", incarnation, st.Incarnation)
	}
	return nil
}

func serverBehind(st *Stream, acked uint64) *fault.Error {
	return fault.ServerBehind.With("this outbox has acknowledged seq %d but the server knows only %d: the server was restored to an earlier time and nothing more is sent: restore its newer data, or send what the session lacks again (mooring outbox reconcile)", acked, st.LastSeq).Pos(st.LastSeq)
}

func diverged(seq uint64) *fault.Error {
	return fault.OutboxDiverged.With("seq %d was used before for another op: this outbox is a copy, or was restored from one: send what the session lacks in a new stream (mooring outbox reconcile)", seq).Pos(seq)
}
