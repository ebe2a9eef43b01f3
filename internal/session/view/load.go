package view

// Loading rows into the view. A loaded row never replaces one that the view has already, and may
// have changed.

import (
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Load reads from the store and merges the result into the view. first marks the load that locks.
func (v *View) Load(w *session.ReadSet, first bool) error {
	rows, err := v.tx.Load(v.ctx, w)
	if err != nil {
		return err
	}
	if first {
		v.Now = rows.Now
	}
	return v.merge(w, rows)
}

// loadMissing is load for an op that needs further rows.
func (v *View) loadMissing(w *session.ReadSet) *fault.Error {
	rows, err := v.LoadBounded(w)
	if err != nil {
		return err
	}
	if v.storeErr = v.merge(w, rows); v.storeErr != nil {
		return v.errStore()
	}
	return nil
}

// LoadBounded reads for an op: more than one submission may read is TooLarge, an error of the store
// ends the group. A submission that has exceeded the limit reads no more payloads.
func (v *View) LoadBounded(w *session.ReadSet) (*session.Rows, *fault.Error) {
	w.MaxBytes = max(v.readLimit-v.readBytes, 1)
	if v.storeErr == nil && v.readBytes >= v.readLimit && readsPayloads(w) {
		return nil, v.errReadLimit()
	}
	if v.storeErr == nil {
		var rows *session.Rows
		if rows, v.storeErr = v.tx.Load(v.ctx, w); v.storeErr == nil {
			v.countRead(rows.Bytes)
			if rows.Bytes > w.MaxBytes {
				return nil, v.errReadLimit()
			}
			return rows, nil
		}
	}
	return nil, v.errStore()
}

func (v *View) errStore() *fault.Error {
	return fault.Internal.Because(v.storeErr, "the rows of an op could not be read")
}

// countRead adds to the bytes read.
func (v *View) countRead(bytes int) {
	v.readBytes += bytes
	v.groupBytes += bytes
}

func (v *View) errReadLimit() *fault.Error {
	return fault.TooLarge.With("this needs more than %d bytes of payloads in memory, the limit: put or remove some of it first, or commit smaller batches", v.readLimit)
}

// readsPayloads reports whether w reads payloads, and not only other rows.
func readsPayloads(w *session.ReadSet) bool {
	return len(w.Entries)+len(w.Prefixes)+len(w.Deltas)+len(w.Logs)+len(w.PayloadEvents) > 0
}

// merge adds to the view the rows of everything in w that it does not have yet.
func (v *View) merge(w *session.ReadSet, rows *session.Rows) error {
	for _, id := range w.Sessions {
		row := rows.Sessions[id]
		if row == nil {
			row = &session.Row{ID: id}
		}
		if v.Sessions[id] == nil {
			v.Sessions[id] = &Session{Row: *row, before: *row, purged: map[uint64][]byte{}, Entries: map[string]*EntryState{}, turns: map[string]*turnState{}}
		}
	}
	for _, id := range w.Others {
		if v.others[id] == nil && rows.Others[id] != nil {
			v.others[id] = rows.Others[id]
		}
	}
	maps.Copy(v.Below, rows.Below)
	for _, k := range w.Streams {
		if st := rows.Streams[k]; st != nil && v.Streams[k] == nil {
			v.Streams[k] = &Stream{Row: *st, before: *st, History: ledger.NewHistory(nil)}
		}
	}
	for _, r := range w.Records {
		if sv := v.Streams[r.Stream]; sv != nil {
			for _, rec := range rows.Records[r.Stream] {
				sv.History.Add(rec)
			}
		}
	}
	v.reparent(rows.Grants)
	v.mergeGrants(slices.Concat(w.Grants, w.Lineages, slices.Collect(maps.Keys(rows.Grants))), rows.Grants) // with ancestors
	for _, x := range w.External {
		if _, known := v.external[x]; !known {
			v.external[x] = rows.External[x]
		}
	}
	if err := v.dropLeft(rows); err != nil {
		return err
	}
	for id, s := range v.Sessions {
		s.merge(w, id, rows)
	}
	return nil
}

func (s *Session) merge(w *session.ReadSet, id string, rows *session.Rows) {
	found := rows.Entries[id]
	if n := len(w.EntryMeta[id]); len(s.Entries) == 0 && n > 0 {
		s.Entries = make(map[string]*EntryState, n)
	}
	for _, key := range w.EntryMeta[id] {
		s.fill(key, found[key], false)
	}
	for _, key := range w.Entries[id] {
		s.fill(key, found[key], true)
	}
	for _, p := range w.Prefixes[id] {
		for key, e := range found {
			if strings.HasPrefix(key, p) {
				s.fill(key, e, true)
			}
		}
		s.prefixes = append(s.prefixes, p)
	}
	if slices.Contains(w.Requests, id) {
		s.mergeRequests(rows.Requests[id])
	}
	if slices.Contains(w.LapsedClaims, id) {
		for key, e := range found {
			s.fill(key, e, false)
		}
	}
	for key := range w.Deltas[id] {
		slot := s.Entries[key]
		if slot != nil && slot.missingDeltas {
			tail := make([]string, 0, len(slot.tail)+1)
			slot.tail = append(append(tail, string(rows.Deltas[id][key])), slot.tail...)
			slot.missingDeltas = false
		}
	}
	turns := rows.Turns[id]
	for _, m := range w.TurnsOf[id] {
		if s.turns[m] == nil {
			s.turns[m] = &turnState{turn: turns[m]}
		}
	}
	if open := slices.Contains(w.Turns, id); open || slices.Contains(w.StreamingTurns, id) || slices.Contains(w.OpenOrphans, id) {
		for m, turn := range turns {
			if s.turns[m] == nil {
				s.turns[m] = &turnState{turn: turn}
			}
		}
		s.openTurnsLoaded = s.openTurnsLoaded || open
	}
}

// absentEntry is the state of every key without an entry, shared.
var absentEntry = EntryState{hasPayload: true}

// fill adds a loaded entry, unless the view has as much of it.
func (s *Session) fill(key string, e *session.Entry, full bool) {
	slot := s.Entries[key]
	switch {
	case slot == nil && e == nil:
		s.Entries[key] = &absentEntry
		return
	case slot == nil:
		s.Entries[key] = &EntryState{Entry: e, hasPayload: full, missingDeltas: e.LastAppend != 0, edits: e.Edited != 0}
		return
	}
	if full && !slot.hasPayload && slot.Entry != nil && e != nil && e.Cursor == slot.Entry.Cursor {
		filled := *slot.Entry // the old one may be in the journal, which must not change
		filled.Payload, filled.Edits = e.Payload, e.Edits
		slot.Entry, slot.hasPayload = &filled, true
	}
}
