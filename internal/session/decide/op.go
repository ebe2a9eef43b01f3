package decide

// The methods: their arguments, how these are decoded, and the rights needed. The server decodes an
// op when its references are values; a client may decode it earlier (CheckOps), with references
// still in place of values.

import (
	"bytes"
	"math"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// op is a decoded op: its method's typed arguments, and their effect.
type op interface {
	// apply decides and changes the view. If it fails it has changed nothing.
	apply(a *applier) (result, *fault.Error)
}

// method is a row of the table of methods.
type method struct {
	need   capability.Rights // right on the session; create and fork: on the space
	owner  bool              // for owner refs only
	decode func(r *argReader) op
}

var methods = map[string]method{
	session.MethodCreate:     {need: capability.Create, decode: decodeCreate},
	session.MethodFork:       {need: capability.Create, decode: decodeFork},
	session.MethodPut:        {need: capability.Append, decode: decodePut},
	session.MethodRemove:     {need: capability.Append, decode: decodeRemove},
	session.MethodPatch:      {need: capability.Append, decode: decodePatch},
	session.MethodAdd:        {need: capability.Append, decode: decodeAdd},
	session.MethodClaim:      {need: capability.Append, decode: decodeClaim},
	session.MethodRelease:    {need: capability.Append, decode: decodeRelease},
	session.MethodAsk:        {need: capability.Ask, decode: decodeAsk},
	session.MethodAnswer:     {need: capability.Answer, decode: decodeAnswer},
	session.MethodWithdraw:   {need: capability.Ask, decode: decodeWithdraw},
	session.MethodBegin:      {need: capability.Append, decode: decodeBegin},
	session.MethodAppendText: {need: capability.Append, decode: decodeAppendText},
	session.MethodFinalize:   {need: capability.Append, decode: decodeFinalize},
	session.MethodShare:      {need: capability.Share, decode: decodeShare},
	session.MethodRevoke:     {need: capability.Revoke, decode: decodeRevoke},
	session.MethodBumpEpoch:  {need: capability.Revoke, decode: decodeBumpEpoch},
	session.MethodRevert:     {need: capability.Revert, decode: decodeRevert},
	session.MethodUnrevert:   {need: capability.Revert, decode: decodeUnrevert},
	session.MethodCompact:    {need: capability.Compact, decode: decodeCompact},
	session.MethodPurge:      {owner: true, decode: decodePurge},
	session.MethodDelete:     {owner: true, decode: decodeDelete},
}

// Methods returns the names of all methods of ops, without void, sorted.
func Methods() []string {
	names := make([]string, 0, len(methods))
	for n := range methods {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// decodeOp decodes an op's arguments; errors are UnknownMethod, BadArgument, BadKey, BadPayload or
// TooLarge. The bytes of payloads are shared with in. The op belongs to r and is valid until the
// next call.
func (r *argReader) decodeOp(in *ledger.Intent, lim session.Limits) (op, *fault.Error) {
	m, ok := methods[in.Method]
	if !ok {
		return nil, fault.UnknownMethod.With("there is no method %q: use one of %s", fault.Clip(in.Method), strings.Join(Methods(), ", "))
	}
	r.read(in, lim)
	o := m.decode(r)
	if err := r.finish(); err != nil {
		return nil, err
	}
	return o, nil
}

// CheckOps checks whether ops could ever apply, as far as their methods and resolved arguments
// show: a client refuses other ops in Commit. at is the index of the first invalid one. It checks
// that every argument is JSON text in UTF-8, except a void's, which can always apply.
// ledger.CheckIntent checks whether an op can be sent.
func CheckOps(ops []ledger.Intent, lim session.Limits) (at int, err *fault.Error) {
	r := new(argReader)
	for i := range ops {
		if ops[i].Method == ledger.MethodVoid {
			continue
		}
		if _, err := r.decodeOp(&ops[i], lim); err != nil {
			return i, err
		}
	}
	return 0, nil
}

type opCreate struct {
	external     string
	shared       bool // other sessions that were made under the ref may have the external id
	ref          string
	hash         session.Hash
	label, actor string
	order        session.Order
	parent, via  string         // the parent, and the ref that it is held under; "" for none
	part         string         // key of the parent's message or part that starts the child; "" for none
	origin       session.Origin // what an imported session was forked from: a record, which proves nothing
}

func decodeCreate(r *argReader) op {
	o := decodeCreation(r)
	o.parent, o.part = r.text("parent", r.has("parent")), r.messageKey("part")
	if r.has("parent") {
		o.via = r.refID("via")
	} else if r.known = append(r.known, "via"); r.has("via") || r.has("part") {
		r.needs("parent, to which via and part belong")
	}
	if r.err == nil && !r.unresolved("parent") && o.parent != "" && !capability.IsSession(o.parent) {
		r.fail(fault.BadArgument.With("parent is not a session id"))
	}
	o.origin, o.shared = decodeOrigin(r), r.set("shared_external")
	switch order := r.text("order", optional); order {
	case "", session.ByTime.String():
		o.order = session.ParseOrder(order)
	default:
		r.fail(fault.BadArgument.With("order is %q for a session in the order of its messages' times, or nothing for that of its log", session.ByTime))
	}
	return o
}

// decodeOrigin decodes create's arguments of what the session was forked from where it was exported.
func decodeOrigin(r *argReader) (o session.Origin) {
	o.Session = r.text(ledger.HintOrigin, r.has(ledger.HintOrigin))
	o.Cursor, _ = r.number(ledger.HintOriginAt, r.has(ledger.HintOrigin))
	o.Message = r.id(ledger.HintOriginID, optional)
	if (r.has(ledger.HintOriginAt) || r.has(ledger.HintOriginID)) && !r.has(ledger.HintOrigin) {
		r.needs("origin, to which origin_at and origin_message belong")
	}
	if r.err == nil && !r.unresolved(ledger.HintOrigin) && o.Session != "" && !capability.IsSession(o.Session) {
		r.fail(fault.BadArgument.With("origin is not a session id"))
	}
	return o
}

// decodeCreation decodes the common arguments of create and fork.
func decodeCreation(r *argReader) *opCreate {
	return &opCreate{
		external: r.text("external", optional),
		ref:      r.newRef("ref"),
		hash:     r.hash("hash"),
		label:    r.text("label", optional),
		actor:    r.text("actor", optional),
	}
}

type opFork struct {
	opCreate
	source, via string
	at          uint64
	atSet       bool
	atHash      []byte // of the event at cursor at; nil: not compared
	message     string // id of the last message, in the session's order, that is copied; "" for all
}

func decodeFork(r *argReader) op {
	o := &opFork{opCreate: *decodeCreation(r)}
	o.source = r.text("source", required)
	o.via = r.refID("via")
	o.at, o.atSet = r.number("at", optional)
	o.atHash = r.eventHash(ledger.HintAtHash)
	o.message = r.id("message", optional)
	if r.err == nil && !r.unresolved("source") && !capability.IsSession(o.source) {
		r.fail(fault.BadArgument.With("source is not a session id"))
	}
	return o
}

type opPut struct {
	key     session.Key
	keyText string // text of key
	payload []byte
	schema  uint32
	guard   guard
	sync    bool // it is of a sync of opencode's: syncrevert.go
}

func decodePut(r *argReader) op {
	o := &r.put
	o.key, o.keyText = r.writtenKey("key")
	switch o.key.Kind {
	case session.KeyOwn:
		o.payload = r.value("payload")
	case session.KeySchema:
		o.payload = r.valueSchema("payload")
	default:
		o.payload = r.object("payload", required)
	}
	o.schema, o.guard, o.sync = r.schema("schema_version"), r.guard(), r.set("sync")
	return o
}

type opRemove struct {
	key   session.Key
	guard guard
	sync  bool // as of opPut
}

func decodeRemove(r *argReader) op {
	key, _ := r.writtenKey("key")
	return &opRemove{key: key, guard: r.guard(), sync: r.set("sync")}
}

// opPatch changes members of a value, by RFC 7396.
type opPatch struct {
	key    string
	patch  []byte
	schema uint32 // 0: the value's stays
	guard  guard
}

func decodePatch(r *argReader) op {
	o := &opPatch{}
	_, o.key = r.ownKey("key")
	o.patch, o.schema, o.guard = r.value("patch"), r.schemaOr("schema_version", 0), r.guard()
	return o
}

// opAdd adds to a number in a value.
type opAdd struct {
	key    string
	member string
	by     int64
	guard  guard
}

func decodeAdd(r *argReader) op {
	o := &opAdd{}
	_, o.key = r.ownKey("key")
	o.member, o.by, o.guard = r.member("member"), r.integer("by"), r.guard()
	return o
}

// opClaim claims a key, or the first free one below a prefix, or a request.
type opClaim struct {
	key, prefix, request string // one of them
	lease                int64  // milliseconds
	worker               string
}

func decodeClaim(r *argReader) op {
	o := &opClaim{}
	_, o.key = r.ownKeyIf("key", optional)
	o.prefix, o.request = r.ownPrefix("prefix"), r.id("request", r.has("request"))
	lease, _ := r.number("lease", required)
	o.lease, o.worker = int64(lease), r.text("worker", optional)
	switch {
	case r.err != nil:
	case !r.has("key") && !r.has("prefix") && !r.has("request"):
		r.needs("key or prefix or request")
	case !r.oneOf("key", "prefix", "request"):
		r.fail(fault.BadArgument.With("claim takes a key, a prefix for the first free key below it, or a request, and one of them alone"))
	case !r.unresolved("lease") && (o.lease < MinLease || o.lease > MaxLease):
		r.fail(fault.BadArgument.With("lease is from %d to %d milliseconds", MinLease, MaxLease))
	case len(o.worker) > maxWorkerBytes:
		r.fail(fault.TooLarge.With("worker has %d bytes, the limit is %d", len(o.worker), maxWorkerBytes))
	}
	return o
}

// opRelease ends a claim of a key or a request: its owner's own, or, with the right break, another's.
type opRelease struct {
	key, request string // one of them
	claim        condition
}

func decodeRelease(r *argReader) op {
	o := &opRelease{request: r.id("request", r.has("request"))}
	_, o.key = r.ownKeyIf("key", !r.has("request"))
	if r.has("key") && r.has("request") {
		r.fail(fault.BadArgument.With("release takes a key or a request, and not both"))
	}
	o.claim.cursor, o.claim.set = r.number("claim", required)
	return o
}

// opAsk makes a request.
type opAsk struct {
	id, kind, message string
	payload           []byte
	choices           []byte   // JSON, nil for none
	choiceIDs         []string // of choices
	expiresIn         int64    // milliseconds; 0 never
}

func decodeAsk(r *argReader) op {
	o := &opAsk{id: r.id("request", required), kind: r.text("kind", required), message: r.id("message", optional)}
	if o.payload = bytes.TrimSpace(r.raw("payload", optional)); o.payload == nil {
		o.payload = []byte("{}")
	}
	o.choices, o.choiceIDs = r.choices("choices")
	expires, set := r.number("expires_in", optional)
	o.expiresIn = int64(expires)
	switch {
	case r.err != nil:
	case !r.unresolved("kind") && !capability.IsKind(o.kind):
		r.fail(fault.BadArgument.With("kind is %q: use prompt, stop, permission, question or one of your own, of a to z, digits, _ and - (the first a letter)", fault.Clip(o.kind)))
	case o.kind == session.KindStop && !r.has("message"):
		r.fail(fault.BadArgument.With("a stop names the turn that it stops: message is the id of its message"))
	case set && (o.expiresIn < minExpiry || o.expiresIn > maxExpiry):
		r.fail(fault.BadArgument.With("expires_in is from %d to %d milliseconds", minExpiry, int64(maxExpiry)))
	}
	return o
}

// opAnswer ends a request by an answer, or as unknown.
type opAnswer struct {
	request, choice, shown, reason string
	payload                        []byte // nil for none
	claim                          condition
	unknown                        bool
}

func decodeAnswer(r *argReader) op {
	o := &opAnswer{request: r.id("request", required), choice: r.text("choice", optional), shown: r.text("shown", optional), reason: r.text("reason", optional), payload: r.raw("payload", optional)}
	o.claim.cursor, o.claim.set = r.number("claim", optional)
	switch state := session.RequestState(r.text("state", optional)); state {
	case "", session.RequestAnswered:
		if r.has("reason") {
			r.fail(fault.BadArgument.With("reason says why a request ends as unknown: an answer's own words are its payload"))
		}
	case session.RequestUnknown:
		if o.unknown = true; r.has("choice") || r.has("payload") || r.has("shown") {
			r.fail(fault.BadArgument.With("what ends as unknown has no answer: leave choice, payload and shown out"))
		}
	default:
		r.fail(fault.BadArgument.With("state is %q: leave it out, or say unknown for what was handed over and may have been done", fault.Clip(string(state))))
	}
	return o
}

// opWithdraw ends a request that nobody has answered.
type opWithdraw struct{ request, reason string }

func decodeWithdraw(r *argReader) op {
	return &opWithdraw{request: r.id("request", required), reason: r.text("reason", optional)}
}

type opBegin struct {
	message string
	payload []byte
	schema  uint32
}

func decodeBegin(r *argReader) op {
	return &opBegin{message: r.id("message", required), payload: r.object("payload", required), schema: r.schema("schema_version")}
}

type opAppendText struct {
	key    session.Key
	offset uint64
	text   string
}

func decodeAppendText(r *argReader) op {
	o := &opAppendText{key: r.key("key"), text: r.textChunk("text")}
	o.offset, _ = r.number("offset", required)
	if r.err == nil && !r.unresolved("key") && o.key.Kind != session.KeyPart {
		r.fail(fault.BadKey.With("text can be appended to a part only: part/MESSAGE/ID"))
	}
	return o
}

// terminalPart is one of finalize's parts.
type terminalPart struct {
	id      string
	payload []byte
	schema  uint32
}

type opFinalize struct {
	message   string
	step      session.TurnStep
	status    string
	payload   []byte // nil: the message's payload stays, except for the fields below
	schema    uint32
	parts     []terminalPart
	usage     []byte
	failure   []byte
	completed uint64       // 0: now
	digest    session.Hash // over the arguments, to recognize an equal second call
}

func decodeFinalize(r *argReader) op {
	o := &opFinalize{
		message: r.id("message", required),
		status:  r.text("status", required),
		payload: r.object("payload", optional),
		schema:  r.schema("schema_version"),
		parts:   r.parts("parts"),
		usage:   r.object("usage", optional),
		failure: r.object("error", optional),
	}
	o.completed, _ = r.number("completed", optional)
	if r.err == nil && !r.unresolved("status") {
		var ok bool
		if o.step, ok = session.EndStep(o.status); !ok {
			r.fail(fault.BadArgument.With("status is %q: use completed, failed or aborted", fault.Clip(o.status)))
		}
	}
	o.digest = r.digest()
	return o
}

type opShare struct {
	mint       capability.MintRequest
	idempotent bool // a repetition changes nothing: no ledger recognizes it
	public     bool // who knows its public id acts under the ref, without its secret
}

func decodeShare(r *argReader) op {
	o := &opShare{mint: capability.MintRequest{
		ID:          r.newRef("ref"),
		Hash:        r.hash("hash"),
		Methods:     r.names("methods", optional),
		Message:     r.text("message", optional),
		ReadKeys:    r.names("read_keys", optional),
		WriteKeys:   r.names("write_keys", optional),
		AskKinds:    r.names("ask", optional),
		AnswerKinds: r.names("answer", optional),
		Label:       r.text("label", optional),
		Actor:       r.text("actor", optional),
	}}
	o.public = r.set("public")
	names, children := r.names("rights", required), r.names("children", optional)
	o.mint.Seal = r.sealKey("seal")
	expires, _ := r.number("expires_at", optional)
	o.mint.Lifetime, _ = r.number(ledger.HintLifetime, optional)
	redemptions, _ := r.number("redemptions", optional)
	o.mint.VisibleFrom, _ = r.number("from", optional)
	o.mint.Expires, o.mint.MaxRedemptions = int64(expires), uint32(min(redemptions, math.MaxUint32))
	if r.err != nil || r.unresolved("rights") {
		return o
	}
	rights, err := capability.RightsNamed(names)
	o.mint.Rights = rights
	if err != nil {
		r.fail(fault.BadArgument.With("rights: name some of %s", strings.Join(capability.OwnerRights.Names(), ", ")))
		return o
	}
	if r.has("children") && !r.unresolved("children") {
		if o.mint.Children, err = capability.RightsNamed(children); err != nil || !capability.ChildRights.Has(o.mint.Children) {
			r.fail(fault.BadArgument.With("children: name some of %s", strings.Join(capability.ChildRights.Names(), ", ")))
			return o
		}
	}
	if err := checkShare(&o.mint); err != nil {
		r.fail(err)
	}
	if o.public && (o.mint.Rights != capability.Read || o.mint.Seal != nil || o.mint.MaxRedemptions != 0) {
		r.fail(fault.BadArgument.With("a public ref carries read and nothing else, is sealed to no key and has no limit of redemptions: a reader does not redeem it"))
	}
	return o
}

// checkShare checks a ref to be minted, as far as possible without its parent.
func checkShare(m *capability.MintRequest) *fault.Error {
	switch {
	case m.MaxRedemptions > 1<<31:
		return fault.BadArgument.With("redemptions is at most %d", uint64(1<<31))
	case m.Message != "" && !session.ValidID(m.Message, false):
		return fault.BadArgument.With("message: %q is not a message's id", fault.Clip(m.Message))
	case m.Methods != nil && !knownMethods(m.Methods):
		return fault.BadArgument.With("methods: name some of those that append needs: %s", strings.Join(appendMethods, ", "))
	}
	if err := m.CheckChildren(); err != nil {
		return err
	}
	if err := m.CheckRequestKinds(); err != nil {
		return err
	}
	return m.CheckKeyLimits()
}

// appendMethods are the methods of the append right, which a ref may be limited to.
var appendMethods = []string{session.MethodAdd, session.MethodAppendText, session.MethodBegin, session.MethodClaim, session.MethodFinalize, session.MethodPatch, session.MethodPut, session.MethodRelease, session.MethodRemove}

func knownMethods(names []string) bool {
	if len(names) == 0 {
		return false
	}
	for _, n := range names {
		if !slices.Contains(appendMethods, n) {
			return false
		}
	}
	return true
}

type opRevoke struct {
	ref      string
	takeOver bool // under the right manage, also the session's owner's; of a direct call alone
}

func decodeRevoke(r *argReader) op { return &opRevoke{ref: r.refID("ref")} }

type opBumpEpoch struct{}

func decodeBumpEpoch(*argReader) op { return &opBumpEpoch{} }

// opRevert hides a message or part, and what comes after it.
type opRevert struct {
	to       session.Key
	cursor   uint64 // in place of to: the first message that was put after it
	byCursor bool   // cursor is set
}

func decodeRevert(r *argReader) op {
	o := &opRevert{}
	o.cursor, o.byCursor = r.number("cursor", optional)
	if !r.has("to") {
		r.known = append(r.known, "to")
	}
	switch {
	case r.has("to") && r.has("cursor"):
		r.fail(fault.BadArgument.With("revert takes the message or part to revert to, or a cursor, and not both"))
	case r.has("to"):
		o.to = r.key("to")
		if r.err == nil && !r.unresolved("to") && o.to.Kind != session.KeyMessage && o.to.Kind != session.KeyPart {
			r.fail(fault.BadKey.With("a session is reverted to a message or a part: message/ID or part/MESSAGE/ID"))
		}
	case !r.has("cursor") && r.err == nil:
		r.needs("to or cursor")
	}
	return o
}

type opUnrevert struct{}

func decodeUnrevert(*argReader) op { return &opUnrevert{} }

// opCompact marks a message up to which, and with it, a summary stands for what was said.
type opCompact struct{ upto, summary session.Key }

func decodeCompact(r *argReader) op {
	o := &opCompact{upto: r.key("upto"), summary: r.key("summary")}
	if r.err == nil && (!r.unresolved("upto") && o.upto.Kind != session.KeyMessage || !r.unresolved("summary") && o.summary.Kind != session.KeyMessage) {
		r.fail(fault.BadKey.With("a session is compacted up to a message, with a message as the summary: message/ID"))
	}
	return o
}

type opPurge struct{ key session.Key }

func decodePurge(r *argReader) op { return &opPurge{key: r.key("key")} }

type opDelete struct{}

func decodeDelete(*argReader) op { return &opDelete{} }
