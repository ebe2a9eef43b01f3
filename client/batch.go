// A batch: ops that become durable together. Every verb returns a promise of its op's result,
// which later ops of this or any other batch may refer to in place of a value; the server inserts
// the value.

package client

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/internal/oprights"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// Batch collects ops for one session. It belongs to one goroutine, and is frozen by Commit.
// Errors in an op are reported by Commit, with the op they are of.
//
// An argument of type any may be a value that encoding/json marshals, JSON text (json.RawMessage
// or []byte, kept byte for byte), a reference (Promise.Field), or a *Promise, which stands for
// its whole result. A reference inside such a value is refused with bad_reference, by Commit.
type Batch struct {
	session *Session
	batch   outbox.Batch
	err     error // the first error of a verb
	frozen  bool  // the outbox holds the batch, which must not change any more

	// Allocated for many ops at once; the unused rest.
	ids      []string
	promises []Promise
	args     []ledger.Arg
	valueBuf []byte // of the arguments' values
}

// Arg is a named argument for Do.
type Arg struct {
	Name  string
	Value any
}

// Promise is the future result of an op.
type Promise struct {
	batch  *Batch
	index  int
	idUsed bool // its op id was given out
}

// OpID returns the op's id, known before the op is durable. A reference to it can be made in any
// later process: ResultRef{Op: id, Path: "cursor"}.
func (p *Promise) OpID() string {
	if !p.batch.frozen { // once frozen, OpID may be called concurrently
		p.idUsed = true
	}
	return p.batch.batch.Ops[p.index].ID
}

// Field returns a reference to a field of the result by a dot-separated path: "cursor" (in every
// result), "length", "ref", "session", "epoch", "cut", "key", "claim". "" is the whole result.
func (p *Promise) Field(path string) ResultRef { return ResultRef{Op: p.OpID(), Path: path} }

// ResultRef stands for a field of the result of an op that was made before, perhaps in another process: as an argument, or as
// an expected cursor.
type ResultRef struct {
	Op   string // the op's id
	Path string // as Promise.Field has it
}

// MarshalJSON fails: a reference is a whole argument and cannot stand within a value.
func (ResultRef) MarshalJSON() ([]byte, error) { return nil, ledger.ErrRefInValue }

// MarshalJSON fails, as that of a ResultRef does: a promise has no value yet.
func (p Promise) MarshalJSON() ([]byte, error) { return nil, ledger.ErrRefInValue }

// Arg sets an argument of the op, replacing the one that the verb set.
func (p *Promise) Arg(name string, value any) *Promise {
	if p.batch.isFrozen() {
		return p
	}
	arg, err := p.batch.encodeValue(name, value)
	if err != nil {
		p.batch.fail(p.index, err)
		return p
	}
	return p.setArg(arg)
}

func (p *Promise) setArg(arg ledger.Arg) *Promise {
	op := &p.batch.batch.Ops[p.index]
	for i := range op.Args {
		if op.Args[i].Name == arg.Name {
			op.Args[i] = arg
			return p
		}
	}
	op.Args = append(op.Args, arg)
	return p
}

// textArg is Arg for a string.
func (p *Promise) textArg(name, value string) *Promise {
	if !isPlain(value) {
		return p.Arg(name, value)
	}
	return p.setArg(ledger.Arg{Name: name, JSON: p.batch.quote(value)})
}

// DependsOn makes the server skip the op if one of ops did not apply.
func (p *Promise) DependsOn(ops ...*Promise) *Promise {
	for _, o := range ops {
		if o == nil {
			p.batch.fail(p.index, fault.Usage.With("it depends on a nil *Promise"))
			return p
		}
		p.DependsOnID(o.OpID())
	}
	return p
}

// DependsOnID is DependsOn by op ids.
func (p *Promise) DependsOnID(ids ...string) *Promise {
	if p.batch.isFrozen() {
		return p
	}
	op := &p.batch.batch.Ops[p.index]
	op.DependsOn = append(op.DependsOn, ids...)
	return p
}

// Expect makes the op a conflict unless the session is at this cursor: a number or a reference.
// It is compared once, before the batch's first op.
func (p *Promise) Expect(cursor any) *Promise {
	if p.batch.isFrozen() {
		return p
	}
	op := &p.batch.batch.Ops[p.index]
	arg, err := p.batch.encodeValue("expected_cursor", cursor)
	if err != nil {
		p.batch.fail(p.index, err)
		return p
	}
	op.Expected = ledger.Expect{Set: true, Ref: arg.Ref}
	if arg.Ref != nil {
		return p
	}
	var at *uint64 // null is no expectation
	if err := json.Unmarshal(arg.JSON, &at); err != nil || at == nil {
		p.batch.fail(p.index, fault.BadArgument.With("the expected cursor is not a whole number"))
		return p
	}
	op.Expected.Cursor = *at
	return p
}

// ExpectKey makes a Put, Remove, Patch or Add a conflict unless its key's value was last changed at
// this cursor (Entry.Cursor, or the "cursor" of the op that did), a number or a reference; 0 expects
// that there is none. The outcome of a conflict has the cursor of the key's last change. Unlike
// Expect it is compared when the op's turn comes, and other keys may change meanwhile.
func (p *Promise) ExpectKey(cursor any) *Promise { return p.Arg("expect", cursor) }

// WithClaim names the claim under which a Put, Remove, Patch or Add changes its key: the *Promise of
// the Claim or ClaimFirst, the cursor of the claim (Claim.Cursor) or a reference to it. A key that is
// claimed is changed by no op without it, nor by those of another outbox. The op is a conflict if the
// claim is not in force any more, with the cursor of the one that is.
func (p *Promise) WithClaim(claim any) *Promise { return p.Arg("claim", claimArg(claim)) }

// claimArg returns the claim that a promise is of, and any other value as it is.
func claimArg(claim any) any {
	if p, ok := claim.(*Promise); ok && p != nil {
		return p.Field("claim")
	}
	return claim
}

// SetID sets the op's id, a ULID chosen by the caller. It must be called before anything refers
// to the op.
func (p *Promise) SetID(opID string) *Promise {
	if p.batch.isFrozen() {
		return p
	}
	if p.idUsed {
		p.batch.fail(p.index, fault.Usage.With("another op refers to this op's old id: set the id first"))
	}
	if _, err := ulid.ParseStrict(opID); err != nil {
		p.batch.fail(p.index, fault.BadArgument.With("the op id is not a ULID"))
	}
	p.batch.batch.Ops[p.index].ID = opID
	return p
}

// ID returns the batch's id, which identifies its ticket.
func (b *Batch) ID() string { return b.batch.ID }

// SetID sets the batch's id (outbox.NewBatchID), before its first op. Committing an equal batch
// under the same id again changes nothing, so a caller that saves the id may repeat Commit after
// a crash.
func (b *Batch) SetID(id string) *Batch {
	if b.isFrozen() {
		return b
	}
	if _, err := ulid.ParseStrict(id); err != nil && b.err == nil {
		b.err = fault.BadArgument.With("the batch id is not a ULID")
	}
	if len(b.batch.Ops) > 0 && b.err == nil {
		b.err = fault.Usage.With("the batch has ops already: set its id first")
	}
	b.batch.ID = id
	return b
}

// Atomic makes the ops apply all or none.
func (b *Batch) Atomic() *Batch {
	if !b.isFrozen() {
		b.batch.Atomic = true
	}
	return b
}

// Len returns the number of ops so far.
func (b *Batch) Len() int { return len(b.batch.Ops) }

// Do adds an op of any method with args.
func (b *Batch) Do(method string, args ...Arg) *Promise {
	p := b.add(method, len(args))
	for _, a := range args {
		p.Arg(a.Name, a.Value)
	}
	return p
}

// isFrozen reports whether the batch was committed and can no longer change. The next Commit then
// reports that a verb was called.
func (b *Batch) isFrozen() bool {
	if b.frozen && b.err == nil {
		b.err = fault.Usage.With("the batch was committed and cannot change: begin another one")
	}
	return b.frozen
}

// add adds an op that will get args arguments.
func (b *Batch) add(method string, args int) *Promise {
	n := len(b.batch.Ops)
	if b.isFrozen() { // the promise is of an op in no batch
		return &Promise{batch: &Batch{session: b.session, err: b.err, batch: outbox.Batch{Ops: make([]outbox.Op, 1)}}}
	}
	if len(b.promises) == 0 {
		more := 1 // most batches have one op
		if n > 0 {
			more = max(min(3*n, 24), 7, n)
		}
		b.batch.Ops = slices.Grow(b.batch.Ops, more)
		b.ids, b.promises = opid.Sequence(b.batch.ID, n, more), make([]Promise, more)
	}
	if args > cap(b.args)-len(b.args) {
		b.args = make([]ledger.Arg, 0, args*len(b.promises))
	}
	at := len(b.args)
	b.args = b.args[:at+args]
	b.batch.Ops = append(b.batch.Ops, outbox.Op{ID: b.ids[0], Method: method, Args: b.args[at : at : at+args]})
	p := &b.promises[0]
	*p = Promise{batch: b, index: n}
	b.ids, b.promises = b.ids[1:], b.promises[1:]
	return p
}

// alloc returns memory for n bytes, from a buffer shared by several values if n is small.
func (b *Batch) alloc(n int) []byte {
	if n > len(b.valueBuf) {
		if len(b.batch.Ops) == 1 || n > maxValueBuf/4 {
			return make([]byte, 0, n)
		}
		b.valueBuf = make([]byte, min(8*n, maxValueBuf))
	}
	taken := b.valueBuf[:0:n]
	b.valueBuf = b.valueBuf[n:]
	return taken
}

// maxValueBuf is the largest buffer shared by several values, in bytes.
const maxValueBuf = 4096

// Put sets a key to a payload: of the kinds that Mooring knows (session, message/ID,
// part/MESSAGE/ID, session_diff, model/ID) to a JSON object, of a kind of your own (KIND or
// KIND/ID[/ID…], up to 512 bytes: todo/1, plan) to any JSON value, null too, as json.RawMessage byte
// for byte. A put equal to the present value changes nothing. Its schema_version is 1 unless set with
// Arg.
func (b *Batch) Put(key string, payload any) *Promise {
	return b.add(session.MethodPut, 2).textArg("key", key).Arg("payload", payload)
}

// Remove removes a key; removing a missing key changes nothing.
func (b *Batch) Remove(key string) *Promise {
	return b.add(session.MethodRemove, 1).textArg("key", key)
}

// Patch changes members of the value of a key of your own kinds, by RFC 7396: patch is an object with
// the members to set, null for those to remove; nested objects are patched likewise. Two patches of
// different members both apply, whoever made them. What patch does not name keeps its bytes. A value
// that is missing or no object counts as {}; a patch that is no object replaces the value. A value in
// which a name stands twice is rejected as BadPayload.
func (b *Batch) Patch(key string, patch any) *Promise {
	return b.add(session.MethodPatch, 2).textArg("key", key).Arg("patch", patch)
}

// Add adds a whole number to a member of the value of a key of your own kinds, an object; a missing
// value or member counts as 0. The number and the sum are within 2^53 - 1; a member that is no whole
// number is rejected as BadPayload.
func (b *Batch) Add(key, member string, by int64) *Promise {
	return b.add(session.MethodAdd, 3).textArg("key", key).textArg("member", member).Arg("by", by)
}

// Claim claims a key of your own kinds that has a value, for lease (1 second to an hour): until then
// no other outbox changes it, and neither does another worker of this one. worker tells the workers of
// an outbox apart, in up to 64 bytes; "" is its only one. Claiming the same again renews the lease. A
// claim of another is a conflict, with its cursor. The result has the "claim", the cursor that the
// worker's ops name (WithClaim), and the "key". The claim ends with Release, Remove or the lease: what
// the worker sends later is a conflict, and changes nothing. Where too many keys are claimed under the ref,
// the op waits in the outbox.
func (b *Batch) Claim(key string, lease time.Duration, worker string) *Promise {
	return b.claim(lease, worker).textArg("key", key)
}

// ClaimFirst claims the first key below a prefix (todo/), in the order of keys, that has a value and is
// not claimed. Its result names the "key"; if none is free, it changes nothing and the result names none.
// It takes the right to read, too.
func (b *Batch) ClaimFirst(prefix string, lease time.Duration, worker string) *Promise {
	return b.claim(lease, worker).textArg("prefix", prefix)
}

func (b *Batch) claim(lease time.Duration, worker string) *Promise {
	p := b.add(session.MethodClaim, 3).Arg("lease", lease.Milliseconds())
	if worker != "" {
		p.textArg("worker", worker)
	}
	return p
}

// Release ends a claim of this outbox: claim is as in WithClaim. The key is free at once. Under a ref with
// the right break it also ends a claim of another outbox: claim is the cursor that Entry.Claim shows.
func (b *Batch) Release(key string, claim any) *Promise {
	return b.add(session.MethodRelease, 2).textArg("key", key).Arg("claim", claimArg(claim))
}

// AskOptions are what a request may have beside its kind and payload.
type AskOptions struct {
	ID      string        // of the request, 1 to 200 letters, digits and _.:@+-; "": a new one. It is the idempotency key
	Message string        // id of the message whose turn it is about; a stop needs one
	Choices []Choice      // among which an answer chooses, 32 at most; nil: any answer
	Expires time.Duration // from when the op applies until nobody may answer any more, a second to 30 days; 0: never
}

// Choice is one of the answers that a request offers.
type Choice struct {
	ID    string `json:"id"`              // up to 64 bytes
	Label string `json:"label,omitempty"` // for people
	Kind  string `json:"kind,omitempty"`  // what kind of choice it is, by the asker's protocol
}

// Ask makes a request in the session: a prompt or a stop for its agent, a permission or a question for people, or one
// of a kind of your own. It takes the right ask. The payload is any JSON; nil is {}. It returns the request's id.
// Asking the same again changes nothing, under the same id another request is rejected (AlreadyExists). Where too
// many requests are open under the ref (32, and 256 in the session), the op waits in the outbox.
func (b *Batch) Ask(kind string, payload any, o AskOptions) (id string, p *Promise) {
	if id = o.ID; id == "" {
		id = ulid.Make().String()
	}
	p = b.add(session.MethodAsk, 6).textArg("request", id).textArg("kind", kind)
	if payload != nil {
		p.Arg("payload", payload)
	}
	if o.Message != "" {
		p.textArg("message", o.Message)
	}
	if o.Choices != nil {
		p.Arg("choices", o.Choices)
	}
	if o.Expires != 0 {
		p.Arg("expires_in", o.Expires.Milliseconds())
	}
	return id, p
}

// ClaimRequest claims an open request, for lease (1 second to an hour): until then nobody else answers it. It takes the
// right answer. worker is as in Claim, and claiming again renews the lease. The result has the "claim". When the lease
// is over the request is open again; a prompt is not, since it may have been handed to an agent.
func (b *Batch) ClaimRequest(id string, lease time.Duration, worker string) *Promise {
	return b.claim(lease, worker).textArg("request", id)
}

// ReleaseRequest gives a request back, which is open again: claim is as in WithClaim.
func (b *Batch) ReleaseRequest(id string, claim any) *Promise {
	return b.add(session.MethodRelease, 2).textArg("request", id).Arg("claim", claimArg(claim))
}

// AnswerOptions are an answer.
type AnswerOptions struct {
	Choice  string // id of one of the request's choices
	Payload any    // any JSON; nil: none
	Shown   string // the digest of what was shown (Request.Digest), which the answer to a permission needs
	Claim   any    // of the request, as in WithClaim; nil: it is not claimed
}

// Answer answers a request. It takes the right answer. The first answer is recorded; any other is a conflict, with the
// cursor of the first. An answer to what was withdrawn, or has expired, is rejected (RequestEnded).
func (b *Batch) Answer(id string, o AnswerOptions) *Promise {
	p := b.add(session.MethodAnswer, 5).textArg("request", id)
	if o.Choice != "" {
		p.textArg("choice", o.Choice)
	}
	if o.Payload != nil {
		p.Arg("payload", o.Payload)
	}
	if o.Shown != "" {
		p.textArg("shown", o.Shown)
	}
	if o.Claim != nil {
		p.Arg("claim", claimArg(o.Claim))
	}
	return p
}

// EndUnknown ends a request that this outbox has claimed as unknown: it was handed over, and nobody knows what came of
// it, for which reason is said.
func (b *Batch) EndUnknown(id string, claim any, reason string) *Promise {
	p := b.add(session.MethodAnswer, 4).textArg("request", id).Arg("claim", claimArg(claim)).textArg("state", string(session.RequestUnknown))
	if reason != "" {
		p.textArg("reason", reason)
	}
	return p
}

// Withdraw ends a request that nobody works on: one's own, or one that was asked under a ref made from this one. A prompt whose
// claimer is gone ends as unknown by it.
func (b *Batch) Withdraw(id, reason string) *Promise {
	p := b.add(session.MethodWithdraw, 2).textArg("request", id)
	if reason != "" {
		p.textArg("reason", reason)
	}
	return p
}

// Begin puts a message and opens its turn: until Finalize its parts can grow.
func (b *Batch) Begin(message string, payload any) *Promise {
	return b.add(session.MethodBegin, 2).textArg("message", message).Arg("payload", payload)
}

// AppendText appends text to a part's payload.text while its message's turn is open. offset is
// the text's length in bytes so far: a number, or the "length" of the previous AppendText's
// promise.
func (b *Batch) AppendText(key string, offset any, text string) *Promise {
	return b.add(session.MethodAppendText, 3).textArg("key", key).Arg("offset", offset).textArg("text", text)
}

// Finalize ends a message's turn as Completed, Failed or Aborted. Arg can also set payload,
// parts, usage, error and completed.
func (b *Batch) Finalize(message, status string) *Promise {
	return b.add(session.MethodFinalize, 2).textArg("message", message).textArg("status", status)
}

// ShareOptions limit a new ref: it allows at most what the ref it is minted from does.
type ShareOptions struct {
	Rights capability.Rights // at least one
	// Children are the rights in the session's children (Session.Open), at any depth, those that are there and those
	// that come: among Rights, and none that make or end refs. 0: it does not reach them. Such a ref has none of
	// From, Message, ReadKeys and WriteKeys; its end is a cut in each child.
	Children capability.Rights
	Methods  []string      // append only these methods; nil all, and an empty list is refused
	Lifetime time.Duration // lifetime from when the op applies, by the server's clock; 0 unlimited
	Expires  time.Time     // instead of Lifetime: when it ends, by the server's clock, which must not be past it
	From     uint64        // first visible cursor; 0 all
	Message  string        // only this message, with its parts and turn; "" all
	// ReadKeys are the keys that the ref shows; cursor marks stand for all else. A text that ends in
	// "/" is all that is below it, any other exactly that key. They do not limit writing; nil is all.
	ReadKeys []string
	// WriteKeys are the keys that the ref writes: ops about others are denied. They do not limit
	// reading. A ref that begins and finalizes a message's turn writes message/ID and part/ID/.
	WriteKeys []string
	// AskKinds are the kinds of requests that a ref with the right ask asks, and AnswerKinds those that one with the
	// right answer claims and answers: prompt, stop, permission, question, or your own. nil is all.
	AskKinds, AnswerKinds []string
	Redemptions           uint32 // maximum number of redemptions; 0 unlimited
	Label                 string
	Actor                 string // a path under that of the ref it is minted from
	// Public gives the ref a public id, capability.PublicID: whoever knows it reads the session at the server's page /share/ID, as
	// the ref shows it and until the ref ends, without its secret. Its rights are read alone. A server of the version before does not know
	// it: the outbox keeps the batch until it does (Unsupported).
	Public bool
	// Seal binds the ref to a key: redeeming it takes the private key too, and one more round
	// trip, so its text alone is worthless. nil binds it to none; a value that is not a key is
	// refused.
	Seal ed25519.PublicKey
}

// check refuses options that would be read as no limit at all, and texts that would be altered by
// encoding.
func (o *ShareOptions) check() error {
	if o.Seal != nil && len(o.Seal) != ed25519.PublicKeySize {
		return fault.BadArgument.With("the seal is no Ed25519 public key, which has %d bytes: leave it nil for a ref that is not sealed", ed25519.PublicKeySize)
	}
	if err := checkLifetime(o.Lifetime, o.Expires); err != nil {
		return err
	}
	return checkLimits(o.Methods, o.ReadKeys, o.WriteKeys, o.Message, o.Label, o.Actor)
}

func checkLifetime(lifetime time.Duration, expires time.Time) error {
	switch {
	case lifetime != 0 && !expires.IsZero():
		return fault.BadArgument.With("a ref has a lifetime or an expiry time, not both")
	case lifetime < 0 || lifetime > 0 && lifetime < time.Millisecond:
		return fault.BadArgument.With("a lifetime is at least a millisecond")
	}
	return nil
}

// expiryOf returns when a lifetime from now ends by this machine's clock: sent for older servers,
// which do not know lifetimes.
func expiryOf(lifetime time.Duration) int64 { return time.Now().Add(lifetime).UnixMilli() }

func checkLimits(methods, readKeys, writeKeys []string, message, label, actor string) error {
	if err := checkKeys("read_keys", readKeys); err != nil {
		return err
	}
	if err := checkKeys("write_keys", writeKeys); err != nil {
		return err
	}
	if methods != nil && len(methods) == 0 {
		return fault.BadArgument.With("the list of methods is empty: leave it nil for all, or leave out the right to append for none")
	}
	for _, t := range append([]string{message, label, actor}, methods...) {
		if err := checkText("a text", t); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys refuses a list of keys, called name, that no server takes.
func checkKeys(name string, keys []string) error {
	if err := capability.CheckKeys(name, keys); err != nil {
		return err
	}
	return nil
}

// newRef returns a new ref for target at an address, sealed if Seal is set.
func (o *ShareOptions) newRef(at capability.Ref, target string) capability.Ref {
	if len(o.Seal) > 0 {
		return at.NewSealed(target)
	}
	return at.New(target)
}

// Share makes a new ref, offline: it can be handed on at once and works once the op has applied.
func (b *Batch) Share(o ShareOptions) (capability.Ref, *Promise) {
	ref := o.newRef(b.session.saved.Ref, b.session.id)
	err := o.check()
	p := b.Do(session.MethodShare, Arg{"ref", ref.ID}, Arg{"hash", ref.Secret.HashText()}, Arg{"rights", o.Rights})
	if o.Children != 0 {
		p.Arg("children", o.Children)
	}
	if o.Methods != nil {
		p.Arg("methods", o.Methods)
	}
	if !o.Expires.IsZero() {
		p.Arg("expires_at", o.Expires.UnixMilli())
	}
	if o.Lifetime > 0 {
		p.Arg("expires_at", expiryOf(o.Lifetime)).Arg(ledger.HintLifetime, o.Lifetime.Milliseconds())
	}
	if o.From != 0 {
		p.Arg("from", o.From)
	}
	if o.Message != "" {
		p.Arg("message", o.Message)
	}
	if o.ReadKeys != nil {
		p.Arg("read_keys", o.ReadKeys)
	}
	if o.WriteKeys != nil {
		p.Arg("write_keys", o.WriteKeys)
	}
	if o.AskKinds != nil {
		p.Arg("ask", o.AskKinds)
	}
	if o.AnswerKinds != nil {
		p.Arg("answer", o.AnswerKinds)
	}
	if o.Redemptions != 0 {
		p.Arg("redemptions", o.Redemptions)
	}
	if o.Label != "" {
		p.Arg("label", o.Label)
	}
	if o.Actor != "" {
		p.Arg("actor", o.Actor)
	}
	if o.Public {
		p.Arg("public", true)
	}
	if len(o.Seal) > 0 {
		p.Arg("seal", capability.SealKeyText(o.Seal))
	}
	if err != nil {
		p.batch.fail(p.index, err)
	}
	return ref, p
}

// Revoke revokes a ref and all refs minted from it; its result has the "cut". refID is a text or
// a reference to a share's "ref".
func (b *Batch) Revoke(refID any) *Promise {
	return b.Do(session.MethodRevoke, Arg{"ref", refID})
}

// BumpEpoch revokes every share of the session; owners' refs stay.
func (b *Batch) BumpEpoch() *Promise { return b.Do(session.MethodBumpEpoch) }

// Purge erases every payload of a key (a leaked secret, for instance) from the log and the state;
// the log's rows and their hashes stay. It takes an owner's ref. Its result has "events", the
// number of events that held the key.
func (b *Batch) Purge(key string) *Promise {
	return b.add(session.MethodPurge, 1).textArg("key", key)
}

// Revert hides a message or part, with key to (message/ID or part/MESSAGE/ID), and all messages after it in the
// session's order, with their parts and turns: for everybody, until Unrevert. Open turns among them end as
// aborted. The next new message or begun turn settles it: then what is hidden leaves the state. It takes the
// right revert, and a ref that shows all of the session. Its result has "to".
func (b *Batch) Revert(to string) *Promise { return b.add(session.MethodRevert, 1).textArg("to", to) }

// RevertAfter is Revert to the first message that was put after a cursor. It is rejected in a session that is
// ordered by time.
func (b *Batch) RevertAfter(cursor uint64) *Promise {
	return b.add(session.MethodRevert, 1).Arg("cursor", cursor)
}

// Unrevert shows again what Revert has hidden. It is rejected (fault.NotReverted) if nothing is hidden, or
// something new was said since.
func (b *Batch) Unrevert() *Promise { return b.Do(session.MethodUnrevert) }

// Compact says that a message (message/ID) is the summary of another and all messages before it in the session's order:
// the compacted view (SnapshotOptions.Compacted) has it in their place. Everyone else is shown everything. The summary is
// upto or a later message, and its turn has ended. Another Compact moves the mark, and removing the summary ends it. It takes
// the right compact, and a ref that shows all of the session.
func (b *Batch) Compact(upto, summary string) *Promise {
	return b.add(session.MethodCompact, 2).textArg("upto", upto).textArg("summary", summary)
}

// Delete deletes the session and all refs to it; it takes an owner's ref.
func (b *Batch) Delete() *Promise { return b.Do(session.MethodDelete) }

// Commit makes the batch durable, with or without a server, and returns its ticket. Ops that
// could never apply are refused: BadArgument, BadKey, BadPayload, UnknownMethod, TooLarge,
// BadReference, Usage; UnknownRef if the secret saved for the session's ref is another than the
// one the session was got with. OutboxFull and DiskFull are the outbox's, Unavailable its
// database's: the error then says whether the batch may have been stored all the same. Committing
// the same batch again changes nothing and returns the same ticket; the batch is frozen by the
// first Commit that reaches the outbox.
func (b *Batch) Commit(ctx context.Context) (Ticket, error) {
	if err := b.prepare(ctx); err != nil {
		return Ticket{}, err
	}
	t, err := b.session.client.box.Commit(ctx, b.batch)
	if err != nil {
		return Ticket{}, err // names the outbox
	}
	return Ticket{client: b.session.client, Session: b.session.id, Batch: t.Batch, Ops: t.Ops}, nil
}

// CommitWait is Commit followed by Ticket.Wait. The error may also be the first refusal of an op;
// the results are then returned with it.
func (b *Batch) CommitWait(ctx context.Context) (Results, error) {
	ticket, err := b.Commit(ctx)
	if err != nil {
		return nil, err
	}
	results, err := ticket.Wait(ctx)
	if err == nil {
		err = results.Err()
	}
	return results, err
}

// CommitTx is Commit inside the caller's transaction, on the Postgres database that holds the
// outbox: the batch is sent if, and as soon as, tx commits.
func (b *Batch) CommitTx(ctx context.Context, tx outbox.Tx) (Ticket, error) {
	if tx == nil {
		return Ticket{}, fault.Usage.With("commit: there is no transaction")
	}
	if err := b.prepare(ctx); err != nil {
		return Ticket{}, err
	}
	t, err := b.session.client.box.CommitTx(ctx, tx, b.batch)
	if err != nil {
		return Ticket{}, err // names the outbox
	}
	return Ticket{client: b.session.client, Session: b.session.id, Batch: t.Batch, Ops: t.Ops}, nil
}

// intentPool holds the scratch slices of prepare.
var intentPool = sync.Pool{New: func() any { return new([]ledger.Intent) }}

// prepare checks every op, and chooses the ref whose rights they need if there is a choice.
func (b *Batch) prepare(ctx context.Context) error {
	switch {
	case b.session == nil:
		return fault.Usage.With("the batch is for no session: begin it with Session.Batch, Space.Create or Space.Fork")
	case b.err != nil:
		return b.err
	case len(b.batch.Ops) == 0:
		return fault.Usage.With("the batch has no ops")
	}
	lim := b.session.client.limitsFor(b.session.saved.Ref)
	room := intentPool.Get().(*[]ledger.Intent)
	intents := slices.Grow((*room)[:0], len(b.batch.Ops))[:len(b.batch.Ops)]
	defer func() {
		clear(intents)
		*room = intents
		intentPool.Put(room)
	}()
	b.batch.JSONChecked = true // by CheckOps, unless an argument is void
	for i := range b.batch.Ops {
		op := &b.batch.Ops[i]
		intents[i] = ledger.Intent{Method: op.Method, Args: op.Args}
		b.batch.JSONChecked = b.batch.JSONChecked && op.Method != ledger.MethodVoid
	}
	if at, f := opargs.CheckOps(intents, lim); f != nil {
		return f.Code.With("op %d (%s): %s", at+1, intents[at].Method, f.Message).Pos(f.At)
	}
	if f := ledger.CheckSize(intents, lim.Limits); f != nil {
		return f
	}
	if b.session.byID && !b.frozen {
		// No ref fits better than that of the session's owner.
		if want := b.rightsNeeded(); want != capability.Append && b.session.saved.Role != outbox.SessionOwner {
			saved := b.session.refFor(ctx, want)
			b.batch.Via, b.batch.ViaSecret = saved.ID, saved.Secret
		}
	}
	if !b.frozen {
		b.frozen = true
	}
	return nil
}

// rightsNeeded returns the rights that the ops need.
func (b *Batch) rightsNeeded() (want capability.Rights) {
	for i := range b.batch.Ops {
		want |= oprights.Of(b.batch.Ops[i].Method, b.batch.Ops[i].Args)
	}
	return want
}

func (b *Batch) fail(index int, err error) {
	if b.err == nil {
		b.err = fault.CodeOf(err).Because(err, "op %d (%s): %s", index+1, b.batch.Ops[index].Method, messageOf(err))
	}
}

// messageOf returns an error's message without its code.
func messageOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Message != "" {
		return f.Message
	}
	return err.Error()
}
