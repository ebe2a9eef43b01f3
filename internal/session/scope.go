package session

// The scope of a ref: the part of a session that it shows. A ref for a message covers that message,
// its parts and its turn. Everything else its holder cannot write, and is not shown: a cursor mark
// replaces each event, and reveals only the cursor. A ref with a first visible cursor shows values
// written from there on. A newer event may embed older values (the end of a turn does, and a purge
// has hashes of them): it is shown without them.

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// InScope reports whether a ref covers a key: one of the state, or an event's.
func InScope(g *capability.Grant, key string) bool {
	if g.Message == "" {
		return true
	}
	if id, ok := strings.CutPrefix(key, "message/"); ok {
		return id == g.Message
	}
	rest, ok := strings.CutPrefix(key, "part/")
	id, _, _ := strings.Cut(rest, "/")
	return ok && id == g.Message
}

// KeyRange are keys of one kind: from From on and below Below.
type KeyRange struct{ Kind, From, Below string }

// ScopeRanges returns the keys of the state that a ref covers (InScope), in the order of their kinds.
func ScopeRanges(g *capability.Grant) []KeyRange {
	if g.Message != "" {
		return []KeyRange{oneKey("message", MessageKey(g.Message)), keysBelow("part", "part/"+g.Message)}
	}
	return []KeyRange{keysBelow("message", "message"), keysBelow("model", "model"), keysBelow("part", "part"),
		oneKey("session", "session"), oneKey("session_diff", "session_diff")}
}

// CoveredRanges returns ranges of keys, from from on and below below and in key order, outside of
// which a ref covers no key: what it does not cover need not be read.
func CoveredRanges(g *capability.Grant, from, below string) []KeyRange {
	if g.Message == "" {
		return []KeyRange{{From: from, Below: below}}
	}
	var ranges []KeyRange
	for _, r := range ScopeRanges(g) {
		if r.From, r.Below = max(r.From, from), min(r.Below, below); r.From < r.Below {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

func oneKey(kind, key string) KeyRange       { return KeyRange{kind, key, key + " "} }
func keysBelow(kind, prefix string) KeyRange { return KeyRange{kind, prefix + "/", prefix + "0"} }

// HashKey is a database's key for masking the hashes that a ref of one message is shown.
//
// A follower sends the hash at its cursor when it resumes, so cursor marks have one too. The
// chain's own hash would reveal hidden events: their neighbours are shown, ids are consecutive
// within a batch, so a guess at a short payload could be tested. A hash masked with a key that only
// the server has shows that two logs are equal and nothing else.
type HashKey [32]byte

// Mask returns an event's hash as a ref is shown it.
func (k *HashKey) Mask(g *capability.Grant, h Hash) Hash {
	if g.Message == "" || h == (Hash{}) {
		return h
	}
	mac := hmac.New(sha256.New, k[:])
	mac.Write(h[:])
	return Hash(mac.Sum(nil))
}

// HiddenEvent returns the cursor mark that replaces hidden events up to and including cursor; hash
// is the last one's, as shown.
func HiddenEvent(session string, cursor uint64, hash Hash) *Event {
	return &Event{Session: session, Cursor: cursor, Hash: hash, Hidden: true}
}

// showsAll reports whether a ref shows all of its session.
func showsAll(g *capability.Grant) bool { return g.Message == "" && g.VisibleFrom <= 1 }

// ShowsEntry reports whether a ref shows an entry: it covers the key, and all of the value was
// written since its first visible cursor. A part that a later turn's end or deltas have extended is
// hidden until it is put whole.
func ShowsEntry(g *capability.Grant, e *Entry) bool {
	return InScope(g, e.Key) && (g.VisibleFrom <= 1 || e.Since >= g.VisibleFrom)
}

// showsTurn reports whether a ref shows a turn.
func showsTurn(g *capability.Grant, t *Turn) bool {
	return InScope(g, MessageKey(t.Message)) && t.Begun >= g.VisibleFrom
}

// visibleEvents returns consecutive events as a ref shows them, none of them before its first
// visible cursor: the events in scope, and a cursor mark for each run of others. The events are
// shared, except ones that are redacted or whose hash is masked with key.
func visibleEvents(g *capability.Grant, events []*Event, key *HashKey) []*Event {
	if showsAll(g) {
		return events
	}
	shown := make([]*Event, 0, len(events))
	for _, e := range events {
		hash := key.Mask(g, e.Hash)
		switch last := len(shown) - 1; {
		case InScope(g, e.Key):
			shown = append(shown, e.redactFor(g).withHash(hash))
		case last >= 0 && shown[last].Hidden:
			shown[last].Cursor, shown[last].Hash = e.Cursor, hash
		default:
			shown = append(shown, HiddenEvent(e.Session, e.Cursor, hash))
		}
	}
	return shown
}

// withHash returns the event with the hash that is shown for it.
func (e *Event) withHash(hash Hash) *Event {
	if e.Hash == hash {
		return e
	}
	shown := *e
	shown.Hash = hash
	return &shown
}

// redactFor returns the event without embedded values that a ref does not show: of a turn's end,
// values from before the ref's first visible cursor; of a purge, hashes of the remainders of such
// events or, if the ref is for one message, of a fork, which embeds all messages. Sum and Hash of
// the event stay those of the original, with a salt that is not shown either.
func (e *Event) redactFor(g *capability.Grant) *Event {
	if e.Payload == nil {
		return e
	}
	var left []byte
	switch e.Method {
	case MethodFinalize:
		var p finalizePayload
		err := json.Unmarshal(e.Payload, &p)
		p.Entries, p.Hidden = filterShown(p.Entries, func(in entryPayload) bool { return g.VisibleFrom <= 1 || in.Since >= g.VisibleFrom })
		if err == nil && p.Hidden == 0 {
			return e
		}
		p.Salt = ""
		left = encode(p)
	case MethodPurge:
		var p purgePayload
		err := json.Unmarshal(e.Payload, &p)
		p.Events, p.Hidden = filterShown(p.Events, func(note purgedNote) bool { return note.Cursor >= g.VisibleFrom && g.Message == "" })
		if err == nil && p.Hidden == 0 {
			return e
		}
		p.Salt = ""
		left = encode(p)
	default:
		return e
	}
	cut := *e
	cut.Payload, cut.Redacted = left, true
	return &cut
}

// salt returns a text for the payload of the event at a cursor that readers of the session cannot
// guess: the same for each decision on the current op, and another for each op and event. An event
// that some readers are shown only a part of has one in its payload, which the part lacks:
// otherwise, knowing the rest of the event, they could test guesses at a short value by the event's
// hash.
func (a *applier) salt(cursor uint64) string {
	secret := a.v.streams[StreamKey{Session: a.s.row.ID, Outbox: a.outbox}].row.SecretHash
	mac := hmac.New(sha256.New, secret[:])
	fmt.Fprintf(mac, "salt %s %d %d", a.s.row.ID, a.s.row.Cursor+1, cursor)
	return base32.StdEncoding.EncodeToString(mac.Sum(nil))[:26]
}

// filterShown returns the shown elements of a list, and the number of the others.
func filterShown[T any](list []T, shows func(T) bool) (shown []T, hidden int) {
	n := len(list)
	shown = slices.DeleteFunc(list, func(v T) bool { return !shows(v) })
	return shown, n - len(shown)
}

// AttenuatedToMessage reports whether a live capability is for one message and its ref is not: its
// holder must not see the ref's descendants.
func AttenuatedToMessage(g, narrow *capability.Grant) bool {
	return narrow != nil && g != nil && narrow.Message != g.Message
}

// inScope returns an error if the current grant does not cover the key that op is about. Refs are
// minted and revoked within the scope of their own ref, so those ops have no key.
func (a *applier) inScope(do op) *fault.Error {
	if a.grant.Message == "" {
		return nil
	}
	about := ""
	switch o := do.(type) {
	case *opShare:
		return nil
	case *opRevoke:
		if slot := a.v.grants[a.grant.ID]; slot == nil || !AttenuatedToMessage(slot.grant, a.sub.Attenuated) {
			return nil
		}
	case *opPut:
		about = o.key.String()
	case *opRemove:
		about = o.key.String()
	case *opAppendText:
		about = o.key.String()
	case *opBegin:
		about = MessageKey(o.message)
	case *opFinalize:
		about = MessageKey(o.message)
	}
	if about != "" && InScope(a.grant, about) {
		return nil
	}
	return fault.MissingRight.With("the ref is for message %s only: ask for one that covers more", a.grant.Message)
}

// predatesRef reports whether a key's value is from before the current grant's first visible
// cursor. An op must not copy it into an event, which the ref's holder would be shown.
func (a *applier) predatesRef(e *Entry) bool {
	return a.grant.VisibleFrom > 1 && e.Since < a.grant.VisibleFrom
}

func (a *applier) errNotShown(key string) *fault.Error {
	return fault.MissingRight.With("%s is from before cursor %d, the first that the ref shows: give its value whole, or ask for a ref that shows it", key, a.grant.VisibleFrom)
}
