package session

// The scope of a ref: the part of a session that it shows, and the part that it writes. A ref for a
// message covers that message, its parts and its turn; a ref limited to keys shows the keys of one
// list and writes those of another. What a ref does not cover its holder is not shown: a cursor mark
// replaces each event, and reveals only the cursor. A ref with a first visible cursor shows values
// written from there on. An event may embed values that a ref does not show: the end of a turn has
// older ones and those of other keys, a fork has those of all keys, a purge has hashes of them. It is
// shown without them. A revert or a compaction is about all of a session: a ref of a part of it is shown that
// there was one, and not where; after a revert, and a purge that may have shown what one hid, its reader reads
// the state again.

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
)

// InScope reports whether a ref shows a key: one of the state, or an event's.
func InScope(g *capability.Grant, key string) bool {
	return coversMessage(g.Message, key) && capability.CoversKey(g.ReadKeys, key)
}

// coversMessage reports whether a key is a message's or one of its parts'; "" is any message and key.
func coversMessage(message, key string) bool {
	return message == "" || MessageOf(key) == message
}

// showsEvent reports whether a ref shows an event, or a part of it: one about a key that it shows,
// and one that may embed values of such keys.
func showsEvent(g *capability.Grant, e *Event) bool {
	switch {
	case InScope(g, e.Key) || e.Method == MethodFork:
		return true
	case aboutAll(e.Method):
		return showsMessages(g)
	case (e.Method == MethodFinalize || e.Method == MethodPurge) && g.Message == "":
		id, ok := strings.CutPrefix(e.Key, "message/")
		return ok && capability.TouchesKeys(g.ReadKeys, PartPrefix(id))
	}
	return false
}

// IsRevert reports whether events of a method hide messages or show them again.
func IsRevert(method string) bool {
	return method == MethodRevert || method == MethodUnrevert || method == MethodSettle
}

// aboutAll reports whether events of a method are about all messages of a session: a ref of a part of it is
// told that there was one, and no more.
func aboutAll(method string) bool { return IsRevert(method) || method == MethodCompact }

// showsMessages reports whether a ref covers keys of messages or parts.
func showsMessages(g *capability.Grant) bool {
	return g.Message != "" || capability.TouchesKeys(g.ReadKeys, "message/") || capability.TouchesKeys(g.ReadKeys, "part/")
}

// KeyRange are keys of one kind: from From on and below Below.
type KeyRange struct{ Kind, From, Below string }

// ScopeRanges returns the keys of the state that a ref covers (InScope) that does not show all keys, in
// the order of their kinds.
func ScopeRanges(g *capability.Grant) []KeyRange {
	if g.Message != "" {
		return []KeyRange{oneKey("message", MessageKey(g.Message)), keysBelow("part", "part/"+g.Message)}
	}
	return listRanges(g.ReadKeys)
}

// KindRanges returns the keys of kinds, in their order.
func KindRanges(kinds []string) (ranges []KeyRange) {
	for _, kind := range kinds {
		ranges = append(ranges, oneKey(kind, kind), keysBelow(kind, kind))
	}
	return ranges
}

// CoveredRanges returns ranges of keys, from from on and below below and in key order, outside of
// which a ref covers no key: what it does not cover need not be read.
func CoveredRanges(g *capability.Grant, from, below string) []KeyRange {
	if g.ShowsAllKeys() {
		return []KeyRange{{From: from, Below: below}}
	}
	var ranges []KeyRange
	for _, r := range ScopeRanges(g) {
		if r.From, r.Below = max(r.From, from), min(r.Below, below); r.From < r.Below {
			ranges = append(ranges, r)
		}
	}
	slices.SortFunc(ranges, func(a, b KeyRange) int { return strings.Compare(a.From, b.From) })
	return ranges
}

// Messages returns the ids of the messages whose keys are in the range: from from on and below below;
// ok reports whether there may be any.
func (r KeyRange) Messages() (from, below string, ok bool) {
	all := keysBelow("message", "message")
	from, below = max(r.From, all.From), min(r.Below, all.Below)
	if from >= below {
		return "", "", false
	}
	if below == all.Below {
		return from[len(all.From):], PrefixEnd(""), true
	}
	return from[len(all.From):], below[len(all.From):], true
}

// listRanges returns the ranges of a list of keys, each key in one of them.
func listRanges(keys []string) (ranges []KeyRange) {
	keys = slices.Sorted(slices.Values(keys)) // a prefix comes before what it covers
	for i, k := range keys {
		kind := KindOf(k)
		switch below, prefix := strings.CutSuffix(k, "/"); {
		case i > 0 && capability.CoversKey(keys[:i], k):
		case prefix:
			ranges = append(ranges, keysBelow(kind, below))
		default:
			ranges = append(ranges, oneKey(kind, k))
		}
	}
	slices.SortStableFunc(ranges, func(a, b KeyRange) int { return strings.Compare(a.Kind, b.Kind) })
	return ranges
}

// EventRange are events about keys from From on and below Below, of one method or, if that is "", of
// any.
type EventRange struct{ From, Below, Method string }

// EventRanges returns the events that a ref shows that does not show all keys (showsEvent). An event
// may be in several of them.
func EventRanges(g *capability.Grant) []EventRange {
	fork := keysBelow("ref", "ref")
	events := []EventRange{{fork.From, fork.Below, MethodFork}}
	if showsMessages(g) {
		for _, method := range []string{MethodRevert, MethodUnrevert, MethodSettle, MethodCompact} {
			events = append(events, EventRange{"", " ", method}) // without a key
		}
	}
	for _, r := range ScopeRanges(g) {
		events = append(events, EventRange{r.From, r.Below, ""})
	}
	for _, k := range g.ReadKeys {
		rest, parts := strings.CutPrefix(k, "part/")
		if !parts {
			continue
		}
		ends := keysBelow("message", "message")
		if id, _, one := strings.Cut(rest, "/"); one {
			ends = oneKey("message", MessageKey(id))
		}
		events = append(events, EventRange{ends.From, ends.Below, MethodFinalize}, EventRange{ends.From, ends.Below, MethodPurge})
	}
	return events
}

func oneKey(kind, key string) KeyRange { return KeyRange{kind, key, key + " "} }
func keysBelow(kind, prefix string) KeyRange {
	return KeyRange{kind, prefix + "/", PrefixEnd(prefix + "/")}
}

// HashKey is a database's key for masking the hashes that a ref of some keys is shown.
//
// A follower sends the hash at its cursor when it resumes, so cursor marks have one too. The
// chain's own hash would reveal hidden events: their neighbours are shown, ids are consecutive
// within a batch, so a guess at a short payload could be tested. A hash masked with a key that only
// the server has shows that two logs are equal and nothing else.
type HashKey [32]byte

// Mask returns a hash of an event as a ref is shown it. A nil key masks nothing.
func (k *HashKey) Mask(g *capability.Grant, h Hash) Hash {
	if k == nil || g.ShowsAllKeys() || h == (Hash{}) {
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

// ShowsAll reports whether a ref shows all of its session.
func ShowsAll(g *capability.Grant) bool { return g.ShowsAllKeys() && g.VisibleFrom <= 1 }

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
	if ShowsAll(g) {
		return events
	}
	shown := make([]*Event, 0, len(events))
	for _, e := range events {
		hash := key.Mask(g, e.Hash)
		switch last := len(shown) - 1; {
		case showsEvent(g, e):
			shown = append(shown, e.redactFor(g, key).withHash(hash))
		case last >= 0 && shown[last].Hidden:
			shown[last].Cursor, shown[last].Hash = e.Cursor, hash
		default:
			shown = append(shown, HiddenEvent(e.Session, e.Cursor, hash))
		}
	}
	return shown
}

// Selection is the keys that a reader has asked for, of those that its ref shows. nil is all.
type Selection struct{ asked *capability.Grant }

// SelectKeys returns the selection of a list of keys; nil selects all. The error is BadArgument.
func SelectKeys(keys []string) (*Selection, *fault.Error) {
	if keys == nil {
		return nil, nil
	}
	if err := capability.CheckKeys("keys", keys); err != nil {
		return nil, err
	}
	return &Selection{&capability.Grant{ReadKeys: keys}}, nil
}

// Ranges returns ranges of keys, in order, outside of which nothing is selected or covered by a ref.
func (s *Selection) Ranges(g *capability.Grant) (ranges []KeyRange) {
	if s == nil {
		return CoveredRanges(g, "", PrefixEnd(""))
	}
	for _, r := range CoveredRanges(s.asked, "", PrefixEnd("")) {
		ranges = append(ranges, CoveredRanges(g, r.From, r.Below)...)
	}
	return ranges
}

// Events returns the selected ones of events that a ref shows, as if the ref showed no others; their
// hashes stay.
func (s *Selection) Events(shown []*Event) []*Event {
	if s == nil {
		return shown
	}
	return visibleEvents(s.asked, shown, nil)
}

// Page returns the selected part of a page of events that a ref shows.
func (s *Selection) Page(shown *LogPage) *LogPage {
	if s == nil {
		return shown
	}
	of := *shown
	of.Events = s.Events(shown.Events)
	return &of
}

// Chunk returns the selected part of a piece of state that a ref shows.
func (s *Selection) Chunk(shown *StateChunk) *StateChunk {
	if s == nil {
		return shown
	}
	of := *shown
	of.Entries, of.Turns = shownEntries(s.asked, shown.Entries), shownTurns(s.asked, shown.Turns)
	return &of
}

// Shows reports whether an event, or a part of it, is selected; a mark replaces any other. Its method and key say so.
func (s *Selection) Shows(e *Event) bool { return s == nil || showsEvent(s.asked, e) }

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
// values from before the ref's first visible cursor and those of other keys; of a fork, those of
// other keys and what it says of the sessions; of a purge, hashes of the remainders of events that
// are older or, if the ref shows only some keys, of all; of a revert and a compaction everything. The event's Sum is that of the whole payload,
// with a salt that is not shown either. Where there may be no salt, the Sum is masked.
func (e *Event) redactFor(g *capability.Grant, key *HashKey) *Event {
	if e.Payload == nil {
		return e
	}
	var left []byte
	switch e.Method {
	case MethodFinalize:
		var p FinalizePayload
		err := json.Unmarshal(e.Payload, &p)
		p.Entries, p.Hidden = filterShown(p.Entries, func(in EntryPayload) bool {
			return InScope(g, in.Key) && (g.VisibleFrom <= 1 || in.Since >= g.VisibleFrom)
		})
		if err == nil && p.Hidden == 0 {
			return e
		}
		p.Salt = ""
		left = rawjson.Encode(p)
	case MethodFork:
		if g.ShowsAllKeys() { // one with a first visible cursor is not shown the first event
			return e
		}
		var p CreatePayload
		if json.Unmarshal(e.Payload, &p) != nil {
			p = CreatePayload{}
		}
		entries, _ := filterShown(p.Entries, func(in EntryPayload) bool { return InScope(g, in.Key) })
		left = rawjson.Encode(CreatePayload{Ref: p.Ref, Order: p.Order, Entries: entries})
	case MethodPurge:
		var p PurgePayload
		err := json.Unmarshal(e.Payload, &p)
		p.Events, p.Hidden = filterShown(p.Events, func(note PurgedNote) bool { return note.Cursor >= g.VisibleFrom && g.ShowsAllKeys() })
		if err == nil && p.Hidden == 0 && (p.Left == nil || ShowsAll(g)) {
			return e
		}
		if p.Left != nil {
			p.Left = &PurgedLeft{Hidden: 1}
		}
		p.Salt = ""
		left = rawjson.Encode(p)
	case MethodRevert, MethodUnrevert, MethodSettle, MethodCompact:
		if ShowsAll(g) {
			return e
		}
		left = rawjson.Encode(RevertPayload{Hidden: 1})
	default:
		return e
	}
	cut := *e
	cut.Payload, cut.Redacted, cut.Sum = left, true, key.Mask(g, e.Sum)
	return &cut
}

// filterShown returns the shown elements of a list, and the number of the others.
func filterShown[T any](list []T, shows func(T) bool) (shown []T, hidden int) {
	n := len(list)
	shown = slices.DeleteFunc(list, func(v T) bool { return !shows(v) })
	return shown, n - len(shown)
}

// AttenuatedToKeys reports whether a live capability is for fewer keys than its ref: its holder must
// not see the ref's descendants.
func AttenuatedToKeys(g, narrow *capability.Grant) bool {
	return narrow != nil && g != nil && !narrow.SameKeys(g)
}

// Writes reports whether a ref may write a key.
func Writes(g *capability.Grant, key string) bool {
	return coversMessage(g.Message, key) && capability.CoversKey(g.WriteKeys, key)
}

// WritesAll reports whether a ref's writes are not limited to some keys.
func WritesAll(g *capability.Grant) bool { return g.Message == "" && g.WriteKeys == nil }

// Sight is what a reader is shown of a session's log: readers with equal sights are shown the same
// of every log. The zero value shows all.
type Sight struct{ text string }

// SightOf returns the sight of a reader that has asked for keys, of those that g shows.
func SightOf(g *capability.Grant, keys *Selection) Sight {
	if ShowsAll(g) && keys == nil {
		return Sight{}
	}
	b := strconv.AppendUint(nil, g.VisibleFrom, 10)
	b = appendList(strconv.AppendQuote(b, g.Message), g.ReadKeys)
	if keys != nil {
		b = appendList(b, keys.asked.ReadKeys)
	}
	return Sight{string(b)}
}

// appendList appends a list that may be nil, so that no two lists give the same.
func appendList(b []byte, list []string) []byte {
	if list == nil {
		return append(b, '*')
	}
	b = append(b, '[')
	for _, text := range list {
		b = strconv.AppendQuote(b, text)
	}
	return append(b, ']')
}
