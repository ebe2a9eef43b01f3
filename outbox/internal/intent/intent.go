package intent

// The types: a batch as it is stored, and an op of it.

import (
	"encoding/json"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/oprights"
	"github.com/mooring-rpc/mooring/ledger"
)

// Batch is the content of a row: its batch.
type Batch struct {
	Atomic    bool
	Compacted bool // finished, every op applied: arguments are gone, ids and methods are left
	// NoDigest: the ops were stored without a digest, so damage may go undetected.
	NoDigest  bool
	Ops       []Op
	CustomIDs bool            // while it is being committed: its caller chose an op id that is not derived
	IntentBuf []ledger.Intent // for Wire, once; its content is scratch
}

// Op is one op in a row.
type Op struct {
	ID       string
	Method   string
	Args     []ledger.Arg
	Deps     []string
	Expected ledger.Expect
	Retries  string
	// LocalOutcome is the outcome decided here, before the server saw the op.
	LocalOutcome *ledger.Outcome
	// DropRequested: it has a seq and may have been sent; the sender is to find out.
	DropRequested bool
	// Void: it is sent as a void under its own id, for good.
	Void bool
}

// TakesSeq reports whether the op takes a seq.
func (o *Op) TakesSeq() bool { return o.LocalOutcome == nil || o.Void }

// Methods that create a session.
const (
	MethodCreate = "create"
	MethodFork   = "fork"
)

func CreatesSession(method string) bool { return method == MethodCreate || method == MethodFork }

// Needs lists the ops that o depends on or refers to, in the order of their resolution.
func (o *Op) Needs() []string {
	ids := append([]string(nil), o.Deps...)
	for _, a := range o.Args {
		if a.Ref != nil {
			ids = append(ids, a.Ref.Op)
		}
	}
	if o.Expected.Ref != nil {
		ids = append(ids, o.Expected.Ref.Op)
	}
	return ids
}

// ExternalRefs lists the ops outside the batch that its ops need.
func (b *Batch) ExternalRefs() (ids []string) {
	inside := make(map[string]bool)
	for i := range b.Ops {
		for _, id := range b.Ops[i].Needs() {
			if !inside[id] {
				ids = append(ids, id)
			}
		}
		inside[b.Ops[i].ID] = true
	}
	return ids
}

// HasExternalRefs reports whether an op refers to one outside the batch.
func (b *Batch) HasExternalRefs() bool {
	var inside map[string]bool // nil until an op needs another
	for i := range b.Ops {
		op := &b.Ops[i]
		if op.Retries != "" {
			return true
		}
		needs := op.Needs()
		if inside == nil && len(needs) > 0 {
			inside = make(map[string]bool, len(b.Ops))
			for j := range i {
				inside[b.Ops[j].ID] = true
			}
		}
		for _, id := range needs {
			if !inside[id] {
				return true
			}
		}
		if inside != nil {
			inside[op.ID] = true
		}
	}
	return false
}

// Decided reports whether no op is left for the server.
func (b *Batch) Decided() bool { return b.SeqCount() == 0 }

// SeqCount counts the ops that take a seq.
func (b *Batch) SeqCount() int {
	n := 0
	for i := range b.Ops {
		if b.Ops[i].TakesSeq() {
			n++
		}
	}
	return n
}

// OwnerRef returns the id of the ref that a creating batch mints; "" if it is not known.
func (b *Batch) OwnerRef() string {
	for _, a := range b.Ops[0].Args {
		if a.Name == "ref" && a.Ref == nil {
			return JSONString(a.JSON)
		}
	}
	return ""
}

// RightsNeeded returns the rights that the batch's ops need in their session.
func (b *Batch) RightsNeeded() (want capability.Rights) {
	for i := range b.Ops {
		want |= oprights.Of(b.Ops[i].Method, b.Ops[i].Args)
	}
	return want
}

// JSONString returns a JSON string's text; "" for anything else.
func JSONString(text []byte) (s string) {
	_ = json.Unmarshal(text, &s)
	return s
}

// Expectation returns why an op was meant for the session as it was; "" if it was not.
func (o *Op) Expectation() string {
	if o.Expected.Set || o.Expected.Ref != nil {
		return "it expects the session at a cursor"
	}
	for _, a := range o.Args {
		switch a.Name {
		case "offset":
			return "it expects a text of a length"
		case "expect":
			return "it expects a key's value of a cursor"
		case "claim":
			return "it names the claim of a key"
		}
	}
	return ""
}

// Wire returns the batch as it is sent, with seqs from first on.
func (b *Batch) Wire(session, batch string, first uint64) *ledger.Batch {
	n, room := b.SeqCount(), b.IntentBuf
	if b.IntentBuf = nil; cap(room) < n {
		room = make([]ledger.Intent, 0, n)
	}
	w := &ledger.Batch{Session: session, BatchID: batch, Atomic: b.Atomic, Ops: room[:0]}
	for i := range b.Ops {
		op := &b.Ops[i]
		if !op.TakesSeq() {
			continue
		}
		in := ledger.Intent{OpID: op.ID, BatchID: batch, Seq: first + uint64(len(w.Ops)), Session: session, Atomic: b.Atomic}
		if op.Void {
			in.Method = ledger.MethodVoid
		} else {
			in.Method, in.Args, in.DependsOn, in.Expected = op.Method, op.Args, op.Deps, op.Expected
		}
		w.Ops = append(w.Ops, in)
	}
	return w
}
