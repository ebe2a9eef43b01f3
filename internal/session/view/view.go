package view

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// View is the rows of a group. It is not safe for concurrent use.
type View struct {
	ctx      context.Context
	tx       session.Tx
	Now      int64
	storeErr error // of the store; ends the group

	readLimit  int // bytes of payloads that one submission may read
	readBytes  int // bytes read by the current submission
	groupBytes int // of the whole group: read, and written as events

	Sessions map[string]*Session
	others   map[string]*session.Row // of refs that reach others, read without a lock
	Below    map[string][]string     // sessions in which refs end → the living sessions below, if such refs may reach them
	Streams  map[session.StreamKey]*Stream
	Grants   map[string]*GrantState
	external map[session.ExternalID]string // → session, "" if free
	revoked  []session.RevokedGrant
	rotated  []session.RotatedGrant
	audit    []*capability.AuditRow

	journal   []journalEntry
	stateSlab []EntryState    // allocated together, partly in use
	entrySlab []session.Entry // as stateSlab
}

// journalEntry is a change in the journal.
type journalEntry struct {
	undo func() // nil for the two frequent kinds below

	// An event: the previous values of the row.
	event   bool
	s       *Session
	head    session.Hash
	updated int64

	// An entry: the previous state of its key.
	key   string
	state *EntryState // nil: there was none
}

// revert undoes the change. All later changes are undone already.
func (j *journalEntry) revert() {
	switch {
	case j.undo != nil:
		j.undo()
	case j.event:
		row := &j.s.Row
		row.Cursor, row.Updated, row.Head = row.Cursor-1, j.updated, j.head
		row.Bytes -= j.s.events[len(j.s.events)-1].Cost()
		j.s.events = j.s.events[:len(j.s.events)-1]
	case j.state != nil:
		j.s.Entries[j.key] = j.state
	default:
		delete(j.s.Entries, j.key)
	}
}

// slabAlloc returns a zero value from a slab, which is allocated for several values of the same
// lifetime.
func slabAlloc[T any](room *[]T) *T {
	if len(*room) == cap(*room) {
		*room = make([]T, 0, min(max(2*cap(*room), 1), maxSlab))
	}
	*room = (*room)[:len(*room)+1]
	return &(*room)[len(*room)-1]
}

// NewEntry returns an entry of the view's slab.
func (v *View) NewEntry() *session.Entry { return slabAlloc(&v.entrySlab) }

// maxSlab is the maximum number of values in a slab: a reference to one retains all.
const maxSlab = 32

// Session is one locked session's part of the view.
type Session struct {
	Row             session.Row
	before          session.Row // as loaded
	events          []*session.Event
	eventSlab       []session.Event   // slab of events; of this session alone, since they outlive the group
	purged          map[uint64][]byte // cursor → remaining payload of a stored event
	Entries         map[string]*EntryState
	turns           map[string]*turnState
	prefixes        []string // key prefixes whose entries are all in entries
	openTurnsLoaded bool     // every open turn is in turns, except orphans
	openCount       *TurnCount
	claims          claimCount
	requests        requestRows
	reverted        map[string]session.RevertedMessage   // by message: rows that settled reverts hid, removed by this group
	settled         map[uint64]map[string]*session.Entry // by Revert.Settled: messages that the group had changed when it settled a revert, as they were then; nil for none
	stored          map[string]*session.Entry            // of a session with such rows: messages as the database has them, nil for none; survives a rollback
	free            map[string]*freeKeys                 // by prefix; of the database, so it survives a rollback
}

// Stream is one stream's rows. It is not journaled: the ledger changes it only when a batch is
// complete.
type Stream struct {
	Row     ledger.Stream
	before  ledger.Stream
	History *ledger.History
	Records []*ledger.Record // decided in this group
}

// EntryState is the known state of one key.
type EntryState struct {
	Entry         *session.Entry // nil: the key has no entry
	hasPayload    bool           // entry.Payload is loaded
	missingDeltas bool           // the database has deltas after entry.Cursor that are not in tail
	tail          []string       // the other deltas after entry.Cursor
	write         WriteMode
	edits         bool // the database has changes of the value apart, or may have (edits.go)
	claimChanged  bool // entry.Claim is to be written
}

// WriteMode is how much of an entry is to be written.
type WriteMode uint8

const (
	writeNone WriteMode = iota
	writeAppended
	WriteInEvent // whole; the payload is that of the event at entry.Cursor
	WriteWhole
	writeEdits // the changes of a value, apart from it
	writeDrop
)

type turnState struct {
	turn  *session.Turn // nil: none was begun
	dirty bool
}

// GrantState is the known state of one ref.
type GrantState struct {
	Grant  *capability.Grant // nil: there is none
	minted bool
	public bool // it has a public id
}

// New returns a view without rows, of which one submission may read limit bytes of payloads.
func New(ctx context.Context, tx session.Tx, limit int) *View {
	return &View{
		ctx: ctx, tx: tx, readLimit: limit,
		Sessions: map[string]*Session{},
		others:   map[string]*session.Row{},
		Below:    map[string][]string{},
		Streams:  map[session.StreamKey]*Stream{},
		Grants:   map[string]*GrantState{},
		external: map[session.ExternalID]string{},
	}
}

// Of returns a view of the rows of a read set that was loaded already.
func Of(ctx context.Context, tx session.Tx, w *session.ReadSet, rows *session.Rows) *View {
	v := New(ctx, tx, 0)
	v.Now = rows.Now
	v.merge(w, rows)
	return v
}

// Err returns the store's error, which ends the group.
func (v *View) Err() error { return v.storeErr }

// Used returns how many bytes the group has read, and written as events.
func (v *View) Used() int { return v.groupBytes }

// Exhausted reports whether the group has used more than one submission may read.
func (v *View) Exhausted() bool { return v.groupBytes > v.readLimit }

// ResetRead begins the count of what the next submission reads.
func (v *View) ResetRead() { v.readBytes = 0 }

// Settle makes all changes final: no later rollback undoes them.
func (v *View) Settle() { v.journal = v.journal[:0] }

// Savepoint is a position in the journal, with the lengths of the append-only lists.
type Savepoint struct {
	journal, revoked, audit int
}

// Savepoint returns the position now.
func (v *View) Savepoint() Savepoint { return Savepoint{len(v.journal), len(v.revoked), len(v.audit)} }

// Rollback undoes all changes since m.
func (v *View) Rollback(m Savepoint) {
	v.revoked, v.audit = v.revoked[:m.revoked], v.audit[:m.audit]
	for i := len(v.journal) - 1; i >= m.journal; i-- {
		v.journal[i].revert()
	}
	clear(v.journal[m.journal:])
	v.journal = v.journal[:m.journal]
}

func (v *View) journalUndo(undo func()) { v.journal = append(v.journal, journalEntry{undo: undo}) }

// ChangeRow returns the row to change, after journaling its old value.
func (v *View) ChangeRow(s *Session) *session.Row {
	old := s.Row
	v.journalUndo(func() { s.Row = old })
	return &s.Row
}

// EntryMeta returns the state of a key without its payload.
func (v *View) EntryMeta(s *Session, key string) (*EntryState, *fault.Error) {
	if slot := s.Entries[key]; slot != nil {
		return slot, nil
	}
	for _, p := range s.prefixes {
		if strings.HasPrefix(key, p) {
			s.fill(key, nil, true)
			return s.Entries[key], nil
		}
	}
	if err := v.loadMissing(&session.ReadSet{EntryMeta: map[string][]string{s.Row.ID: {key}}}); err != nil {
		return nil, err
	}
	return s.Entries[key], nil
}

// Value returns a key's entry with its payload and all its text; nil if there is none.
func (v *View) Value(s *Session, key string) (*session.Entry, *fault.Error) {
	es, err := v.Values(s, []string{key})
	if err != nil {
		return nil, err
	}
	return es[0], nil
}

// scanCost is the cost of scanning an event of the log, as bytes read.
const scanCost = 64

// Values is value for many keys, with one read for all missing values.
func (v *View) Values(s *Session, keys []string) ([]*session.Entry, *fault.Error) {
	var unread []string
	grown := map[string]uint64{}
	for _, key := range keys {
		slot, err := v.EntryMeta(s, key)
		if err != nil {
			return nil, err
		}
		if !slot.hasPayload {
			unread = append(unread, key)
		}
		if slot.missingDeltas {
			grown[key] = slot.Entry.Cursor
		}
	}
	if len(unread)+len(grown) > 0 {
		slices.Sort(unread)
		w := &session.ReadSet{}
		if len(unread) > 0 {
			w.Entries = map[string][]string{s.Row.ID: slices.Compact(unread)}
		}
		if len(grown) > 0 {
			w.Deltas = map[string]map[string]uint64{s.Row.ID: grown}
			oldest := slices.Min(slices.Collect(maps.Values(grown)))
			v.countRead(int(min((s.before.Cursor-oldest)*scanCost, uint64(v.readLimit)))) // all later events are scanned
		}
		if err := v.loadMissing(w); err != nil {
			return nil, err
		}
	}
	out := make([]*session.Entry, len(keys))
	for i, key := range keys {
		slot := s.Entries[key]
		if slot.Entry == nil {
			continue
		}
		e := *slot.Entry
		if len(slot.tail) > 0 {
			e.Payload = session.FoldText(e.Payload, []byte(strings.Join(slot.tail, "")))
			e.Sum = session.SumOf(e.Payload)
		}
		out[i] = &e
	}
	return out, nil
}

// KeysWithPrefix lists the keys that begin with prefix and have an entry, unsorted.
func (v *View) KeysWithPrefix(s *Session, prefix string) ([]string, *fault.Error) {
	covered := false
	for _, p := range s.prefixes {
		covered = covered || strings.HasPrefix(prefix, p)
	}
	if !covered {
		if err := v.loadMissing(&session.ReadSet{Prefixes: map[string][]string{s.Row.ID: {prefix}}}); err != nil {
			return nil, err
		}
	}
	var keys []string
	for key, slot := range s.Entries {
		if slot.Entry != nil && strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// AllEntries returns every entry of a session with its value, by key.
func (v *View) AllEntries(s *Session) ([]session.Entry, *fault.Error) {
	keys, err := v.KeysWithPrefix(s, "")
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	values, err := v.Values(s, keys)
	if err != nil {
		return nil, err
	}
	all := make([]session.Entry, len(values))
	for i, e := range values {
		all[i] = *e
	}
	return all, nil
}

// EventsUpTo returns a session's log from its base to cursor at, this group's events included.
func (v *View) EventsUpTo(s *Session, at uint64) ([]*session.Event, *fault.Error) {
	rows, err := v.LoadBounded(&session.ReadSet{Logs: map[string]uint64{s.Row.ID: at}})
	if err != nil {
		return nil, err
	}
	events := rows.Logs[s.Row.ID]
	for _, e := range events {
		if left, purged := s.purged[e.Cursor]; purged {
			e.Payload = left
		}
	}
	for _, e := range s.events {
		if e.Cursor <= at {
			events = append(events, e)
		}
	}
	return events, nil
}

func (v *View) setEntry(s *Session, key string, slot *EntryState) {
	v.journal = append(v.journal, journalEntry{s: s, key: key, state: s.Entries[key]})
	s.Entries[key] = slot
}

// Put sets a key's value to e, which it keeps: value i of event ev. The previous state of the key
// must be loaded.
func (v *View) Put(s *Session, e *session.Entry, ev *session.Event, i int, write WriteMode) {
	old := s.Entries[e.Key]
	if old != nil && old.Entry != nil {
		e.Ord, e.Claim = old.Entry.Ord, old.Entry.Claim
	} else {
		e.Ord = s.Row.Order.NewOrd(ev, i, e.Key, e.Payload)
		v.replaceReverted(s, e.Key)
	}
	slot := slabAlloc(&v.stateSlab)
	*slot = EntryState{Entry: e, hasPayload: true, write: write}
	if old != nil {
		slot.claimChanged, slot.edits = old.claimChanged, old.edits
	}
	v.setEntry(s, e.Key, slot)
}

// Drop removes a key's entry, which is loaded, and with it its claim: if the key is put again in the
// same group, the stored entry is replaced and not removed.
func (v *View) Drop(s *Session, key string) {
	old := s.Entries[key]
	v.countClaim(s, old.Entry.Claim, -1)
	v.setEntry(s, key, &EntryState{hasPayload: true, write: writeDrop, edits: old.edits, claimChanged: old.claimChanged || old.Entry.Claim != nil})
}

// AppendText adds text to a part's entry.
func (v *View) AppendText(s *Session, key string, slot *EntryState, text string, cursor uint64) {
	e, next := slabAlloc(&v.entrySlab), slabAlloc(&v.stateSlab)
	*e = *slot.Entry
	e.TextLen += uint64(len(text))
	e.LastAppend = cursor
	*next = EntryState{Entry: e, hasPayload: slot.hasPayload, missingDeltas: slot.missingDeltas, tail: append(slot.tail, text), write: slot.write}
	if next.write == writeNone {
		next.write = writeAppended
	}
	v.setEntry(s, key, next)
}

// Turn returns a message's turn; nil if none was begun.
func (v *View) Turn(s *Session, message string) (*session.Turn, *fault.Error) {
	slot := s.turns[message]
	if slot == nil {
		if err := v.loadMissing(&session.ReadSet{TurnsOf: map[string][]string{s.Row.ID: {message}}}); err != nil {
			return nil, err
		}
		slot = s.turns[message]
	}
	return slot.turn, nil
}

// SetTurn replaces a turn, whose message's turn is loaded.
func (v *View) SetTurn(s *Session, t session.Turn) {
	old := s.turns[t.Message] // loaded before a change was decided
	v.journalUndo(func() { s.turns[t.Message], s.openCount = old, nil })
	s.turns[t.Message] = &turnState{turn: &t, dirty: true}
	if s.openCount != nil {
		v.countTurn(s, old.turn, -1)
		v.countTurn(s, &t, 1)
	}
}

// OpenTurns returns the open turns of an outbox, by message; of all outboxes if it is "". It
// includes orphans only if they were loaded for another reason.
func (v *View) OpenTurns(s *Session, outbox string) ([]*session.Turn, *fault.Error) {
	if !s.openTurnsLoaded {
		if err := v.loadMissing(&session.ReadSet{Turns: []string{s.Row.ID}}); err != nil {
			return nil, err
		}
	}
	return v.LoadedTurns(s, outbox), nil
}

// AllOpenTurns returns the open turns, orphans too.
func (v *View) AllOpenTurns(s *Session) ([]*session.Turn, *fault.Error) {
	id := s.Row.ID
	w := &session.ReadSet{OpenOrphans: []string{id}}
	if !s.openTurnsLoaded {
		w.Turns = w.OpenOrphans
	}
	rows, err := v.LoadBounded(w)
	if err != nil {
		return nil, err
	}
	orphans := 0
	for _, t := range rows.Turns[id] {
		if t.Orphan {
			orphans++
		}
	}
	if orphans >= session.MaxOrphans {
		return nil, fault.TooLarge.With("%d turns of dead refs are open, the maximum that is ended at once: abort them first (mooring session abort-turns)", orphans)
	}
	if v.storeErr = v.merge(w, rows); v.storeErr != nil {
		return nil, v.errStore()
	}
	return v.LoadedTurns(s, ""), nil
}

// LoadedTurns is openTurns for a session whose open turns are loaded.
func (v *View) LoadedTurns(s *Session, outbox string) []*session.Turn {
	var open []*session.Turn
	for _, slot := range s.turns {
		if t := slot.turn; t != nil && t.Status.Open() && (outbox == "" || t.Outbox == outbox) {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b *session.Turn) int { return strings.Compare(a.Message, b.Message) })
	return open
}

// DropState removes a deleted session's entries and turns from the view.
func (v *View) DropState(s *Session) {
	entries, turns, requests := s.Entries, s.turns, s.requests
	v.journalUndo(func() { s.Entries, s.turns, s.openCount, s.requests = entries, turns, nil, requests })
	s.requests = requestRows{open: map[string]*session.OpenRequest{}}
	s.Entries, s.turns, s.openCount = map[string]*EntryState{}, map[string]*turnState{}, nil
}
