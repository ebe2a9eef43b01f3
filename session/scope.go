package session

// What a ref shows of a session. One for a message covers that message, its parts
// and its turn. What it does not cover it cannot write, and is not shown: in an
// event's place stands a cursor mark, so that its holder knows how far the log is
// and nothing else. One from a cursor on shows what was written from there on. An
// event that is newer may embed what is older (the end of a turn does, and a purge
// has hashes of it): it is shown without that.

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

// InScope says whether a ref covers what a key is about: a key of the state, or
// an event's.
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

// HashKey is a database's own key of the hashes that a ref of one message is shown.
//
// A follower names the hash at its cursor when it goes on, so cursor marks have one
// too. The chain's own would tell of what is hidden: its neighbours are shown, ids
// are counted up within a batch, and so who guesses a short payload could see that
// the guess is right. Under a key that only the server has, a hash says that two
// logs are the same and nothing else.
type HashKey [32]byte

// Mask is what a ref is shown of an event's hash.
func (k *HashKey) Mask(g *capability.Grant, h Hash) Hash {
	if g.Message == "" || h == (Hash{}) {
		return h
	}
	mac := hmac.New(sha256.New, k[:])
	mac.Write(h[:])
	return Hash(mac.Sum(nil))
}

// HiddenEvent is the event that stands for hidden ones up to and with cursor, of which the
// last has hash, as far as it is shown.
func HiddenEvent(session string, cursor uint64, hash Hash) *Event {
	return &Event{Session: session, Cursor: cursor, Hash: hash, Hidden: true}
}

// ShowsEntry says whether a ref shows an entry: it covers the key, and all of the value
// was written since the first cursor that it shows. A part that a later turn's end
// or deltas have made longer is not shown until it is put whole.
func ShowsEntry(g *capability.Grant, e *Entry) bool {
	return InScope(g, e.Key) && (g.VisibleFrom <= 1 || e.Since >= g.VisibleFrom)
}

// ShowsTurn says whether a ref shows a turn.
func ShowsTurn(g *capability.Grant, t *Turn) bool {
	return InScope(g, MessageKey(t.Message)) && t.Begun >= g.VisibleFrom
}

// VisibleEvents is what a ref shows of consecutive events, none of them before its first
// cursor: those it covers, and a mark for each run of others. The events are shared,
// but for those that embed what is older or whose hash is shown under key.
func VisibleEvents(g *capability.Grant, events []*Event, key *HashKey) []*Event {
	if g.Message == "" && g.VisibleFrom <= 1 {
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

// withHash is the event with the hash that is shown of it.
func (e *Event) withHash(hash Hash) *Event {
	if e.Hash == hash {
		return e
	}
	shown := *e
	shown.Hash = hash
	return &shown
}

// redactFor is the event without what it embeds that a ref does not show: of a turn's
// end, values from before the ref's first cursor; of a purge, hashes of what is left
// of such events or, where the ref is for one message, of a fork's, which holds all
// messages. The event's Sum and Hash stay those of what was written, with a salt that is
// not shown either.
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

// salt is a text that nobody can guess who reads the session, for the payload of the event
// at a cursor: the same whenever the op in hand is decided on, and another for each op and
// event. An event of which some readers are shown a part alone has one in its payload, and
// that part has not: with all else of the event before them, they could otherwise try
// guesses at a short value by the event's hash.
func (a *applier) salt(cursor uint64) string {
	secret := a.v.streams[StreamKey{Session: a.s.row.ID, Outbox: a.outbox}].row.SecretHash
	mac := hmac.New(sha256.New, secret[:])
	fmt.Fprintf(mac, "salt %s %d %d", a.s.row.ID, a.s.row.Cursor+1, cursor)
	return base32.StdEncoding.EncodeToString(mac.Sum(nil))[:26]
}

// filterShown is what of a list is shown, and how many are not.
func filterShown[T any](list []T, shows func(T) bool) (shown []T, hidden int) {
	n := len(list)
	shown = slices.DeleteFunc(list, func(v T) bool { return !shows(v) })
	return shown, n - len(shown)
}

// AttenuatedToMessage says whether a live capability is for one message, and the refs below the
// one it stands on are not: these are none of its business.
func AttenuatedToMessage(g, narrow *capability.Grant) bool {
	return narrow != nil && g != nil && narrow.Message != g.Message
}

// inScope says why the grant in hand does not cover what op is about. Refs are
// minted and revoked within what their own covers, so these ops are about no key.
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
	return fault.MissingRight.With("the ref is for message %s alone: ask for one that covers more", a.grant.Message)
}

// predatesRef says that what a key holds is from before the first cursor that the
// grant in hand shows. An op must not have it written into an event, which the
// ref's holder would be shown.
func (a *applier) predatesRef(e *Entry) bool {
	return a.grant.VisibleFrom > 1 && e.Since < a.grant.VisibleFrom
}

func (a *applier) errNotShown(key string) *fault.Error {
	return fault.MissingRight.With("%s is from before cursor %d, the first that the ref shows: give its value whole, or ask for a ref that shows it", key, a.grant.VisibleFrom)
}
