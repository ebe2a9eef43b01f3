// A batch: the ops that become durable together. Every verb gives a promise of
// its op's result, which later ops of this batch or of any other may refer to in
// place of a value; the server puts the value in.

package client

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/session"
)

// Batch gathers ops for one session. It belongs to one goroutine, and is frozen by
// Commit. Commit also tells what is wrong with an op, and which op it is.
//
// Wherever an argument is of type any it may be a value that encoding/json
// marshals, JSON text (json.RawMessage or []byte, kept byte for byte), a
// reference (Promise.Field), or a *Promise, which stands for its whole result. A
// reference inside such a value is refused with bad_reference, by Commit.
type Batch struct {
	session *Session
	batch   outbox.Batch
	err     error // the first one wrong
	frozen  bool  // it is the outbox's, and must not change any more

	// Made for many ops at once, and not in use yet.
	ids      []string
	promises []Promise
	args     []ledger.Arg
	valueBuf []byte // for the arguments' values
}

// Arg is a named argument for Do.
type Arg struct {
	Name  string
	Value any
}

// Promise is the result of an op that has not happened yet.
type Promise struct {
	batch  *Batch
	index  int
	idUsed bool // its id was given out
}

// OpID is the op's id, known before the op is durable. A reference to it can be
// made in any later process: ledger.Ref{Op: id, Path: "cursor"}.
func (p *Promise) OpID() string {
	if !p.batch.frozen { // else there may be others who ask
		p.idUsed = true
	}
	return p.batch.batch.Ops[p.index].ID
}

// Field refers to a field of the result by a dot-separated path: "cursor" (which
// every result has), "length", "ref", "session", "epoch", "cut". "" is the whole result.
func (p *Promise) Field(path string) ledger.Ref { return ledger.Ref{Op: p.OpID(), Path: path} }

// MarshalJSON fails with [ledger.ErrRefInValue], as a reference does: a promise
// has no value yet.
func (p Promise) MarshalJSON() ([]byte, error) { return nil, ledger.ErrRefInValue }

// Arg sets an argument of the op, in place of the one the verb set if there is one.
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

// DependsOn makes the op skipped if one of these did not apply.
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

// Expect makes the op a conflict unless the session is at this cursor: a number
// or a reference. It is compared once, before the batch's first op.
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
	var at *uint64 // null is none
	if err := json.Unmarshal(arg.JSON, &at); err != nil || at == nil {
		p.batch.fail(p.index, fault.BadArgument.With("the expected cursor is not a whole number"))
		return p
	}
	op.Expected.Cursor = *at
	return p
}

// SetID gives the op an id of the caller's, a ULID, instead of its batch's: before
// anything refers to it.
func (p *Promise) SetID(opID string) *Promise {
	if p.batch.isFrozen() {
		return p
	}
	if p.idUsed {
		p.batch.fail(p.index, fault.Usage.With("something refers to the op by the id it had: name it first"))
	}
	if _, err := ulid.ParseStrict(opID); err != nil {
		p.batch.fail(p.index, fault.BadArgument.With("the op id is not a ULID"))
	}
	p.batch.batch.Ops[p.index].ID = opID
	return p
}

// ID is the batch's id, which names its ticket.
func (b *Batch) ID() string { return b.batch.ID }

// SetID gives the batch an id of the caller's (outbox.NewBatchID), before its
// first op. Committing an equal batch under one id again changes nothing, so who
// keeps the id may repeat the Commit after a crash.
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

// Atomic makes the ops apply all or not at all.
func (b *Batch) Atomic() *Batch {
	if !b.isFrozen() {
		b.batch.Atomic = true
	}
	return b
}

// Len is the number of ops so far.
func (b *Batch) Len() int { return len(b.batch.Ops) }

// Do adds an op of any method with these arguments.
func (b *Batch) Do(method string, args ...Arg) *Promise {
	p := b.add(method, len(args))
	for _, a := range args {
		p.Arg(a.Name, a.Value)
	}
	return p
}

// isFrozen says that the batch was committed, and that nothing in it can be changed any
// more. If a verb is called all the same, the next Commit says so.
func (b *Batch) isFrozen() bool {
	if b.frozen && b.err == nil {
		b.err = fault.Usage.With("the batch was committed and is what it was: begin another one for more")
	}
	return b.frozen
}

// add adds an op that is about to get so many arguments.
func (b *Batch) add(method string, args int) *Promise {
	n := len(b.batch.Ops)
	if b.isFrozen() { // it is nowhere
		return &Promise{batch: &Batch{session: b.session, err: b.err, batch: outbox.Batch{Ops: make([]outbox.Op, 1)}}}
	}
	if len(b.promises) == 0 {
		more := 1 // most batches have one op
		if n > 0 {
			more = max(min(3*n, 24), 7, n)
		}
		b.batch.Ops = slices.Grow(b.batch.Ops, more)
		b.ids, b.promises = outbox.OpIDs(b.batch.ID, n, more), make([]Promise, more)
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

// alloc gives memory for n bytes, of what is made for several values at once if they are short.
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

// maxValueBuf is how much memory for values is made at once, at the most.
const maxValueBuf = 4096

// Put sets a key (session, message/ID, part/MESSAGE/ID, session_diff, model/ID)
// to a payload, a JSON object. A put equal to the present value changes nothing.
// Its schema_version is 1 unless Arg says otherwise.
func (b *Batch) Put(key string, payload any) *Promise {
	return b.add(session.MethodPut, 2).textArg("key", key).Arg("payload", payload)
}

// Remove takes a key away; one that is not there changes nothing.
func (b *Batch) Remove(key string) *Promise {
	return b.add(session.MethodRemove, 1).textArg("key", key)
}

// Begin puts a message and opens its turn: until Finalize its parts can grow.
func (b *Batch) Begin(message string, payload any) *Promise {
	return b.add(session.MethodBegin, 2).textArg("message", message).Arg("payload", payload)
}

// AppendText adds text to a part's payload.text while its message's turn is
// open. offset is the text's length in bytes so far: a number, or the "length"
// of the promise of the AppendText before.
func (b *Batch) AppendText(key string, offset any, text string) *Promise {
	return b.add(session.MethodAppendText, 3).textArg("key", key).Arg("offset", offset).textArg("text", text)
}

// How a turn ends: the status of Finalize.
const (
	Completed = "completed"
	Failed    = "failed"
	Aborted   = "aborted"
)

// Finalize ends a message's turn as Completed, Failed or Aborted. More can be
// set with Arg: payload, parts, usage, error, completed.
func (b *Batch) Finalize(message, status string) *Promise {
	return b.add(session.MethodFinalize, 2).textArg("message", message).textArg("status", status)
}

// ShareOptions say what a new ref allows: at most what the ref it is made from does.
type ShareOptions struct {
	Rights      capability.Rights // at least one
	Methods     []string          // append only these; nil all, and an empty list is refused
	Lifetime    time.Duration     // how long it lasts, from when the op applies, by the server's clock; 0 for ever
	Expires     time.Time         // in place of Lifetime: when it ends, by the server's clock, which must not be past it
	From        uint64            // first visible cursor; 0 all
	Message     string            // one message alone, with its parts and turn; "" all
	Redemptions uint32            // how often it may be redeemed; 0 any number
	Label       string
	Actor       string // a path under that of the ref it is made from
	// Seal binds the ref to a key: redeeming it takes the private one too, and one
	// round trip more, so its text alone is worth nothing. nil binds it to none; any
	// other value that is no key is refused.
	Seal ed25519.PublicKey
}

// check refuses options that would be taken for the widest there are, and texts that
// would be altered on their way.
func (o *ShareOptions) check() error {
	if o.Seal != nil && len(o.Seal) != ed25519.PublicKeySize {
		return fault.BadArgument.With("the seal is no Ed25519 public key, which has %d bytes: leave it nil for a ref that is not sealed", ed25519.PublicKeySize)
	}
	if err := checkLifetime(o.Lifetime, o.Expires); err != nil {
		return err
	}
	return checkLimits(o.Methods, o.Message, o.Label, o.Actor)
}

func checkLifetime(lifetime time.Duration, expires time.Time) error {
	switch {
	case lifetime != 0 && !expires.IsZero():
		return fault.BadArgument.With("a ref lasts for a lifetime or until a time, and not both")
	case lifetime < 0 || lifetime > 0 && lifetime < time.Millisecond:
		return fault.BadArgument.With("a lifetime is at least a millisecond")
	}
	return nil
}

// expiryOf is when a lifetime from now ends by this machine's clock: what a server of before
// goes by, which does not know lifetimes.
func expiryOf(lifetime time.Duration) int64 { return time.Now().Add(lifetime).UnixMilli() }

func checkLimits(methods []string, message, label, actor string) error {
	if methods != nil && len(methods) == 0 {
		return fault.BadArgument.With("the list of methods is empty: leave it nil for all, or leave the right to append away for none")
	}
	for _, t := range append([]string{message, label, actor}, methods...) {
		if err := checkText("a text", t); err != nil {
			return err
		}
	}
	return nil
}

// newRef makes a ref for target at an address, sealed if it is to be.
func (o *ShareOptions) newRef(at capability.Ref, target string) capability.Ref {
	if len(o.Seal) > 0 {
		return at.NewSealed(target)
	}
	return at.New(target)
}

// Share makes a new ref, here and offline: it can be handed on at once and works
// as soon as the op has arrived.
func (b *Batch) Share(o ShareOptions) (capability.Ref, *Promise) {
	ref := o.newRef(b.session.saved.Ref, b.session.id)
	err := o.check()
	p := b.Do(session.MethodShare, Arg{"ref", ref.ID}, Arg{"hash", ref.Secret.HashText()}, Arg{"rights", o.Rights})
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
	if o.Redemptions != 0 {
		p.Arg("redemptions", o.Redemptions)
	}
	if o.Label != "" {
		p.Arg("label", o.Label)
	}
	if o.Actor != "" {
		p.Arg("actor", o.Actor)
	}
	if len(o.Seal) > 0 {
		p.Arg("seal", capability.SealKeyText(o.Seal))
	}
	if err != nil {
		p.batch.fail(p.index, err)
	}
	return ref, p
}

// Revoke revokes a ref and all refs made from it; its result has the "cut".
// refID is a text or a reference to a share's "ref".
func (b *Batch) Revoke(refID any) *Promise {
	return b.Do(session.MethodRevoke, Arg{"ref", refID})
}

// BumpEpoch revokes every share of the session; owners' refs stay.
func (b *Batch) BumpEpoch() *Promise { return b.Do(session.MethodBumpEpoch) }

// Purge takes every payload of a key (a secret that leaked, say) out of the log
// and the state, for good; the rows of the log and their hashes stay. Only an
// owner's ref may. Its result has "events", the number of those it was in.
func (b *Batch) Purge(key string) *Promise {
	return b.add(session.MethodPurge, 1).textArg("key", key)
}

// Delete ends the session, with all refs to it, for good; only an owner's ref may.
func (b *Batch) Delete() *Promise { return b.Do(session.MethodDelete) }

// Commit makes the batch durable, with or without a server, and names it by a
// ticket. What could never apply is refused here: BadArgument, BadKey,
// BadPayload, UnknownMethod, TooLarge, BadReference, Usage; UnknownRef if another
// secret is kept for the session's ref than the one it was got with. OutboxFull and
// DiskFull are the outbox's, Unavailable its database's: the error then says whether
// the batch may be there all the same. The same batch may be committed again, which
// changes nothing and gives the same ticket; it is frozen from the first Commit that
// gets as far as the outbox.
func (b *Batch) Commit(ctx context.Context) (Ticket, error) {
	if err := b.prepare(ctx); err != nil {
		return Ticket{}, err
	}
	t, err := b.session.client.box.Commit(ctx, b.batch)
	if err != nil {
		return Ticket{}, err // says what it is of
	}
	return Ticket{client: b.session.client, Session: b.session.id, Batch: t.Batch, Ops: t.Ops}, nil
}

// CommitWait is Commit, and Ticket.Wait for the outcomes. The error is also that an op
// was refused: the first refusal, with the results beside it.
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

// CommitTx is Commit inside the caller's transaction, on the Postgres database
// that has the outbox: the batch is sent if, and as soon as, tx commits.
func (b *Batch) CommitTx(ctx context.Context, tx pgx.Tx) (Ticket, error) {
	if tx == nil {
		return Ticket{}, fault.Usage.With("commit: there is no transaction")
	}
	if err := b.prepare(ctx); err != nil {
		return Ticket{}, err
	}
	t, err := b.session.client.box.CommitTx(ctx, tx, b.batch)
	if err != nil {
		return Ticket{}, err // says what it is of
	}
	return Ticket{client: b.session.client, Session: b.session.id, Batch: t.Batch, Ops: t.Ops}, nil
}

// intentPool has room for the intents that prepare makes of ops.
var intentPool = sync.Pool{New: func() any { return new([]ledger.Intent) }}

// prepare checks every op, and takes the ref that they need if there is a choice.
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
	b.batch.JSONChecked = true // by CheckOps, unless there are voids
	for i := range b.batch.Ops {
		op := &b.batch.Ops[i]
		intents[i] = ledger.Intent{Method: op.Method, Args: op.Args}
		b.batch.JSONChecked = b.batch.JSONChecked && op.Method != ledger.MethodVoid
	}
	if at, f := session.CheckOps(intents, lim); f != nil {
		return f.Code.With("op %d (%s): %s", at+1, intents[at].Method, f.Message).Pos(f.At)
	}
	if f := ledger.CheckSize(intents, lim.Limits); f != nil {
		return f
	}
	if b.session.byID && !b.frozen {
		if want := b.rightsNeeded(); want != capability.Append {
			saved := b.session.refFor(ctx, want)
			b.batch.Via, b.batch.ViaSecret = saved.ID, saved.Secret
		}
	}
	if !b.frozen {
		b.frozen = true
	}
	return nil
}

// rightsNeeded are the rights that the ops need.
func (b *Batch) rightsNeeded() (want capability.Rights) {
	for i := range b.batch.Ops {
		switch b.batch.Ops[i].Method {
		case session.MethodShare:
			want |= capability.Share
		case session.MethodRevoke, session.MethodBumpEpoch:
			want |= capability.Revoke
		case session.MethodPurge, session.MethodDelete:
			want |= capability.SessionRights // only an owner's ref may
		default:
			want |= capability.Append
		}
	}
	return want
}

func (b *Batch) fail(index int, err error) {
	if b.err == nil {
		b.err = fault.CodeOf(err).Because(err, "op %d (%s): %s", index+1, b.batch.Ops[index].Method, messageOf(err))
	}
}

// messageOf is what an error says beside its code.
func messageOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) && f.Message != "" {
		return f.Message
	}
	return err.Error()
}
