// Authors and the ops that they send.

package harness

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// Author is one outbox's stream in a session, with the ref it goes by.
type Author struct {
	Session, Outbox, Ref, Space string
	With                        []string
	Seq, Acked                  uint64

	Secret  [32]byte // its hash, once the stream is open
	Visitor *Author  // by a ref made for somebody else
	Last    decide.Submission
}

// NewAuthor is one that is about to create its session.
func NewAuthor(space string) *Author {
	id := NewSession()
	return &Author{Session: id, Outbox: NewOutbox(), Ref: ClientRef(id), Space: space}
}

// WithRef is another outbox in the same session, by another ref.
func (o *Author) WithRef(ref string) *Author {
	return &Author{Session: o.Session, Outbox: NewOutbox(), Ref: ref}
}

// SameSession is another outbox that creates the same session.
func (o *Author) SameSession() *Author {
	return &Author{Session: o.Session, Outbox: NewOutbox(), Ref: o.Ref, Space: o.Space}
}

// NewIntent is an op of a method with names and values in turn.
func NewIntent(method string, args ...any) ledger.Intent {
	return ledger.Intent{OpID: NewOp(), Method: method, Args: ledgertest.Args(args...)}
}

// HashText is the text of some hash that is no other's, as ops have it.
func HashText() string {
	h := Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// Create is the op that creates the author's session.
func (o *Author) Create(args ...any) ledger.Intent {
	return NewIntent(session.MethodCreate, append([]any{"ref", o.Ref, "hash", HashText()}, args...)...)
}

// PutOp is a put of a payload with arguments in it.
func PutOp(key, payload string, args ...any) ledger.Intent {
	return NewIntent(session.MethodPut, "key", key, "payload", json.RawMessage(fmt.Sprintf(payload, args...)))
}

// ShareOp mints a ref with rights.
func ShareOp(ref string, rights ...string) ledger.Intent {
	return NewIntent(session.MethodShare, "ref", ref, "hash", HashText(), "rights", rights)
}

// Batch gives ops the next places of the stream.
func (o *Author) Batch(atomic bool, ops ...ledger.Intent) decide.Submission {
	b := ledger.Batch{Session: o.Session, Outbox: o.Outbox, Incarnation: 1, AckedThrough: o.Acked, BatchID: NewOp(), Atomic: atomic}
	for _, in := range ops {
		o.Seq++
		in.BatchID, in.Seq, in.Session, in.Atomic = b.BatchID, o.Seq, o.Session, atomic
		b.Ops = append(b.Ops, in)
	}
	return decide.Submission{Batch: b, Ref: o.Ref, Space: o.Space, PassedRefs: o.With}
}

// BeginOp gives ops that begin a message.
func BeginOp(message string) func() ledger.Intent {
	return func() ledger.Intent {
		return NewIntent(session.MethodBegin, "message", message, "payload", json.RawMessage(`{"role":"x"}`))
	}
}

// Worker is the author of a session with keys that have values.
func (f *Fixture) Worker(keys ...string) *Author {
	f.Helper()
	o := NewAuthor(f.Space().ID)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: o.Session, Outbox: o.Outbox}, Hash(), 1)
	f.Must("open stream", err)
	ops := []ledger.Intent{o.Create()}
	for _, key := range keys {
		ops = append(ops, PutOp(key, `1`))
	}
	f.Applied(o.Batch(false, ops...))
	return o
}
