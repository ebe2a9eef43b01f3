package session

// The log's events: their methods, their payloads, and the hash chain over them. An event's hash
// covers the one before it, every field of its row and its payload's hash, so a payload can be
// purged later and the chain still verifies (verify.go).

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/digest"
)

// The methods of events. All but the last five are methods of ops. A revert is settled by an op of another
// method, before its own event; a rotation is a call without an op, and the system writes the last three
// itself, so their Op, Batch, Outbox and Ref are "".
const (
	MethodCreate      = "create"
	MethodFork        = "fork"
	MethodPut         = "put"
	MethodRemove      = "remove"
	MethodPatch       = "patch" // its event's payload is the patch alone
	MethodAdd         = "add"   // its event's payload is addPayload
	MethodClaim       = "claim" // its event's payload is ClaimPayload
	MethodRelease     = "release"
	MethodAsk         = "ask"      // the events of requests are puts (request.go)
	MethodAnswer      = "answer"   //
	MethodWithdraw    = "withdraw" //
	MethodBegin       = "begin"
	MethodAppendText  = "appendText"
	MethodFinalize    = "finalize"
	MethodShare       = "share"
	MethodRevoke      = "revoke"
	MethodBumpEpoch   = "bumpEpoch"
	MethodPurge       = "purge"
	MethodDelete      = "delete"
	MethodRevert      = "revert"      // its event's payload is RevertPayload
	MethodUnrevert    = "unrevert"    // what was hidden is shown again
	MethodSettle      = "settle"      // what was hidden leaves the state: something new was said
	MethodCompact     = "compact"     // its event's payload is CompactPayload
	MethodRotate      = "rotate"      // an owner's ref was replaced by another; key ref/ID, of the new one
	MethodInterrupted = "interrupted" // a turn's lease expired, or the server started; key message/ID
	MethodResumed     = "resumed"     // its stream is active again, with an op whose event, if it makes one, comes next; key message/ID
	MethodLapse       = "lapse"       // a claim's lease expired; its key
)

// HashEvent returns the hash of an event over the hash before it (the zero Hash for the first) and
// e's fields, e.Sum among them; e.Hash and e.Payload are not read.
func HashEvent(prev Hash, e *Event) Hash {
	w := digest.New("mooring event v1")
	w.Sum32(prev)
	w.Text(e.Session)
	w.Num(e.Cursor)
	w.Text(e.Method)
	w.Text(e.Key)
	w.Num(uint64(e.Schema))
	w.Sum32(e.Sum)
	w.Text(e.Ref)
	w.Text(e.Actor)
	w.Text(e.Outbox)
	w.Text(e.Op)
	w.Text(e.Batch)
	w.Num(uint64(e.At))
	return w.Sum()
}

// SumOf returns a payload's hash, as in Event.Sum and Entry.Sum.
func SumOf(payload []byte) Hash { return sha256.Sum256(payload) }

// DeltaText returns the text that an appendText event's payload adds.
func DeltaText(payload []byte) []byte { return []byte(gjson.GetBytes(payload, "text").String()) }

// EntryPayload is an entry embedded in another event's payload: JSON text as a string, so that
// every byte stays the same.
type EntryPayload struct {
	Key    string `json:"key,omitempty"`
	Schema uint32 `json:"schema_version"`
	JSON   string `json:"payload"`
	Since  uint64 `json:"since,omitempty"` // in finalize: the Entry's; 0 in events of earlier servers
}

// CreatePayload is the payload of a create event; a fork event sets all fields.
type CreatePayload struct {
	External string         `json:"external,omitempty"`
	Ref      string         `json:"ref"`
	Label    string         `json:"label,omitempty"`
	Actor    string         `json:"actor,omitempty"`
	Order    string         `json:"order,omitempty"` // Order.String
	Parent   string         `json:"parent,omitempty"`
	Part     string         `json:"part,omitempty"` // key of the parent's message or part that started it
	Source   string         `json:"source,omitempty"`
	At       uint64         `json:"at,omitempty"`      // the cursor of the source at which it was forked
	Message  string         `json:"message,omitempty"` // the last message of the source that was copied; "" for all
	Entries  []EntryPayload `json:"entries,omitempty"`
	Purged   []int          `json:"purged,omitempty"` // indexes of purged entries, ascending

	Compact *CompactPayload `json:"compact,omitempty"` // up to where the fork is compacted, with places of its own
}

// Embedded returns the entries inside a finalize's or fork's payload, and the indexes of purged
// ones; none if it cannot be read.
func Embedded(e *Event) (entries []EntryPayload, purged []int) {
	var p struct {
		Entries []EntryPayload `json:"entries"`
		Purged  []int          `json:"purged"`
	}
	if e.Payload == nil || json.Unmarshal(e.Payload, &p) != nil {
		return nil, nil
	}
	return p.Entries, p.Purged
}

// WithoutKey returns entries without key's, and the indexes of all purged ones then; had reports
// whether key was among them. The others keep their original indexes, which are part of their Ords.
func WithoutKey(entries []EntryPayload, purged []int, key string) (left []EntryPayload, all []int, had bool) {
	left = make([]EntryPayload, 0, len(entries))
	for i, in := range indexed(entries, purged) {
		if in.Key == key {
			all = append(all, i)
		} else {
			left = append(left, in)
		}
	}
	had, all = len(all) > 0, append(all, purged...)
	slices.Sort(all)
	return left, all, had
}

// indexed returns entries with their original indexes, from before others were purged.
func indexed(entries []EntryPayload, purged []int) iter.Seq2[int, EntryPayload] {
	return func(yield func(int, EntryPayload) bool) {
		i := 0
		for _, in := range entries {
			for ; len(purged) > 0 && purged[0] == i; i++ {
				purged = purged[1:]
			}
			if !yield(i, in) {
				return
			}
			i++
		}
	}
}

// FinalizePayload is the payload of a finalize event: the new values of the message and of its
// closed and folded parts.
type FinalizePayload struct {
	Status  string         `json:"status"`
	Entries []EntryPayload `json:"entries"`
	Purged  []int          `json:"purged,omitempty"` // as in CreatePayload
	Salt    string         `json:"salt,omitempty"`   // package decide makes it, if a value is older than its event
	Hidden  int            `json:"hidden,omitempty"` // entries that the reader's ref does not show (scope.go); never in the log
}

// FinalValues returns the values that a finalize event's payload has, by key: those of the turn's message and of the
// parts that its end has changed. A payload that cannot be read has none.
func FinalValues(payload []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var p FinalizePayload
		if json.Unmarshal(payload, &p) != nil {
			return
		}
		for _, e := range indexed(p.Entries, p.Purged) {
			if !yield(e.Key, []byte(e.JSON)) {
				return
			}
		}
	}
}

// EmbedsOlder reports whether a value in it is from before its event, at cursor.
func (p *FinalizePayload) EmbedsOlder(cursor uint64) bool {
	return slices.ContainsFunc(p.Entries, func(in EntryPayload) bool { return in.Since < cursor })
}

// PurgePayload is the payload of a purge event.
type PurgePayload struct {
	Key    string       `json:"key"`
	Events []PurgedNote `json:"events,omitempty"`
	Salt   string       `json:"salt,omitempty"`   // package decide makes it, if there are events
	Left   *PurgedLeft  `json:"left,omitempty"`   // of a message, in a session that was ever reverted
	Hidden int          `json:"hidden,omitempty"` // events that the reader's ref does not show (scope.go); never in the log
}

// PurgedNote is one event that a purge touched: Sum, in hex, is the hash of its remaining payload;
// "" means that nothing remains.
type PurgedNote struct {
	Cursor uint64 `json:"cursor"`
	Sum    string `json:"sum,omitempty"`
}

// PurgedLeft is what the state has of a message when its value is purged. The value was the only thing in the
// log that said where it was, and so whether a settled revert had hidden its parts and its turn. What a revert
// in force hides of them is shown from here on: who has a state without it reads it again.
type PurgedLeft struct {
	Turn   bool         `json:"turn,omitempty"`
	Parts  []PlacedPart `json:"parts,omitempty"`
	Hidden int          `json:"hidden,omitempty"` // 1 for a reader whose ref does not show all of the session: it is told to read the state again; never in the log
}

// PlacedPart is a part's id, and its Ord.
type PlacedPart struct {
	ID  string     `json:"id"`
	Ord OrdNumbers `json:"ord"`
}

// Places returns what the state has of the parts of a message that is purged, by key; nil if the event does not say.
func (p *PurgePayload) Places(message string) map[string]Ord {
	if p.Left == nil || p.Left.Hidden > 0 {
		return nil
	}
	places := map[string]Ord{}
	for _, part := range p.Left.Parts {
		places[PartKey(message, part.ID)] = Ord{part.Ord[0], part.Ord[1]}
	}
	return places
}

// HoldsPayload reports whether an event holds payloads of key, or may, embedded in its own payload
// with other keys' values.
func HoldsPayload(e *Event, key string) bool {
	switch e.Method {
	case MethodPut, MethodPatch, MethodAdd, MethodBegin, MethodAppendText:
		return e.Key == key
	case MethodFinalize:
		return e.Key == HeadOf(key)
	}
	return e.Method == MethodFork
}

// EventCost is what an event counts besides its payload, and a ref minted without an event.
const EventCost = 256

// Cost returns what an event counts, in bytes.
func (e *Event) Cost() int64 { return int64(len(e.Payload)) + EventCost }

// Trimming: the start of a log is removed, without any loss of state.
//
// Afterwards the log starts after Row.Base. The row of the event at Base stays, without its
// payload: it is the checkpoint, since its hash covers every event before it, and the chain of
// later events verifies from that hash on. Cursors do not change. The state as of Base is not kept:
// the present one is in the entries, and requests for an earlier one (a snapshot or a fork at a
// cursor), or for events before Base, are CursorExpired.

// EventMeta has the fields of an event that trimming needs.
type EventMeta struct {
	Cursor uint64
	At     int64 // Unix ms
	Bytes  int   // of its payload
}

// TrimTo returns the Base that a session's log can be trimmed to: the last event of log (its events
// after row.Base, in order) that is older than before and precedes all open turns, whose deltas are
// in the log alone (of open, the first suffices). It stops after about maxBytes, but not before the
// first event; row.Base means that nothing can be removed. more reports that further events may be
// removable afterwards.
func TrimTo(row *Row, open []*Turn, log []EventMeta, before int64, maxBytes int) (base uint64, more bool) {
	base = row.Base
	size := 0
	for _, e := range log {
		if e.At >= before {
			return base, false
		}
		for _, t := range open {
			if t.Begun <= e.Cursor {
				return base, false
			}
		}
		size += e.Bytes
		if base > row.Base && size > maxBytes {
			return base, true
		}
		base = e.Cursor
	}
	return base, base > row.Base && base < row.Cursor
}
