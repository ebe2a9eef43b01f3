package session

// The view: the rows that a group of batches was loaded with, and over them
// what the group has decided so far. Ops read and change the view alone; what
// is changed is written at the end (changes.go). Every change is journaled, so
// that an atomic batch can be taken back to its mark.
//
// Slots are values that are replaced and never changed, so that the journal
// need only keep the old one. Only what is read from the store later (a payload
// that was not wanted at first) is filled into a slot in place: that is a fact
// about the rows and outlives an undo.

import (
	"context"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// view is not safe for concurrent use.
type view struct {
	ctx  context.Context
	tx   Tx
	now  int64
	fail error // of the store; ends the group

	sessions map[string]*sessionView
	streams  map[StreamKey]*streamView
	grants   map[string]*grantSlot
	external map[string]map[string]string // space → external id → session, "" if free
	revoked  []RevokedGrant
	audit    []*capability.AuditRow

	journal []func()
}

// sessionView is one locked session's part of the view.
type sessionView struct {
	row      Row
	before   Row // as loaded
	events   []*Event
	entries  map[string]*entrySlot
	turns    map[string]*turnSlot
	prefixes []string // key prefixes of which every entry is in entries
	open     bool     // every open turn is in turns
}

// streamView is one stream's rows. It is not journaled: the ledger changes it
// only once a batch is through.
type streamView struct {
	row     ledger.Stream
	before  ledger.Stream
	history *ledger.History
	records []*ledger.Record // decided in this group
}

// entrySlot is what is known of one key.
type entrySlot struct {
	entry  *Entry   // nil: there is none
	full   bool     // entry.Payload is there
	behind bool     // the database holds deltas after entry.Cursor that are not in tail
	tail   []string // deltas after entry.Cursor, but for those
	write  writing
}

// writing is how much of a slot is to be written.
type writing uint8

const (
	writeNot writing = iota
	writeGrown
	writeByEvent // whole; the payload is that of the event at entry.Cursor
	writeWhole
	writeDrop
)

type turnSlot struct {
	turn  *Turn // nil: none was begun
	dirty bool
}

type grantSlot struct {
	grant  *capability.Grant // nil: there is none
	minted bool
}

func newView(ctx context.Context, tx Tx) *view {
	return &view{
		ctx: ctx, tx: tx,
		sessions: map[string]*sessionView{},
		streams:  map[StreamKey]*streamView{},
		grants:   map[string]*grantSlot{},
		external: map[string]map[string]string{},
	}
}

// load reads from the store and takes what was found into the view. first says
// that this is the load that locks.
func (v *view) load(w *Want, first bool) error {
	rows, err := v.tx.Load(v.ctx, w)
	if err != nil {
		return err
	}
	if first {
		v.now = rows.Now
	}
	v.take(w, rows)
	return nil
}

// need is load for an op that found something missing: the store's error ends the group.
func (v *view) need(w *Want) *fault.Error {
	if v.fail == nil {
		v.fail = v.load(w, false)
	}
	if v.fail != nil {
		return fault.Internal.Because(v.fail, "the rows of an op could not be read")
	}
	return nil
}

// take fills in what rows say of everything in w that is not known yet.
func (v *view) take(w *Want, rows *Rows) {
	for _, id := range w.Sessions {
		row := rows.Sessions[id]
		if row == nil {
			row = &Row{ID: id}
		}
		if v.sessions[id] == nil {
			v.sessions[id] = &sessionView{row: *row, before: *row, entries: map[string]*entrySlot{}, turns: map[string]*turnSlot{}}
		}
	}
	for _, k := range w.Streams {
		if st := rows.Streams[k]; st != nil && v.streams[k] == nil {
			v.streams[k] = &streamView{row: *st, before: *st, history: ledger.NewHistory(nil)}
		}
	}
	for _, r := range w.Records {
		if sv := v.streams[r.Stream]; sv != nil {
			for _, rec := range rows.Records[r.Stream] {
				sv.history.Add(rec)
			}
		}
	}
	for _, ids := range [][]string{w.Grants, w.Lineages} {
		for _, id := range ids {
			if v.grants[id] == nil {
				v.grants[id] = &grantSlot{grant: rows.Grants[id]}
			}
		}
	}
	for id, g := range rows.Grants { // ancestors
		if v.grants[id] == nil {
			v.grants[id] = &grantSlot{grant: g}
		}
	}
	for space, ids := range w.External {
		if v.external[space] == nil {
			v.external[space] = map[string]string{}
		}
		for _, x := range ids {
			if _, known := v.external[space][x]; !known {
				v.external[space][x] = rows.External[space][x]
			}
		}
	}
	for id, s := range v.sessions {
		s.take(w, id, rows)
	}
}

func (s *sessionView) take(w *Want, id string, rows *Rows) {
	found := rows.Entries[id]
	for _, key := range w.Heads[id] {
		s.know(key, found[key], false)
	}
	for _, key := range w.Entries[id] {
		s.know(key, found[key], true)
	}
	for _, p := range w.Prefixes[id] {
		for key, e := range found {
			if strings.HasPrefix(key, p) {
				s.know(key, e, true)
			}
		}
		s.prefixes = append(s.prefixes, p)
	}
	for key := range w.Deltas[id] {
		slot := s.entries[key]
		if slot != nil && slot.behind {
			tail := make([]string, 0, len(slot.tail)+1)
			slot.tail = append(append(tail, string(rows.Deltas[id][key])), slot.tail...)
			slot.behind = false
		}
	}
	turns := rows.Turns[id]
	for _, m := range w.TurnsOf[id] {
		if s.turns[m] == nil {
			s.turns[m] = &turnSlot{turn: turns[m]}
		}
	}
	for _, t := range w.Turns {
		if t != id {
			continue
		}
		for m, turn := range turns {
			if s.turns[m] == nil {
				s.turns[m] = &turnSlot{turn: turn}
			}
		}
		s.open = true
	}
}

// know takes a loaded entry in, unless the slot knows as much already.
func (s *sessionView) know(key string, e *Entry, full bool) {
	slot := s.entries[key]
	if slot == nil {
		full = full || e == nil
		s.entries[key] = &entrySlot{entry: e, full: full, behind: e != nil && e.Grown != 0}
		return
	}
	if full && !slot.full && slot.entry != nil && e != nil && e.Cursor == slot.entry.Cursor {
		filled := *slot.entry // it may be shared with a slot in the journal, which stays as it is
		filled.Payload = e.Payload
		slot.entry, slot.full = &filled, true
	}
}

// mark is a place in the journal, with the lengths of the lists that only grow.
type mark struct {
	journal, revoked, audit int
}

func (v *view) mark() mark { return mark{len(v.journal), len(v.revoked), len(v.audit)} }

// undo takes everything back that was changed since m.
func (v *view) undo(m mark) {
	for i := len(v.journal) - 1; i >= m.journal; i-- {
		v.journal[i]()
	}
	clear(v.journal[m.journal:])
	v.journal = v.journal[:m.journal]
	v.revoked, v.audit = v.revoked[:m.revoked], v.audit[:m.audit]
}

func (v *view) log(undo func()) { v.journal = append(v.journal, undo) }

// changeRow gives the row to change, remembering it as it was.
func (v *view) changeRow(s *sessionView) *Row {
	old := s.row
	v.log(func() { s.row = old })
	return &s.row
}

// head is what is known of a key without its payload.
func (v *view) head(s *sessionView, key string) (*entrySlot, *fault.Error) {
	if slot := s.entries[key]; slot != nil {
		return slot, nil
	}
	for _, p := range s.prefixes {
		if strings.HasPrefix(key, p) {
			s.know(key, nil, true)
			return s.entries[key], nil
		}
	}
	if err := v.need(&Want{Heads: map[string][]string{s.row.ID: {key}}}); err != nil {
		return nil, err
	}
	return s.entries[key], nil
}

// value is a key's entry with its payload and all its text; nil if there is none.
func (v *view) value(s *sessionView, key string) (*Entry, *fault.Error) {
	es, err := v.values(s, []string{key})
	if err != nil {
		return nil, err
	}
	return es[0], nil
}

// values is value for many keys, reading what is missing at once.
func (v *view) values(s *sessionView, keys []string) ([]*Entry, *fault.Error) {
	var unread []string
	grown := map[string]uint64{}
	for _, key := range keys {
		slot, err := v.head(s, key)
		if err != nil {
			return nil, err
		}
		if !slot.full {
			unread = append(unread, key)
		}
		if slot.behind {
			grown[key] = slot.entry.Cursor
		}
	}
	if len(unread)+len(grown) > 0 {
		slices.Sort(unread)
		w := &Want{}
		if len(unread) > 0 {
			w.Entries = map[string][]string{s.row.ID: slices.Compact(unread)}
		}
		if len(grown) > 0 {
			w.Deltas = map[string]map[string]uint64{s.row.ID: grown}
		}
		if err := v.need(w); err != nil {
			return nil, err
		}
	}
	out := make([]*Entry, len(keys))
	for i, key := range keys {
		slot := s.entries[key]
		if slot.entry == nil {
			continue
		}
		e := *slot.entry
		if len(slot.tail) > 0 {
			e.Payload = FoldText(e.Payload, []byte(strings.Join(slot.tail, "")))
			e.Sum = SumOf(e.Payload)
		}
		out[i] = &e
	}
	return out, nil
}

// below lists the keys that begin with prefix and have an entry, unsorted.
func (v *view) below(s *sessionView, prefix string) ([]string, *fault.Error) {
	covered := false
	for _, p := range s.prefixes {
		covered = covered || strings.HasPrefix(prefix, p)
	}
	if !covered {
		if err := v.need(&Want{Prefixes: map[string][]string{s.row.ID: {prefix}}}); err != nil {
			return nil, err
		}
	}
	var keys []string
	for key, slot := range s.entries {
		if slot.entry != nil && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// whole is every entry of a session with its value, by key.
func (v *view) whole(s *sessionView) ([]Entry, *fault.Error) {
	keys, err := v.below(s, "")
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	values, err := v.values(s, keys)
	if err != nil {
		return nil, err
	}
	all := make([]Entry, len(values))
	for i, e := range values {
		all[i] = *e
	}
	return all, nil
}

// eventsUpTo is a session's log from its base to cursor at, with the events of this group.
func (v *view) eventsUpTo(s *sessionView, at uint64) ([]*Event, *fault.Error) {
	if v.fail == nil {
		rows, err := v.tx.Load(v.ctx, &Want{Logs: map[string]uint64{s.row.ID: at}})
		if err == nil {
			events := rows.Logs[s.row.ID]
			for _, e := range s.events {
				if e.Cursor <= at {
					events = append(events, e)
				}
			}
			return events, nil
		}
		v.fail = err
	}
	return nil, fault.Internal.Because(v.fail, "a session's log could not be read")
}

func (v *view) setEntry(s *sessionView, key string, slot *entrySlot) {
	old, known := s.entries[key]
	v.log(func() {
		if known {
			s.entries[key] = old
		} else {
			delete(s.entries, key)
		}
	})
	s.entries[key] = slot
}

// put sets a key's value. inEvent says that the payload is that of the event at e.Cursor.
func (v *view) put(s *sessionView, e Entry, inEvent bool) {
	slot := &entrySlot{entry: &e, full: true, write: writeWhole}
	if inEvent {
		slot.write = writeByEvent
	}
	v.setEntry(s, e.Key, slot)
}

func (v *view) drop(s *sessionView, key string) {
	v.setEntry(s, key, &entrySlot{full: true, write: writeDrop})
}

// grow adds text to a part's entry.
func (v *view) grow(s *sessionView, key string, slot *entrySlot, text string, cursor uint64) {
	e := *slot.entry
	e.TextLen += uint64(len(text))
	e.Grown = cursor
	next := &entrySlot{entry: &e, full: slot.full, behind: slot.behind, tail: append(slot.tail, text), write: slot.write}
	if next.write == writeNot {
		next.write = writeGrown
	}
	v.setEntry(s, key, next)
}

// turn is a message's turn; nil if none was begun.
func (v *view) turn(s *sessionView, message string) (*Turn, *fault.Error) {
	slot := s.turns[message]
	if slot == nil {
		if err := v.need(&Want{TurnsOf: map[string][]string{s.row.ID: {message}}}); err != nil {
			return nil, err
		}
		slot = s.turns[message]
	}
	return slot.turn, nil
}

func (v *view) setTurn(s *sessionView, t Turn) {
	old, known := s.turns[t.Message]
	v.log(func() {
		if known {
			s.turns[t.Message] = old
		} else {
			delete(s.turns, t.Message)
		}
	})
	s.turns[t.Message] = &turnSlot{turn: &t, dirty: true}
}

// openTurns are the turns of an outbox that have not ended, by message; of all outboxes if it is "".
func (v *view) openTurns(s *sessionView, outbox string) ([]*Turn, *fault.Error) {
	if !s.open {
		if err := v.need(&Want{Turns: []string{s.row.ID}}); err != nil {
			return nil, err
		}
	}
	return v.knownTurns(s, outbox), nil
}

// knownTurns is openTurns of a session whose open turns were loaded.
func (v *view) knownTurns(s *sessionView, outbox string) []*Turn {
	var open []*Turn
	for _, slot := range s.turns {
		if t := slot.turn; t != nil && t.Status.Open() && (outbox == "" || t.Outbox == outbox) {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b *Turn) int { return strings.Compare(a.Message, b.Message) })
	return open
}

// grant is a ref's row; nil if there is none.
func (v *view) grant(id string) (*capability.Grant, *fault.Error) {
	if slot := v.grants[id]; slot != nil {
		return slot.grant, nil
	}
	if err := v.need(&Want{Lineages: []string{id}}); err != nil {
		return nil, err
	}
	for _, r := range v.revoked { // what the store read is from before this group
		if err := v.kill(r); err != nil {
			return nil, err
		}
	}
	return v.grants[id].grant, nil
}

func (v *view) setGrant(id string, slot *grantSlot) {
	old := v.grants[id]
	v.log(func() { v.grants[id] = old })
	v.grants[id] = slot
}

// externalOf is the session that has an external id in a space, "" if it is free.
func (v *view) externalOf(space, external string) (string, *fault.Error) {
	if _, known := v.external[space][external]; !known {
		// The space was locked when the group was loaded, or this is wrong: see wants.
		return "", fault.Internal.With("the external id was not asked for")
	}
	return v.external[space][external], nil
}

func (v *view) claimExternal(space, external, session string) {
	v.log(func() { v.external[space][external] = "" })
	v.external[space][external] = session
}

// forget drops a deleted session's entries and turns from the view.
func (v *view) forget(s *sessionView) {
	entries, turns := s.entries, s.turns
	v.log(func() { s.entries, s.turns = entries, turns })
	s.entries, s.turns = map[string]*entrySlot{}, map[string]*turnSlot{}
}

// mint adds a new ref.
func (v *view) mint(g *capability.Grant) { v.setGrant(g.ID, &grantSlot{grant: g, minted: true}) }

// descends says whether the ref id is ancestor or below it.
func (v *view) descends(id, ancestor string) (bool, *fault.Error) {
	for id != "" {
		if id == ancestor {
			return true, nil
		}
		if v.grants[id] == nil {
			if err := v.need(&Want{Lineages: []string{id}}); err != nil {
				return false, err
			}
		}
		g := v.grants[id].grant
		if g == nil {
			return false, nil
		}
		id = g.Parent
	}
	return false, nil
}

// revoke marks a ref dead with all below it that the view knows; the rest of
// its subtree dies in the one statement that r becomes.
func (v *view) revoke(r RevokedGrant) *fault.Error {
	if err := v.kill(r); err != nil {
		return err
	}
	v.revoked = append(v.revoked, r)
	return nil
}

func (v *view) kill(r RevokedGrant) *fault.Error {
	var dead []string
	for known := -1; known != len(v.grants); { // descends may read ancestors in
		known = len(v.grants)
		dead = dead[:0]
		for id, slot := range v.grants {
			if slot == nil || slot.grant == nil || slot.grant.Revoked != 0 {
				continue
			}
			under, err := v.descends(id, r.ID)
			if err != nil {
				return err
			}
			if under {
				dead = append(dead, id)
			}
		}
	}
	for _, id := range dead {
		slot := v.grants[id]
		g := *slot.grant
		g.Revoked, g.RevokeBy, g.Cut = r.At, r.By, r.Cut
		v.setGrant(id, &grantSlot{grant: &g, minted: slot.minted})
	}
	return nil
}
