// Decoding of the answers and callbacks of capnp/mooring.capnp into the domain's types.
// Everything is copied: no decoded value refers to a message. Malformed answers of a server
// return errors, never panic.

package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// faultOf converts the error of a call or a connection into a fault. A server sends a fault as an
// exception whose reason is the fault's Reason.
func faultOf(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fault.Canceled.Because(err, "%v", err)
	}
	var ex *rpc.Exception
	if !errors.As(err, &ex) {
		return err
	}
	if f, ok := fault.ParseReason(ex.Reason); ok {
		return f
	}
	switch ex.Type {
	case rpc.Disconnected:
		return fault.Disconnected.Because(ex, "%s", ex.Reason)
	case rpc.Overloaded:
		return fault.Overloaded.Because(ex, "%s", ex.Reason)
	case rpc.Unimplemented:
		return fault.Incompatible.Because(ex, "the server does not know this call: %s", ex.Reason)
	}
	return fault.Internal.Because(ex, "the server failed: %s", ex.Reason)
}

func refusalOf(r wire.Refusal) (*fault.Error, error) {
	message, err := r.Message_()
	if err != nil {
		return nil, fmt.Errorf("decode refusal: %w", err)
	}
	code := fault.Code(r.Code())
	if code == fault.None {
		return nil, nil
	}
	return code.With("%s", message).Pos(r.At()), nil
}

// reply is a decoded answer to an apply: a refusal of the whole call, or one outcome per op.
type reply struct {
	refusal  *fault.Error
	outcomes []ledger.Outcome
}

// decodeReplyFast is decodeReply without the generated code; ok is false for an uncommon ack,
// which decodeReply decodes.
func decodeReplyFast(m byhand.Message, ops []ledger.Intent) (out *reply, ok bool) {
	from := m.Root().Struct(wirelayout.ResultsReply)
	if from.Uint16(wirelayout.ReplyWhich) != uint16(wire.ApplyReply_Which_ack) {
		return nil, false
	}
	ack := from.Struct(wirelayout.ReplyAck)
	list := ack.List(wirelayout.AckOutcomes)
	if !m.Supported() || list.Len() != len(ops) {
		return nil, false
	}
	out = &reply{outcomes: make([]ledger.Outcome, len(ops))}
	results := make([]byte, 0, 24*len(out.outcomes)) // as in decodeReply
	for i := range out.outcomes {
		w, to := list.At(i), &out.outcomes[i]
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

// decodeReply reads the answer to an apply of ops.
func decodeReply(s capnp.Struct, ops []ledger.Intent) (*reply, error) {
	r, err := wire.Stream_apply_Results(s).Reply()
	if err != nil {
		return nil, fmt.Errorf("decode reply: %w", err)
	}
	if r.Which() == wire.ApplyReply_Which_refusal {
		w, err := r.Refusal()
		if err != nil {
			return nil, fmt.Errorf("decode reply: %w", err)
		}
		f, err := refusalOf(w)
		if err != nil {
			return nil, err
		}
		if f == nil {
			return nil, fault.Incompatible.With("the server refused a batch without a reason")
		}
		return &reply{refusal: f}, nil
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
	out := &reply{outcomes: make([]ledger.Outcome, len(ops))}
	results := make([]byte, 0, 24*len(out.outcomes)) // capacity for cursors; larger results are allocated separately
	for i := range out.outcomes {
		if results, err = decodeOutcome(list.At(i), ops[i].OpID, &out.outcomes[i], results); err != nil {
			return nil, fmt.Errorf("decode outcome %d: %w", i, err)
		}
	}
	return out, nil
}

// decodeOutcome decodes an outcome, and appends its result to results. op is the id that it must
// have.
func decodeOutcome(w wire.Outcome, op string, to *ledger.Outcome, results []byte) ([]byte, error) {
	t := textReader{}
	if to.OpID = op; string(t.bytes(w.OpBytes())) != op {
		to.OpID = t.get(w.Op())
	}
	to.Status = ledger.Status(w.Status())
	to.Reason = fault.Code(w.Reason())
	to.Message = t.get(w.Message_())
	to.Cursor = w.Cursor()
	if result := t.bytes(w.ResultBytes()); len(result) > 0 {
		from := len(results)
		results = append(results, result...)
		to.Result = results[from:len(results):len(results)]
	}
	to.Cause = t.get(w.Cause())
	to.At = w.At()
	return results, t.err
}

// textReader reads text fields and keeps the first error.
type textReader struct{ err error }

func (t *textReader) get(s string, err error) string {
	if err != nil && t.err == nil {
		t.err = err
	}
	return s
}

// list reads a list of texts; nil if it is empty.
func (t *textReader) list(l capnp.TextList, err error) (texts []string) {
	if _ = t.get("", err); err != nil {
		return nil
	}
	for i := range l.Len() {
		texts = append(texts, t.get(l.At(i)))
	}
	return texts
}

// sameText returns a text that may be the same as before.
func sameText(before string, b []byte) string {
	if string(b) == before {
		return before
	}
	return string(b)
}

func (t *textReader) bytes(b []byte, err error) []byte {
	if err != nil && t.err == nil {
		t.err = err
	}
	return b
}

// decodeEvents decodes events. Texts that nearly all events of a session share are those of before, the last event decoded,
// or the zero Event.
func decodeEvents(sessionID string, list wire.Event_List, before Event) ([]Event, error) {
	out := make([]Event, list.Len())
	for i := range out {
		w, t := list.At(i), textReader{}
		hash, err := w.Hash()
		if err != nil {
			return nil, fmt.Errorf("decode event: %w", err)
		}
		if w.Hidden() {
			out[i] = Event{Session: sessionID, Cursor: w.Cursor(), Hash: hashFrom(hash), Hidden: true}
			continue
		}
		e := Event{
			Session: sessionID, Cursor: w.Cursor(), Method: sameText(before.Method, t.bytes(w.MethodBytes())), Key: t.get(w.Key()),
			Schema: w.Schema(), Ref: sameText(before.Ref, t.bytes(w.RefBytes())), Actor: sameText(before.Actor, t.bytes(w.ActorBytes())), Op: t.get(w.Op()),
			Batch: sameText(before.Batch, t.bytes(w.BatchBytes())), Outbox: sameText(before.Outbox, t.bytes(w.OutboxBytes())), At: time.UnixMilli(w.At()), Hash: hashFrom(hash),
		}
		if !w.Purged() {
			payload := t.bytes(w.PayloadBytes())
			e.Payload = append(make([]byte, 0, len(payload)), payload...)
		}
		sum, err := w.Sum()
		if err == nil {
			err = t.err
		}
		if err != nil {
			return nil, fmt.Errorf("decode event: %w", err)
		}
		e.sum = hashFrom(sum)
		out[i], before = e, e
	}
	return out, nil
}

// maxShared is how many bytes of payloads may share memory.
const maxShared = 4 << 10

// decodeEventsFast is decodeEvents without the generated code, which takes three times as long, of a sink's parameters, into the
// memory of spare; ok is false for an uncommon message, which decodeEvents decodes. An event shares memory with few others, so
// that a program may keep it.
func decodeEventsFast(sessionID string, m byhand.Message, before Event, spare []Event) (out []Event, ok bool) {
	params := m.Root()
	list := params.List(wirelayout.SinkEvents)
	if !m.Supported() {
		return nil, false
	}
	out = slices.Grow(spare[:0], list.Len())[:list.Len()]
	var shared []byte // the rest of the memory for payloads
	for i := range out {
		w, e := list.At(i), &out[i]
		*e = Event{Session: sessionID}
		e.Cursor, e.Hash, e.Hidden = w.Uint64(wirelayout.EventCursor), hashFrom(w.Bytes(wirelayout.EventHash)), w.Bit(wirelayout.EventHidden)
		if e.Hidden {
			continue
		}
		e.Schema, e.At, e.sum = w.Uint32(wirelayout.EventSchema), time.UnixMilli(int64(w.Uint64(wirelayout.EventAt))), hashFrom(w.Bytes(wirelayout.EventSum))
		e.Method, e.Ref, e.Actor = sameText(before.Method, w.Text(wirelayout.EventMethod)), sameText(before.Ref, w.Text(wirelayout.EventRef)), sameText(before.Actor, w.Text(wirelayout.EventActor))
		e.Batch, e.Outbox = sameText(before.Batch, w.Text(wirelayout.EventBatch)), sameText(before.Outbox, w.Text(wirelayout.EventOutbox))
		key, op := w.Text(wirelayout.EventKey), w.Text(wirelayout.EventOp)
		texts := string(append(append(make([]byte, 0, 128), key...), op...))
		e.Key, e.Op = texts[:len(key)], texts[len(key):]
		if !w.Bit(wirelayout.EventPurged) {
			payload := w.Text(wirelayout.EventPayload)
			if n := len(payload); shared == nil || n > cap(shared)-len(shared) {
				shared = make([]byte, 0, max(n, min(n*(len(out)-i), maxShared)))
			}
			from := len(shared)
			shared = append(shared, payload...)
			e.Payload = shared[from:len(shared):len(shared)]
		}
		before = *e
	}
	return out, m.Supported()
}

// claim reads an entry's claim; nil if it has none.
func (t *textReader) claim(has bool, claim func() (wire.Claim, error)) *Claim {
	if !has {
		return nil
	}
	w, err := claim()
	if err != nil {
		t.err = errors.Join(t.err, err)
		return nil
	}
	return &Claim{Cursor: w.Cursor(), Until: timeOf(w.Until()), Outbox: t.get(w.Outbox()), Worker: t.get(w.Worker()), Ref: t.get(w.Ref()), Actor: t.get(w.Actor()),
		renewed: w.Renewed()}
}

func decodeState(p wire.EventSink_state_Params) (entries []Entry, turns []Turn, err error) {
	es, err := p.Entries()
	if err != nil {
		return nil, nil, fmt.Errorf("decode state: %w", err)
	}
	ts, err := p.Turns()
	if err != nil {
		return nil, nil, fmt.Errorf("decode state: %w", err)
	}
	t := textReader{}
	for i := range es.Len() {
		w := es.At(i)
		entries = append(entries, Entry{Key: t.get(w.Key()), Cursor: w.Cursor(), Schema: w.Schema(), Payload: []byte(t.get(w.Payload())),
			Claim: t.claim(w.HasClaim(), w.Claim), ord: session.Ord{At: w.Ord(), Index: w.OrdIndex()}})
	}
	for i := range ts.Len() {
		w := ts.At(i)
		status := session.TurnStatus(w.Status())
		turns = append(turns, Turn{Message: t.get(w.Message_()), Status: status.String(), status: status, Begun: w.Begun(), Ended: w.Ended(), Outbox: t.get(w.Outbox()), Ref: t.get(w.Ref())})
	}
	if t.err != nil {
		return nil, nil, fmt.Errorf("decode state: %w", t.err)
	}
	return entries, turns, nil
}

// decodeView decodes what a piece of a state is compacted to, and messages that it leaves out.
func decodeView(p wire.EventSink_state_Params) (c Compacted, left []string, err error) {
	t := textReader{}
	if p.HasCompacted() {
		w, err := p.Compacted()
		if err != nil {
			return c, nil, fmt.Errorf("decode state: %w", err)
		}
		c = t.compacted(w)
	}
	list, err := p.LeftOut()
	for i := 0; err == nil && i < list.Len(); i++ {
		left = append(left, t.get(list.At(i)))
	}
	if err == nil {
		err = t.err
	}
	if err != nil {
		return c, nil, fmt.Errorf("decode state: %w", err)
	}
	return c, left, nil
}

func (t *textReader) compacted(w wire.Compacted) Compacted {
	return Compacted{Cursor: w.Cursor(), Upto: t.get(w.Upto()), Summary: t.get(w.Summary()), Actor: t.get(w.Actor()), At: timeOf(w.At())}
}

// SessionInfo describes a session in a list or a description.
type SessionInfo struct {
	ID       string
	External string // the id another system knows it by
	Title    string
	Cursor   uint64
	Base     uint64 // the log starts after this cursor
	Epoch    uint64
	Created  time.Time
	Updated  time.Time
	Deleted  bool
	ByTime   bool // the state is ordered by times of creation, not by the log

	// Origin is what the session was forked from; zero if it was not, and for a ref that does not
	// show all of the session.
	Origin Origin
	// Parent is the session whose child it is; zero as Origin is.
	Parent Parent

	// Reverted is what the session is reverted to; zero if it is not.
	Reverted Reverted

	// Compacted is up to where the session is compacted; zero if it is not, while a revert hides that, and for a ref that
	// does not show the whole session.
	Compacted Compacted

	// Head is the hash of the event at Cursor, the end of the log's hash chain; zero for a ref
	// that does not show the whole log, and in lists.
	Head Hash
}

// Origin is what a fork began as a copy of.
type Origin struct {
	Session string
	Cursor  uint64 // of that session, as of which it was copied
	Message string // id of the last message, in the session's order, that was copied; "" for all
}

// Parent is the session under which a child was created.
type Parent struct {
	Session string
	Key     string // of the message or part of the parent that started the child; "" if none is named
}

func decodeSessions(list wire.SessionInfo_List, err error) (infos []SessionInfo, _ error) {
	for i := 0; err == nil && i < list.Len(); i++ {
		var info SessionInfo
		info, err = decodeSessionInfo(list.At(i))
		infos = append(infos, info)
	}
	return infos, err
}

// Reverted is what a session is reverted to: this message or part, and what comes after it, is hidden.
type Reverted struct {
	Cursor uint64    // of the event; 0: the session is not reverted
	To     string    // message/ID or part/MESSAGE/ID; "" for a ref that does not show all of the session, as the fields below
	Actor  string    // who did it
	At     time.Time // when
}

// Compacted is up to where a session is compacted.
type Compacted struct {
	Cursor  uint64    // of the event; 0: the session is not compacted
	Upto    string    // message/ID: this and the messages before it are left out of the compacted view
	Summary string    // message/ID: what it has in their place
	Actor   string    // who did it
	At      time.Time // when
}

func decodeSessionInfo(w wire.SessionInfo) (SessionInfo, error) {
	t := textReader{}
	info := SessionInfo{
		ID: t.get(w.Id()), External: t.get(w.External()), Title: t.get(w.Title()), Cursor: w.Cursor(), Base: w.Base(),
		Epoch: w.Epoch(), Created: timeOf(w.Created()), Updated: timeOf(w.Updated()), Deleted: w.Deleted(),
		ByTime: session.ParseOrder(t.get(w.Order())) == session.ByTime,
	}
	head, err := w.Head()
	if t.err == nil {
		t.err = err
	}
	if w.HasOrigin() {
		origin, err := w.Origin()
		if err != nil {
			return info, err
		}
		info.Origin = Origin{Session: t.get(origin.Session()), Cursor: origin.Cursor(), Message: t.get(origin.Message_())}
	}
	if w.HasParent() {
		parent, err := w.Parent()
		if err != nil {
			return info, err
		}
		info.Parent = Parent{Session: t.get(parent.Session()), Key: t.get(parent.Key())}
	}
	if w.HasReverted() {
		r, err := w.Reverted()
		if err != nil {
			return info, err
		}
		info.Reverted = Reverted{Cursor: r.Cursor(), To: t.get(r.To()), Actor: t.get(r.Actor()), At: timeOf(r.At())}
	}
	if w.HasCompacted() {
		c, err := w.Compacted()
		if err != nil {
			return info, err
		}
		info.Compacted = t.compacted(c)
	}
	copy(info.Head[:], head)
	return info, t.err
}

// GrantInfo describes a ref: what it allows, and until when.
type GrantInfo struct {
	Ref            string            // its id
	Target         string            // the session's or space's id
	Owner          bool              // has no epoch and survives every bump
	Epoch          uint64            // that it was minted under; 0 for an owner's
	Rights         capability.Rights // what it may do
	Children       capability.Rights // what it may do in the session's children; 0: it does not reach them
	Methods        []string          // append only these methods; nil means all
	Expires        time.Time         // zero: never
	From           uint64            // first visible cursor; 0 all
	Message        string            // only this message, with its parts and turn; "" all
	ReadKeys       []string          // shows only these keys, and all below those that end in "/"; nil means all
	WriteKeys      []string          // writes only these; nil means all
	AskKinds       []string          // asks only requests of these kinds; nil means all
	AnswerKinds    []string          // claims and answers only these; nil means all
	MaxRedemptions uint32            // maximum number of redemptions; 0 unlimited
	Redemptions    uint32            // distinct redemptions so far
	Label          string
	Actor          string
	Seal           ed25519.PublicKey // the key it is bound to; nil for none
	Dead           fault.Code        // the code it fails with; None while it lives
	Cut            uint64            // the session's cursor when it was revoked
}

// timeOf converts Unix milliseconds to a time; 0 is the zero time.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func decodeGrantInfo(w wire.GrantInfo) (GrantInfo, error) {
	t := textReader{}
	g := GrantInfo{
		Ref: t.get(w.Id()), Target: t.get(w.Target()), Owner: w.Owner(), Epoch: w.Epoch(), Rights: capability.Rights(w.Rights()), Children: capability.Rights(w.Children()),
		Expires: timeOf(w.Expires()), From: w.From(), MaxRedemptions: w.Limit(), Redemptions: w.Used(), Label: t.get(w.Label()), Actor: t.get(w.Actor()),
		Message: t.get(w.Message_()), Dead: fault.Code(w.Dead()), Cut: w.Cut(),
	}
	seal, err := w.Seal()
	if err != nil {
		return g, err
	}
	if len(seal) > 0 {
		g.Seal = bytes.Clone(seal)
	}
	g.Methods = t.list(w.Methods())
	g.ReadKeys = t.list(w.ReadKeys())
	g.WriteKeys = t.list(w.WriteKeys())
	g.AskKinds, g.AnswerKinds = t.list(w.Ask()), t.list(w.Answer())
	return g, t.err
}
