// Decoding of the answers and callbacks of capnp/mooring.capnp into the domain's types.
// Everything is copied: no decoded value refers to a message. Malformed answers of a server
// return errors, never panic.

package client

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	byhand "github.com/mooring-rpc/mooring/internal/capnpfast"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/wirelayout"
)

// sameText returns a text that may be the same as before.
func sameText(before string, b []byte) string {
	if string(b) == before {
		return before
	}
	return string(b)
}

// decodeEvents decodes events. Texts that nearly all events of a session share are those of before, the last event decoded,
// or the zero Event.
func decodeEvents(sessionID string, list wire.Event_List, before Event) ([]Event, error) {
	out := make([]Event, list.Len())
	for i := range out {
		w, t := list.At(i), calls.Texts{}
		hash, err := w.Hash()
		if err != nil {
			return nil, fmt.Errorf("decode event: %w", err)
		}
		if w.Hidden() {
			out[i] = Event{Session: sessionID, Cursor: w.Cursor(), Hash: hashFrom(hash), Hidden: true}
			continue
		}
		e := Event{
			Session: sessionID, Cursor: w.Cursor(), Method: sameText(before.Method, t.Bytes(w.MethodBytes())), Key: t.Get(w.Key()),
			Schema: w.Schema(), Ref: sameText(before.Ref, t.Bytes(w.RefBytes())), Actor: sameText(before.Actor, t.Bytes(w.ActorBytes())), Op: t.Get(w.Op()),
			Batch: sameText(before.Batch, t.Bytes(w.BatchBytes())), Outbox: sameText(before.Outbox, t.Bytes(w.OutboxBytes())), At: time.UnixMilli(w.At()), Hash: hashFrom(hash),
		}
		if !w.Purged() {
			payload := t.Bytes(w.PayloadBytes())
			e.Payload = append(make([]byte, 0, len(payload)), payload...)
		}
		sum, err := w.Sum()
		if err == nil {
			err = t.Err
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

// readClaim reads an entry's claim; nil if it has none.
func readClaim(t *calls.Texts, has bool, claim func() (wire.Claim, error)) *Claim {
	if !has {
		return nil
	}
	w, err := claim()
	if err != nil {
		t.Err = errors.Join(t.Err, err)
		return nil
	}
	return &Claim{Cursor: w.Cursor(), Until: timeOf(w.Until()), Outbox: t.Get(w.Outbox()), Worker: t.Get(w.Worker()), Ref: t.Get(w.Ref()), Actor: t.Get(w.Actor()),
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
	t := calls.Texts{}
	for i := range es.Len() {
		w := es.At(i)
		entries = append(entries, Entry{Key: t.Get(w.Key()), Cursor: w.Cursor(), Schema: w.Schema(), Payload: []byte(t.Get(w.Payload())),
			Claim: readClaim(&t, w.HasClaim(), w.Claim), ord: session.Ord{At: w.Ord(), Index: w.OrdIndex()}})
	}
	for i := range ts.Len() {
		w := ts.At(i)
		status := session.TurnStatus(w.Status())
		turns = append(turns, Turn{Message: t.Get(w.Message_()), Status: status.String(), status: status, Begun: w.Begun(), Ended: w.Ended(), Outbox: t.Get(w.Outbox()), Ref: t.Get(w.Ref())})
	}
	if t.Err != nil {
		return nil, nil, fmt.Errorf("decode state: %w", t.Err)
	}
	return entries, turns, nil
}

// decodeView decodes what a piece of a state is compacted to, and messages that it leaves out.
func decodeView(p wire.EventSink_state_Params) (c Compacted, left []string, err error) {
	t := calls.Texts{}
	if p.HasCompacted() {
		w, err := p.Compacted()
		if err != nil {
			return c, nil, fmt.Errorf("decode state: %w", err)
		}
		c = readCompacted(&t, w)
	}
	list, err := p.LeftOut()
	for i := 0; err == nil && i < list.Len(); i++ {
		left = append(left, t.Get(list.At(i)))
	}
	if err == nil {
		err = t.Err
	}
	if err != nil {
		return c, nil, fmt.Errorf("decode state: %w", err)
	}
	return c, left, nil
}

func readCompacted(t *calls.Texts, w wire.Compacted) Compacted {
	return Compacted{Cursor: w.Cursor(), Upto: t.Get(w.Upto()), Summary: t.Get(w.Summary()), Actor: t.Get(w.Actor()), At: timeOf(w.At())}
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
	t := calls.Texts{}
	info := SessionInfo{
		ID: t.Get(w.Id()), External: t.Get(w.External()), Title: t.Get(w.Title()), Cursor: w.Cursor(), Base: w.Base(),
		Epoch: w.Epoch(), Created: timeOf(w.Created()), Updated: timeOf(w.Updated()), Deleted: w.Deleted(),
		ByTime: session.ParseOrder(t.Get(w.Order())) == session.ByTime,
	}
	head, err := w.Head()
	if t.Err == nil {
		t.Err = err
	}
	if w.HasOrigin() {
		origin, err := w.Origin()
		if err != nil {
			return info, err
		}
		info.Origin = Origin{Session: t.Get(origin.Session()), Cursor: origin.Cursor(), Message: t.Get(origin.Message_())}
	}
	if w.HasParent() {
		parent, err := w.Parent()
		if err != nil {
			return info, err
		}
		info.Parent = Parent{Session: t.Get(parent.Session()), Key: t.Get(parent.Key())}
	}
	if w.HasReverted() {
		r, err := w.Reverted()
		if err != nil {
			return info, err
		}
		info.Reverted = Reverted{Cursor: r.Cursor(), To: t.Get(r.To()), Actor: t.Get(r.Actor()), At: timeOf(r.At())}
	}
	if w.HasCompacted() {
		c, err := w.Compacted()
		if err != nil {
			return info, err
		}
		info.Compacted = readCompacted(&t, c)
	}
	copy(info.Head[:], head)
	return info, t.Err
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
	t := calls.Texts{}
	g := GrantInfo{
		Ref: t.Get(w.Id()), Target: t.Get(w.Target()), Owner: w.Owner(), Epoch: w.Epoch(), Rights: capability.Rights(w.Rights()), Children: capability.Rights(w.Children()),
		Expires: timeOf(w.Expires()), From: w.From(), MaxRedemptions: w.Limit(), Redemptions: w.Used(), Label: t.Get(w.Label()), Actor: t.Get(w.Actor()),
		Message: t.Get(w.Message_()), Dead: fault.Code(w.Dead()), Cut: w.Cut(),
	}
	seal, err := w.Seal()
	if err != nil {
		return g, err
	}
	if len(seal) > 0 {
		g.Seal = bytes.Clone(seal)
	}
	g.Methods = t.List(w.Methods())
	g.ReadKeys = t.List(w.ReadKeys())
	g.WriteKeys = t.List(w.WriteKeys())
	g.AskKinds, g.AnswerKinds = t.List(w.Ask()), t.List(w.Answer())
	return g, t.Err
}
