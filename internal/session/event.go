package session

// The log's events: their methods, their payloads, and the hash chain over them. An event's hash
// covers the one before it, every field of its row and its payload's hash, so a payload can be
// purged later and the chain still verifies (verify.go).

import (
	"crypto/sha256"
	"encoding/json"
	"iter"
	"slices"

	"github.com/mooring-rpc/mooring/internal/digest"
	"github.com/tidwall/gjson"
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
	MethodClaim       = "claim" // its event's payload is claimPayload
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
	MethodRevert      = "revert"      // its event's payload is revertPayload
	MethodUnrevert    = "unrevert"    // what was hidden is shown again
	MethodSettle      = "settle"      // what was hidden leaves the state: something new was said
	MethodCompact     = "compact"     // its event's payload is compactPayload
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

// deltaPayload is the payload of an appendText event.
type deltaPayload struct {
	Offset uint64 `json:"offset"`
	Text   string `json:"text"`
}

// DeltaText returns the text that an appendText event's payload adds.
func DeltaText(payload []byte) []byte { return []byte(gjson.GetBytes(payload, "text").String()) }

// addPayload is the payload of an add event.
type addPayload struct {
	Member string `json:"member"`
	By     int64  `json:"by"`
}

// entryPayload is an entry embedded in another event's payload: JSON text as a string, so that
// every byte stays the same.
type entryPayload struct {
	Key    string `json:"key,omitempty"`
	Schema uint32 `json:"schema_version"`
	JSON   string `json:"payload"`
	Since  uint64 `json:"since,omitempty"` // in finalize: the Entry's; 0 in events of earlier servers
}

// createPayload is the payload of a create event; a fork event sets all fields.
type createPayload struct {
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
	Entries  []entryPayload `json:"entries,omitempty"`
	Purged   []int          `json:"purged,omitempty"` // indexes of purged entries, ascending

	Compact *compactPayload `json:"compact,omitempty"` // up to where the fork is compacted, with places of its own
}

// embedded returns the entries inside a finalize's or fork's payload, and the indexes of purged
// ones; none if it cannot be read.
func embedded(e *Event) (entries []entryPayload, purged []int) {
	var p struct {
		Entries []entryPayload `json:"entries"`
		Purged  []int          `json:"purged"`
	}
	if e.Payload == nil || json.Unmarshal(e.Payload, &p) != nil {
		return nil, nil
	}
	return p.Entries, p.Purged
}

// withoutKey returns entries without key's, and the indexes of all purged ones then; had reports
// whether key was among them. The others keep their original indexes, which are part of their Ords.
func withoutKey(entries []entryPayload, purged []int, key string) (left []entryPayload, all []int, had bool) {
	left = make([]entryPayload, 0, len(entries))
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
func indexed(entries []entryPayload, purged []int) iter.Seq2[int, entryPayload] {
	return func(yield func(int, entryPayload) bool) {
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

// finalizePayload is the payload of a finalize event: the new values of the message and of its
// closed and folded parts.
type finalizePayload struct {
	Status  string         `json:"status"`
	Entries []entryPayload `json:"entries"`
	Purged  []int          `json:"purged,omitempty"` // as in createPayload
	Salt    string         `json:"salt,omitempty"`   // applier.salt, if a value is older than its event
	Hidden  int            `json:"hidden,omitempty"` // entries that the reader's ref does not show (scope.go); never in the log
}

// FinalValues returns the values that a finalize event's payload has, by key: those of the turn's message and of the
// parts that its end has changed. A payload that cannot be read has none.
func FinalValues(payload []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var p finalizePayload
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

// embedsOlder reports whether a value in it is from before its event, at cursor.
func (p *finalizePayload) embedsOlder(cursor uint64) bool {
	return slices.ContainsFunc(p.Entries, func(in entryPayload) bool { return in.Since < cursor })
}
