package session

// Reading into the view. What is known already, and perhaps changed since, is
// never overwritten by what the store says.

import (
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

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

// need is load for an op that found something missing.
func (v *view) need(w *Want) *fault.Error {
	rows, err := v.more(w)
	if err == nil {
		v.take(w, rows)
	}
	return err
}

// more reads for an op: what would be more than one submission may read is
// TooLarge, the store's error ends the group. Whoever has gone over the limit
// has used it up: the store is asked for no more payloads.
func (v *view) more(w *Want) (*Rows, *fault.Error) {
	w.MaxBytes = max(v.limit-v.read, 1)
	if v.fail == nil && v.read >= v.limit && w.payloads() {
		return nil, v.tooMuch()
	}
	if v.fail == nil {
		var rows *Rows
		if rows, v.fail = v.tx.Load(v.ctx, w); v.fail == nil {
			v.spend(rows.Bytes)
			if rows.Bytes > w.MaxBytes {
				return nil, v.tooMuch()
			}
			return rows, nil
		}
	}
	return nil, fault.Internal.Because(v.fail, "the rows of an op could not be read")
}

// spend counts what was read.
func (v *view) spend(bytes int) {
	v.read += bytes
	v.heavy += bytes
}

func (v *view) tooMuch() *fault.Error {
	return fault.TooLarge.With("this takes reading more than %d bytes of payloads at once, the limit: put or remove some of it first, or commit smaller batches", v.limit)
}

// payloads says whether w wants any, and not rows alone.
func (w *Want) payloads() bool {
	return len(w.Entries)+len(w.Prefixes)+len(w.Deltas)+len(w.Logs)+len(w.Holders) > 0
}

// take fills in what rows say of everything in w that is not known yet.
func (v *view) take(w *Want, rows *Rows) {
	for _, id := range w.Sessions {
		row := rows.Sessions[id]
		if row == nil {
			row = &Row{ID: id}
		}
		if v.sessions[id] == nil {
			v.sessions[id] = &sessionView{row: *row, before: *row, purged: map[uint64][]byte{}, entries: map[string]*entrySlot{}, turns: map[string]*turnSlot{}}
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
	v.moved(rows.Grants)
	v.takeGrants(slices.Concat(w.Grants, w.Lineages, slices.Collect(maps.Keys(rows.Grants))), rows.Grants) // ancestors come too
	for _, x := range w.External {
		if _, known := v.external[x]; !known {
			v.external[x] = rows.External[x]
		}
	}
	for id, s := range v.sessions {
		s.take(w, id, rows)
	}
}

func (s *sessionView) take(w *Want, id string, rows *Rows) {
	found := rows.Entries[id]
	if n := len(w.Heads[id]); len(s.entries) == 0 && n > 0 {
		s.entries = make(map[string]*entrySlot, n)
	}
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
	if open := slices.Contains(w.Turns, id); open || slices.Contains(w.Lapsing, id) {
		for m, turn := range turns {
			if s.turns[m] == nil {
				s.turns[m] = &turnSlot{turn: turn}
			}
		}
		s.open = s.open || open
	}
}

// noEntry is the slot of every key that has none. There is nothing to fill in.
var noEntry = entrySlot{full: true}

// know takes a loaded entry in, unless the slot knows as much already.
func (s *sessionView) know(key string, e *Entry, full bool) {
	slot := s.entries[key]
	switch {
	case slot == nil && e == nil:
		s.entries[key] = &noEntry
		return
	case slot == nil:
		s.entries[key] = &entrySlot{entry: e, full: full, behind: e.Grown != 0}
		return
	}
	if full && !slot.full && slot.entry != nil && e != nil && e.Cursor == slot.entry.Cursor {
		filled := *slot.entry // it may be shared with a slot in the journal, which stays as it is
		filled.Payload = e.Payload
		slot.entry, slot.full = &filled, true
	}
}
