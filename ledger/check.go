package ledger

// The checks of a batch and an intent before anything is decided. A batch that cannot be keyed
// (ids, seqs) refuses the whole call; a defect inside one op is that op's own recorded
// rejection, so that one bad op never blocks a queue. An outbox runs the same checks in Commit,
// and returns the errors to its caller.

import (
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
)

// Limits bound one batch. All are inclusive; bytes are those of the arguments' JSON text.
type Limits struct {
	BatchOps     int // op intents in a batch
	BatchBytes   int // argument bytes of a batch in all
	PayloadBytes int // one argument
}

// DefaultLimits returns the limits of a server without configuration.
func DefaultLimits() Limits {
	return Limits{BatchOps: 1000, BatchBytes: 8 << 20, PayloadBytes: 4 << 20}
}

// Bounds that no configuration changes.
const (
	MaxFrameOps  = 10_000 // a larger batch is not even recorded as too large
	maxArgs      = 64     // arguments of one op
	maxDependsOn = 1000   // op ids in one depends_on
	maxName      = 64     // bytes of a method or argument name
	maxPath      = 256    // bytes of a reference's path

	// MaxExternalRefs is how many different ops of other batches one batch may refer to or
	// depend on: each has to be looked up among the batches in flight.
	MaxExternalRefs = 1000
)

// ExternalRefs returns the ids of the ops that a batch refers to or depends on and that are not
// its own. Texts that are no op ids are left out.
func ExternalRefs(ops []Intent) map[string]struct{} {
	var refs map[string]struct{}
	note := func(id string) {
		if validID(id) {
			if refs == nil {
				refs = map[string]struct{}{}
			}
			refs[id] = struct{}{}
		}
	}
	for i := range ops {
		for _, id := range ops[i].DependsOn {
			note(id)
		}
		for _, r := range ops[i].References() {
			note(r.Op)
		}
	}
	if len(refs) > 0 {
		for i := range ops {
			delete(refs, ops[i].OpID)
		}
	}
	return refs
}

// CheckBatch checks that b can be keyed: at least one op, consecutive seqs from 1 up,
// well-formed and distinct op ids, and the batch's own session, id and atomic flag in every op.
// Its error (Malformed, TooLarge) is call-level: nothing is recorded. Admit runs it first.
func CheckBatch(b *Batch) *fault.Error {
	n := len(b.Ops)
	switch {
	case n == 0:
		return fault.Malformed.With("the batch has no ops")
	case n > MaxFrameOps:
		return fault.TooLarge.With("the batch has %d ops; more than %d are never accepted: commit smaller batches", n, MaxFrameOps)
	case b.Session == "" || b.Outbox == "":
		return fault.Malformed.With("the batch names no session or no outbox")
	case !validID(b.BatchID):
		return fault.Malformed.With("the batch id is not a ULID")
	case b.Ops[0].Seq == 0:
		return fault.Malformed.With("seqs start at 1")
	case b.Ops[0].Seq > b.Ops[0].Seq+uint64(n)-1:
		return fault.Malformed.With("the batch's seqs are out of range")
	}
	var ids map[string]struct{} // nil while the ids ascend, as they usually do
	for i := range b.Ops {
		if i > 0 && b.Ops[i].OpID <= b.Ops[i-1].OpID {
			ids = make(map[string]struct{}, n)
			break
		}
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		switch {
		case !validID(op.OpID):
			return fault.Malformed.With("op id %d of the batch is not a ULID", i+1)
		case op.Seq != b.Ops[0].Seq+uint64(i):
			return fault.Malformed.With("op %s has seq %d where %d must follow: a batch's seqs are consecutive", op.OpID, op.Seq, b.Ops[0].Seq+uint64(i))
		case op.BatchID != b.BatchID:
			return fault.Malformed.With("op %s names another batch", op.OpID)
		case op.Session != b.Session:
			return fault.Malformed.With("op %s names another session: a batch is for one", op.OpID)
		case op.Atomic != b.Atomic:
			return fault.Malformed.With("op %s differs from its batch in being atomic", op.OpID)
		}
		if ids != nil {
			if _, again := ids[op.OpID]; again {
				return fault.Malformed.With("op %s is in the batch twice", op.OpID)
			}
			ids[op.OpID] = struct{}{}
		}
	}
	return nil
}

// CheckSize checks that ops stay within lim's bounds for one batch. The error is TooLarge; on
// the server it rejects every op of the batch.
func CheckSize(ops []Intent, lim Limits) *fault.Error {
	if len(ops) > lim.BatchOps {
		return fault.TooLarge.With("the batch has %d ops, the limit is %d: commit smaller batches", len(ops), lim.BatchOps)
	}
	if n := len(ExternalRefs(ops)); n > MaxExternalRefs {
		return fault.TooLarge.With("the batch refers to %d ops of other batches, the limit is %d: commit smaller batches", n, MaxExternalRefs)
	}
	bytes := 0
	for i := range ops {
		for _, a := range ops[i].Args {
			bytes += len(a.JSON)
		}
	}
	if bytes > lim.BatchBytes {
		return fault.TooLarge.With("the batch has %d bytes of arguments, the limit is %d: commit smaller batches", bytes, lim.BatchBytes)
	}
	return nil
}

// CheckIntent checks that one intent can be decoded: its method, argument and reference shapes
// and its own size. Its seq, batch id and session are not checked, so that an outbox can call
// it before it allocates a seq. Errors are Malformed, TooLarge and BadReference; on the server
// they reject this op.
func CheckIntent(in *Intent, lim Limits) *fault.Error { return checkIntent(in, lim, false) }

// CheckIntentSkipJSON is CheckIntent for an intent whose arguments are known to be JSON text in
// UTF-8; that check takes longer than all the rest.
func CheckIntentSkipJSON(in *Intent, lim Limits) *fault.Error { return checkIntent(in, lim, true) }

func checkIntent(in *Intent, lim Limits, sound bool) *fault.Error {
	switch {
	case in.Method == "" || len(in.Method) > maxName || !utf8.ValidString(in.Method):
		return fault.Malformed.With("the method's name is empty, not UTF-8 or longer than %d bytes", maxName)
	case len(in.Args) > maxArgs:
		return fault.TooLarge.With("%d arguments, the limit is %d", len(in.Args), maxArgs)
	case len(in.DependsOn) > maxDependsOn:
		return fault.TooLarge.With("%d ops in depends_on, the limit is %d", len(in.DependsOn), maxDependsOn)
	case !in.Expected.Set && (in.Expected.Ref != nil || in.Expected.Cursor != 0),
		in.Expected.Ref != nil && in.Expected.Cursor != 0:
		return fault.Malformed.With("expected_cursor is neither absent, nor one number, nor one reference")
	}
	for i, a := range in.Args {
		if a.Name == "" || len(a.Name) > maxName || !utf8.ValidString(a.Name) {
			return fault.Malformed.With("the name of argument %d is empty, not UTF-8 or longer than %d bytes", i+1, maxName)
		}
		for _, b := range in.Args[:i] {
			if b.Name == a.Name {
				return fault.Malformed.With("argument %q is given twice", a.Name)
			}
		}
		if a.Ref != nil {
			if len(a.JSON) > 0 {
				return fault.Malformed.With("argument %q is both a value and a reference", a.Name)
			}
			continue
		}
		if err := checkPayloadSize(&a, lim); err != nil {
			return err
		}
		if !sound && (!utf8.Valid(a.JSON) || !IsJSON(a.JSON)) {
			return fault.Malformed.With("argument %q is not JSON text", a.Name)
		}
	}
	for _, id := range in.DependsOn {
		if !validID(id) {
			return fault.BadReference.With("depends_on has an element that is not an op id")
		}
	}
	for _, r := range in.References() {
		if !validID(r.Op) {
			return fault.BadReference.With("a reference does not name an op id")
		}
		if len(r.Path) > maxPath || !utf8.ValidString(r.Path) {
			return fault.BadReference.With("the path of a reference to op %s is not UTF-8 or longer than %d bytes", r.Op, maxPath)
		}
	}
	return nil
}

func checkPayloadSize(a *Arg, lim Limits) *fault.Error {
	if len(a.JSON) > lim.PayloadBytes {
		return fault.TooLarge.With("argument %q has %d bytes, the limit is %d", a.Name, len(a.JSON), lim.PayloadBytes)
	}
	return nil
}

// validID reports whether s is a ULID in canonical spelling.
func validID(s string) bool {
	u, err := ulid.ParseStrict(s)
	return err == nil && u.String() == s
}
