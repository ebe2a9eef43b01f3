// The contents of a session's log and state: events, entries and turns, as a ref shows them.

package client

import (
	"encoding/hex"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Hash is a SHA-256: of an event, with all before it, or of a state. Zero stands for none.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// hashFrom decodes a hash, or zero.
func hashFrom(b []byte) (h Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}

// Event is one change of a session.
type Event struct {
	Session string
	Cursor  uint64
	Method  string    // the op's; or of the server itself: interrupted, resumed
	Key     string    // what it changed: message/ID, part/MID/PID, ref/ID, …
	Schema  uint32    // the payload's schema_version
	Payload []byte    // the text of a JSON object; nil once purged, the remainder where a part of it was
	Hash    Hash      // over the hash of the event before, and this one
	Ref     string    // the id of the ref that it was written under
	Actor   string    // who wrote it, as the ref says
	Outbox  string    // the outbox it came from; "" for the server's own
	Op      string    // the op's id; "" for the server's own
	Batch   string    // the batch's id; "" for the server's own
	At      time.Time // by the server's database
	Hidden  bool      // a cursor mark: the ref does not show the events up to Cursor, and Hash is the last one's

	sum Hash // of the payload, where that was purged or redacted; else zero
}

// stored returns the event as package session verifies and folds it.
func (e *Event) stored() *session.Event {
	if e.Hidden {
		return session.HiddenEvent(e.Session, e.Cursor, session.Hash(e.Hash))
	}
	s := &session.Event{Session: e.Session, Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: e.Payload,
		Sum: session.Hash(e.sum), Hash: session.Hash(e.Hash), Ref: e.Ref, Actor: e.Actor, Outbox: e.Outbox, Op: e.Op, Batch: e.Batch,
		At: e.At.UnixMilli()}
	if e.sum == (Hash{}) && e.Payload != nil {
		s.Sum = session.SumOf(e.Payload)
	}
	return s
}

// Entry is a key of a session's state and its value.
type Entry struct {
	Key     string
	Cursor  uint64 // of the event that put the value; text that was appended since does not change it
	Schema  uint32 // the payload's schema_version
	Payload []byte // JSON text: an object, but of a kind of one's own
	Claim   *Claim // who works on it; nil for nobody

	ord session.Ord // its position in the state; zero from older servers
}

// compareEntries orders entries as they stand in the state.
func compareEntries(a, b Entry) int {
	return session.CompareEntries(a.stored(), b.stored())
}

// stored returns the entry as package session verifies and orders it.
func (e *Entry) stored() *session.Entry {
	return &session.Entry{Key: e.Key, Cursor: e.Cursor, Ord: e.ord, Schema: e.Schema, Payload: e.Payload, Claim: e.Claim.stored()}
}

// Claim is who works on a key. It is in force until it is released, or the key's value removed, and until
// Until at most.
type Claim struct {
	Cursor uint64    // of the event that made it: what the owner's ops name (Promise.WithClaim)
	Until  time.Time // when its lease is over, by the server's clock
	Outbox string    // the outbox that owns it
	Worker string    // of the outbox, as it named itself (Batch.Claim)
	Ref    string    // the id of the ref that it was last claimed under
	Actor  string    // who claimed it, as the ref says

	renewed uint64
}

func (c *Claim) stored() *session.Claim {
	if c == nil {
		return nil
	}
	return &session.Claim{Cursor: c.Cursor, Renewed: c.renewed, Until: c.Until.UnixMilli(), Outbox: c.Outbox, Worker: c.Worker, Ref: c.Ref, Actor: c.Actor}
}

// Turn is a message that is being written, or was.
type Turn struct {
	Message string // the message's id
	Status  string // Streaming, Interrupted, Completed, Failed or Aborted
	Outbox  string // the outbox that writes it
	Ref     string // the id of the ref under which it was begun
	Begun   uint64 // the cursor at which it began
	Ended   uint64 // the cursor at which it ended; 0 while it is open

	status session.TurnStatus // Status's number
}

// stored returns the turn as package session verifies it.
func (t *Turn) stored() *session.Turn {
	return &session.Turn{Message: t.Message, Status: t.status, Begun: t.Begun, Ended: t.Ended}
}

// Open reports whether the turn has not ended: it is Streaming or Interrupted.
func (t *Turn) Open() bool { return t.Status == Streaming || t.Status == Interrupted }

// The states of a turn. The last three are what Finalize sets.
const (
	Streaming   = "streaming"
	Interrupted = "interrupted" // its writer is away; the next op of it resumes the turn
	Completed   = "completed"
	Failed      = "failed"
	Aborted     = "aborted"
)
