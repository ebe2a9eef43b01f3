package decide

// The view: the rows that a group of batches has loaded, with the group's changes so far over them.
// Ops read and change the view alone; changed rows are written at the end (changes.go). Every
// change is journaled, so that an atomic batch can be rolled back to its savepoint.
//
// States of keys, turns and refs are replaced and never modified, so the journal only keeps the old
// one. The exception is a value read from the store later (a payload that was not loaded at first):
// it is stored in place, since it is a fact about the rows and survives a rollback.

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

// view is not safe for concurrent use.
type view struct {
	ctx      context.Context
	tx       session.Tx
	now      int64
	storeErr error // of the store; ends the group

	readLimit  int // bytes of payloads that one submission may read
	readBytes  int // bytes read by the current submission
	groupBytes int // of the whole group: read, and written as events

	sessions    map[string]*sessionView
	others      map[string]*session.Row // of refs that reach others, read without a lock
	below       map[string][]string     // sessions in which refs end → the living sessions below, if such refs may reach them
	streams     map[session.StreamKey]*streamView
	grants      map[string]*grantState
	external    map[session.ExternalID]string // → session, "" if free
	revoked     []session.RevokedGrant
	rotated     []session.RotatedGrant
	audit       []*capability.AuditRow
	divergedNow map[*Opening]*fault.Error // openings of copied outboxes, found in this group

	journal   []journalEntry
	stateSlab []entryState    // allocated together, partly in use
	entrySlab []session.Entry // as stateSlab
}

// journalEntry is a change in the journal.
type journalEntry struct {
	undo func() // nil for the two frequent kinds below

	// An event: the previous values of the row.
	event   bool
	s       *sessionView
	head    session.Hash
	updated int64

	// An entry: the previous state of its key.
	key   string
	state *entryState // nil: there was none
}

// revert undoes the change. All later changes are undone already.
func (j *journalEntry) revert() {
	switch {
	case j.undo != nil:
		j.undo()
	case j.event:
		row := &j.s.row
		row.Cursor, row.Updated, row.Head = row.Cursor-1, j.updated, j.head
		row.Bytes -= j.s.events[len(j.s.events)-1].Cost()
		j.s.events = j.s.events[:len(j.s.events)-1]
	case j.state != nil:
		j.s.entries[j.key] = j.state
	default:
		delete(j.s.entries, j.key)
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

// maxSlab is the maximum number of values in a slab: a reference to one retains all.
const maxSlab = 32

// sessionView is one locked session's part of the view.
type sessionView struct {
	row             session.Row
	before          session.Row // as loaded
	events          []*session.Event
	eventSlab       []session.Event   // slab of events; of this session alone, since they outlive the group
	purged          map[uint64][]byte // cursor → remaining payload of a stored event
	entries         map[string]*entryState
	turns           map[string]*turnState
	prefixes        []string // key prefixes whose entries are all in entries
	openTurnsLoaded bool     // every open turn is in turns, except orphans
	openCount       *turnCount
	claims          claimCount
	requests        requestRows
	reverted        map[string]session.RevertedMessage   // by message: rows that settled reverts hid, removed by this group
	settled         map[uint64]map[string]*session.Entry // by Revert.Settled: messages that the group had changed when it settled a revert, as they were then; nil for none
	stored          map[string]*session.Entry            // of a session with such rows: messages as the database has them, nil for none; survives a rollback
	free            map[string]*freeKeys                 // by prefix; of the database, so it survives a rollback
}

// streamView is one stream's rows. It is not journaled: the ledger changes it only when a batch is
// complete.
type streamView struct {
	row     ledger.Stream
	before  ledger.Stream
	history *ledger.History
	records []*ledger.Record // decided in this group
}

// entryState is the known state of one key.
type entryState struct {
	entry         *session.Entry // nil: the key has no entry
	hasPayload    bool           // entry.Payload is loaded
	missingDeltas bool           // the database has deltas after entry.Cursor that are not in tail
	tail          []string       // the other deltas after entry.Cursor
	write         writeMode
	edits         bool // the database has changes of the value apart, or may have (edits.go)
	claimChanged  bool // entry.Claim is to be written
}

// writeMode is how much of an entry is to be written.
type writeMode uint8

const (
	writeNone writeMode = iota
	writeAppended
	writeInEvent // whole; the payload is that of the event at entry.Cursor
	writeWhole
	writeEdits // the changes of a value, apart from it
	writeDrop
)

type turnState struct {
	turn  *session.Turn // nil: none was begun
	dirty bool
}

type grantState struct {
	grant  *capability.Grant // nil: there is none
	minted bool
	public bool // it has a public id
}

func newView(ctx context.Context, tx session.Tx, limit int) *view {
	return &view{
		ctx: ctx, tx: tx, readLimit: limit,
		sessions: map[string]*sessionView{},
		others:   map[string]*session.Row{},
		below:    map[string][]string{},
		streams:  map[session.StreamKey]*streamView{},
		grants:   map[string]*grantState{},
		external: map[session.ExternalID]string{},
	}
}

// diverged returns the answer to everything over a diverged opening; nil for other openings.
func (v *view) diverged(o *Opening) *fault.Error {
	if o == nil {
		return nil
	}
	if err := o.diverged.Load(); err != nil {
		return err
	}
	return v.divergedNow[o]
}

// noteDiverged records that answer for later submissions of this group.
func (v *view) noteDiverged(o *Opening, err *fault.Error) {
	if o == nil || err.Code != fault.OutboxDiverged {
		return
	}
	if v.divergedNow == nil {
		v.divergedNow = map[*Opening]*fault.Error{}
	}
	v.divergedNow[o] = err
}

// savepoint is a position in the journal, with the lengths of the append-only lists.
type savepoint struct {
	journal, revoked, audit int
}

func (v *view) savepoint() savepoint { return savepoint{len(v.journal), len(v.revoked), len(v.audit)} }

// rollback undoes all changes since m.
func (v *view) rollback(m savepoint) {
	v.revoked, v.audit = v.revoked[:m.revoked], v.audit[:m.audit]
	for i := len(v.journal) - 1; i >= m.journal; i-- {
		v.journal[i].revert()
	}
	clear(v.journal[m.journal:])
	v.journal = v.journal[:m.journal]
}

func (v *view) journalUndo(undo func()) { v.journal = append(v.journal, journalEntry{undo: undo}) }

// changeRow returns the row to change, after journaling its old value.
func (v *view) changeRow(s *sessionView) *session.Row {
	old := s.row
	v.journalUndo(func() { s.row = old })
	return &s.row
}

// entryMeta returns the state of a key without its payload.
func (v *view) entryMeta(s *sessionView, key string) (*entryState, *fault.Error) {
	if slot := s.entries[key]; slot != nil {
		return slot, nil
	}
	for _, p := range s.prefixes {
		if strings.HasPrefix(key, p) {
			s.fill(key, nil, true)
			return s.entries[key], nil
		}
	}
	if err := v.loadMissing(&session.ReadSet{EntryMeta: map[string][]string{s.row.ID: {key}}}); err != nil {
		return nil, err
	}
	return s.entries[key], nil
}

// value returns a key's entry with its payload and all its text; nil if there is none.
func (v *view) value(s *sessionView, key string) (*session.Entry, *fault.Error) {
	es, err := v.values(s, []string{key})
	if err != nil {
		return nil, err
	}
	return es[0], nil
}

// scanCost is the cost of scanning an event of the log, as bytes read.
const scanCost = 64

// values is value for many keys, with one read for all missing values.
func (v *view) values(s *sessionView, keys []string) ([]*session.Entry, *fault.Error) {
	var unread []string
	grown := map[string]uint64{}
	for _, key := range keys {
		slot, err := v.entryMeta(s, key)
		if err != nil {
			return nil, err
		}
		if !slot.hasPayload {
			unread = append(unread, key)
		}
		if slot.missingDeltas {
			grown[key] = slot.entry.Cursor
		}
	}
	if len(unread)+len(grown) > 0 {
		slices.Sort(unread)
		w := &session.ReadSet{}
		if len(unread) > 0 {
			w.Entries = map[string][]string{s.row.ID: slices.Compact(unread)}
		}
		if len(grown) > 0 {
			w.Deltas = map[string]map[string]uint64{s.row.ID: grown}
			oldest := slices.Min(slices.Collect(maps.Values(grown)))
			v.countRead(int(min((s.before.Cursor-oldest)*scanCost, uint64(v.readLimit)))) // all later events are scanned
		}
		if err := v.loadMissing(w); err != nil {
			return nil, err
		}
	}
	out := make([]*session.Entry, len(keys))
	for i, key := range keys {
		slot := s.entries[key]
		if slot.entry == nil {
			continue
		}
		e := *slot.entry
		if len(slot.tail) > 0 {
			e.Payload = session.FoldText(e.Payload, []byte(strings.Join(slot.tail, "")))
			e.Sum = session.SumOf(e.Payload)
		}
		out[i] = &e
	}
	return out, nil
}

// keysWithPrefix lists the keys that begin with prefix and have an entry, unsorted.
func (v *view) keysWithPrefix(s *sessionView, prefix string) ([]string, *fault.Error) {
	covered := false
	for _, p := range s.prefixes {
		covered = covered || strings.HasPrefix(prefix, p)
	}
	if !covered {
		if err := v.loadMissing(&session.ReadSet{Prefixes: map[string][]string{s.row.ID: {prefix}}}); err != nil {
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

// allEntries returns every entry of a session with its value, by key.
func (v *view) allEntries(s *sessionView) ([]session.Entry, *fault.Error) {
	keys, err := v.keysWithPrefix(s, "")
	if err != nil {
		return nil, err
	}
	slices.Sort(keys)
	values, err := v.values(s, keys)
	if err != nil {
		return nil, err
	}
	all := make([]session.Entry, len(values))
	for i, e := range values {
		all[i] = *e
	}
	return all, nil
}

// eventsUpTo returns a session's log from its base to cursor at, this group's events included.
func (v *view) eventsUpTo(s *sessionView, at uint64) ([]*session.Event, *fault.Error) {
	rows, err := v.loadBounded(&session.ReadSet{Logs: map[string]uint64{s.row.ID: at}})
	if err != nil {
		return nil, err
	}
	events := rows.Logs[s.row.ID]
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

func (v *view) setEntry(s *sessionView, key string, slot *entryState) {
	v.journal = append(v.journal, journalEntry{s: s, key: key, state: s.entries[key]})
	s.entries[key] = slot
}

// put sets a key's value to e, which it keeps: value i of event ev. The previous state of the key
// must be loaded.
func (v *view) put(s *sessionView, e *session.Entry, ev *session.Event, i int, write writeMode) {
	old := s.entries[e.Key]
	if old != nil && old.entry != nil {
		e.Ord, e.Claim = old.entry.Ord, old.entry.Claim
	} else {
		e.Ord = s.row.Order.NewOrd(ev, i, e.Key, e.Payload)
		v.replaceReverted(s, e.Key)
	}
	slot := slabAlloc(&v.stateSlab)
	*slot = entryState{entry: e, hasPayload: true, write: write}
	if old != nil {
		slot.claimChanged, slot.edits = old.claimChanged, old.edits
	}
	v.setEntry(s, e.Key, slot)
}

// drop removes a key's entry, which is loaded, and with it its claim: if the key is put again in the
// same group, the stored entry is replaced and not removed.
func (v *view) drop(s *sessionView, key string) {
	old := s.entries[key]
	v.countClaim(s, old.entry.Claim, -1)
	v.setEntry(s, key, &entryState{hasPayload: true, write: writeDrop, edits: old.edits, claimChanged: old.claimChanged || old.entry.Claim != nil})
}

// appendText adds text to a part's entry.
func (v *view) appendText(s *sessionView, key string, slot *entryState, text string, cursor uint64) {
	e, next := slabAlloc(&v.entrySlab), slabAlloc(&v.stateSlab)
	*e = *slot.entry
	e.TextLen += uint64(len(text))
	e.LastAppend = cursor
	*next = entryState{entry: e, hasPayload: slot.hasPayload, missingDeltas: slot.missingDeltas, tail: append(slot.tail, text), write: slot.write}
	if next.write == writeNone {
		next.write = writeAppended
	}
	v.setEntry(s, key, next)
}

// turn returns a message's turn; nil if none was begun.
func (v *view) turn(s *sessionView, message string) (*session.Turn, *fault.Error) {
	slot := s.turns[message]
	if slot == nil {
		if err := v.loadMissing(&session.ReadSet{TurnsOf: map[string][]string{s.row.ID: {message}}}); err != nil {
			return nil, err
		}
		slot = s.turns[message]
	}
	return slot.turn, nil
}

func (v *view) setTurn(s *sessionView, t session.Turn) {
	old := s.turns[t.Message] // loaded before a change was decided
	v.journalUndo(func() { s.turns[t.Message], s.openCount = old, nil })
	s.turns[t.Message] = &turnState{turn: &t, dirty: true}
	if s.openCount != nil {
		v.countTurn(s, old.turn, -1)
		v.countTurn(s, &t, 1)
	}
}

// openTurns returns the open turns of an outbox, by message; of all outboxes if it is "". It
// includes orphans only if they were loaded for another reason.
func (v *view) openTurns(s *sessionView, outbox string) ([]*session.Turn, *fault.Error) {
	if !s.openTurnsLoaded {
		if err := v.loadMissing(&session.ReadSet{Turns: []string{s.row.ID}}); err != nil {
			return nil, err
		}
	}
	return v.loadedTurns(s, outbox), nil
}

// allOpenTurns returns the open turns, orphans too.
func (v *view) allOpenTurns(s *sessionView) ([]*session.Turn, *fault.Error) {
	id := s.row.ID
	w := &session.ReadSet{OpenOrphans: []string{id}}
	if !s.openTurnsLoaded {
		w.Turns = w.OpenOrphans
	}
	rows, err := v.loadBounded(w)
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
	return v.loadedTurns(s, ""), nil
}

// loadedTurns is openTurns for a session whose open turns are loaded.
func (v *view) loadedTurns(s *sessionView, outbox string) []*session.Turn {
	var open []*session.Turn
	for _, slot := range s.turns {
		if t := slot.turn; t != nil && t.Status.Open() && (outbox == "" || t.Outbox == outbox) {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b *session.Turn) int { return strings.Compare(a.Message, b.Message) })
	return open
}

// dropState removes a deleted session's entries and turns from the view.
func (v *view) dropState(s *sessionView) {
	entries, turns, requests := s.entries, s.turns, s.requests
	v.journalUndo(func() { s.entries, s.turns, s.openCount, s.requests = entries, turns, nil, requests })
	s.requests = requestRows{open: map[string]*session.OpenRequest{}}
	s.entries, s.turns, s.openCount = map[string]*entryState{}, map[string]*turnState{}, nil
}
