// Package memtx implements session.Tx in memory, for tests of the domain: one writer at a time,
// nothing durable. It is as strict as a database: it returns only the rows in the read set, copies
// everything, and refuses rows that a primary key or the contract of session.Changes would refuse.
package memtx

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// Store holds the rows. It is safe for concurrent use.
type Store struct {
	mu sync.Mutex
	rows

	Now          int64 // the clock, Unix ms; set it between transactions
	MaxPassed    int   // bounds the keys that a search for free ones looks at, as ReadSet does; 0: it alone
	Loads        int   // Load calls so far
	BytesRead    int   // bytes of payloads and texts returned so far
	BytesWritten int   // bytes of payloads saved so far
}

type rows struct {
	sessions map[string]*session.Row
	streams  map[session.StreamKey]*ledger.Stream
	records  map[session.StreamKey][][]byte // marshaled, by first seq
	events   map[string][]*session.Event
	entries  map[string]map[string]*session.Entry
	before   map[string]map[string]*session.Entry // by the fork, with their values
	turns    map[string]map[string]*session.Turn
	requests map[string]map[string]*session.OpenRequest
	grants   map[string]*capability.Grant
	public   []capability.PublicShare
	audit    []*capability.AuditRow
}

// New returns an empty store with the clock at 1,000,000.
func New() *Store {
	return &Store{Now: 1_000_000, rows: rows{
		sessions: map[string]*session.Row{},
		streams:  map[session.StreamKey]*ledger.Stream{},
		records:  map[session.StreamKey][][]byte{},
		events:   map[string][]*session.Event{},
		entries:  map[string]map[string]*session.Entry{},
		before:   map[string]map[string]*session.Entry{},
		turns:    map[string]map[string]*session.Turn{},
		requests: map[string]map[string]*session.OpenRequest{},
		grants:   map[string]*capability.Grant{},
	}}
}

// Update runs do in a transaction: its changes are kept if do returns nil.
func (s *Store) Update(_ context.Context, do func(session.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &tx{s: s}
	if err := do(t); err != nil {
		return err
	}
	for _, c := range t.saved {
		if err := s.save(c); err != nil {
			return err
		}
	}
	return nil
}

// AddGrant inserts a ref, as the first start or a test of redeem would.
func (s *Store) AddGrant(g capability.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants[g.ID] = clone(&g)
}

// OpenStream opens a stream, raising its incarnation.
func (s *Store) OpenStream(sessionID, outbox string, incarnation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[sessionID] == nil {
		s.sessions[sessionID] = &session.Row{ID: sessionID}
	}
	k := session.StreamKey{Session: sessionID, Outbox: outbox}
	if s.streams[k] == nil {
		s.streams[k] = &ledger.Stream{Session: sessionID, Outbox: outbox}
	}
	s.streams[k].Incarnation = max(s.streams[k].Incarnation, incarnation)
}

// SetStreamSecret sets the hash of the secret that an open stream was opened with; none by default.
func (s *Store) SetStreamSecret(sessionID, outbox string, hash [32]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[session.StreamKey{Session: sessionID, Outbox: outbox}].SecretHash = hash
}

// SetExemptBytes sets a session's bytes from before there was a quota; -1: not measured.
func (s *Store) SetExemptBytes(id string, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[id].ExemptBytes = bytes
}

// Session returns a session's row; nil if there is none.
func (s *Store) Session(id string) *session.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.sessions[id])
}

// Stream returns a stream's row; nil if there is none.
func (s *Store) Stream(sessionID, outbox string) *ledger.Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.streams[session.StreamKey{Session: sessionID, Outbox: outbox}])
}

// Records counts a stream's unpruned records.
func (s *Store) Records(sessionID, outbox string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records[session.StreamKey{Session: sessionID, Outbox: outbox}])
}

// Grant returns a ref's row; nil if there is none.
func (s *Store) Grant(id string) *capability.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return clone(s.grants[id])
}

// Public returns the rows of refs with a public id.
func (s *Store) Public() []capability.PublicShare {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.public)
}

// Events returns a session's log.
func (s *Store) Events(id string) []*session.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.events[id]
	if row := s.sessions[id]; row != nil {
		list = list[row.Base:]
	}
	return cloneAll(list)
}

// Audit returns every audit row so far.
func (s *Store) Audit() []*capability.AuditRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cloneAll(s.audit)
}

// State returns a session's folded state from the rows: entries by key with their deltas, turns by
// message, without what a revert hides.
func (s *Store) State(id string) (entries []*session.Entry, turns []*session.Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id].Life == session.Absent {
		return nil, nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.entries[id])) {
		e := s.entry(id, key, true)
		if s.sessions[id].Hiding().Hides(e, s.entry(id, session.HeadOf(key), false)) {
			continue
		}
		if e.LastAppend != 0 {
			e.Payload = session.FoldText(e.Payload, s.delta(id, key, e.Cursor))
		}
		entries = append(entries, e)
	}
	for _, m := range slices.Sorted(maps.Keys(s.turns[id])) {
		if t := s.turns[id][m]; !s.sessions[id].Hiding().HidesTurn(t, s.entry(id, session.MessageKey(m), false)) {
			turns = append(turns, clone(t))
		}
	}
	return entries, turns
}

// keepBefore keeps what c changes of the sources of forks, and removes what it purges from them.
func (s *Store) keepBefore(c *session.Changes) {
	keep := func(id, key string) {
		row, e := s.sessions[id], s.entry(id, key, true)
		if row == nil || row.Copies == nil || e == nil {
			return
		}
		for _, f := range row.Copies.Forks {
			if !f.Whole && e.Changed() <= f.At && s.before[f.Session][key] == nil {
				put(s.before, f.Session, key, clone(e))
			}
		}
	}
	for _, list := range [][]*session.Entry{c.Entries, c.Appended, c.Edited} {
		for _, e := range list {
			keep(e.Session, e.Key)
		}
	}
	for id, keys := range c.DropEntries {
		for _, key := range keys {
			keep(id, key)
		}
	}
	for _, r := range c.DropReverted {
		for key, e := range s.entries[r.Session] {
			if r.Removes(e) {
				keep(r.Session, key)
			}
		}
	}
	each := func(id string, do func(fork string)) {
		if row := s.sessions[id]; row != nil && row.Copies != nil {
			for _, f := range row.Copies.Forks {
				do(f.Session)
			}
		}
	}
	for _, e := range c.Events {
		if e.Method == session.MethodPurge {
			each(e.Session, func(fork string) {
				delete(s.entries[fork], e.Key)
				delete(s.before[fork], e.Key)
			})
		}
	}
	for _, id := range c.DropState {
		each(id, func(fork string) {
			delete(s.entries, fork)
			delete(s.before, fork)
		})
	}
}

// loadForks loads what only the copying of forks asks for.
func (s *Store) loadForks(out *session.Rows, w *session.ReadSet) {
	s.loadBefore(out, w.Before)
	if r := w.LogRange; r != nil {
		size := 0
		for _, e := range s.events[r.Session] {
			if e.Cursor <= r.After {
				continue
			}
			if size += len(e.Payload); len(out.LogRange) > 0 && (size > r.Bytes || len(out.LogRange) >= r.Events) {
				break
			}
			out.LogRange = append(out.LogRange, clone(e))
		}
	}
	p := w.Page
	if p == nil {
		return
	}
	from, log := s.entries[p.Session], p.Session
	if p.Before {
		from, log = s.before[p.Session], p.Log
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if key <= p.After {
			continue
		}
		e := clone(from[key])
		if !p.Before {
			e = s.entry(p.Session, key, true)
		}
		if e.LastAppend != 0 {
			var text []byte
			for _, ev := range s.events[log] {
				if ev.Cursor > e.Cursor && ev.Cursor <= e.LastAppend && ev.Key == key && ev.Method == session.MethodAppendText {
					text = append(text, session.DeltaText(ev.Payload)...)
				}
			}
			e.Payload = session.FoldText(e.Payload, text)
		}
		if size += len(e.Payload); len(out.Page) > 0 && (size > p.Bytes || len(out.Page) >= p.Keys) {
			out.MorePage = true
			return
		}
		out.Page = append(out.Page, e)
	}
}

// loadBefore loads of what is kept for a fork.
func (s *Store) loadBefore(out *session.Rows, w *session.BeforeSet) {
	if w == nil {
		return
	}
	out.Before = map[string]*session.Entry{}
	kept := s.before[w.Session]
	give := func(key string) {
		if e := clone(kept[key]); e != nil {
			e.Payload = nil
			out.Before[key] = e
		}
	}
	for _, key := range w.Keys {
		give(key)
	}
	for _, message := range w.Parts {
		n := 0
		for _, key := range slices.Sorted(maps.Keys(kept)) {
			if strings.HasPrefix(key, session.PartKey(message, "")) && key > w.After && n < w.Limit {
				give(key)
				n++
			}
		}
	}
	if w.From.Key != "" {
		var heads []*session.Entry
		for key, e := range kept {
			if session.HeadOf(key) == key && session.PositionOf(e).Compare(session.ByPut, w.From) >= 0 {
				heads = append(heads, e)
			}
		}
		slices.SortFunc(heads, session.CompareEntries)
		for _, e := range heads[:min(len(heads), w.Limit)] {
			give(e.Key)
		}
	}
	size := 0
	for key := range maps.Keys(kept) { // in any order
		if slices.Contains(w.Values, key) && size <= w.Bytes {
			out.Before[key] = clone(kept[key])
			size += len(out.Before[key].Payload)
		}
	}
}

// Rows returns how many rows there are of a session's state, those included that were kept for it as a fork.
func (s *Store) Rows(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries[id]) + len(s.before[id])
}

// Forks returns the forks that are being copied.
func (s *Store) Forks() (list []session.ForkDue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		if f := s.sessions[id].Forking; f.IsDue() {
			list = append(list, f.Due(id))
		}
	}
	return list
}

func (r *rows) entry(id, key string, full bool) *session.Entry {
	e := clone(r.entries[id][key])
	switch {
	case e == nil:
		return nil
	case !full:
		e.Payload, e.Edits = nil, nil
	case e.Payload == nil:
		e.Payload = r.events[id][e.Cursor-1].Payload
	default:
		e.Payload, _ = session.Value(e.Payload, e.Edits) // as it was saved
	}
	return e
}

func (r *rows) delta(id, key string, after uint64) []byte {
	var text []byte
	for _, e := range r.events[id] {
		if e.Cursor > after && e.Key == key && e.Method == session.MethodAppendText {
			text = append(text, session.DeltaText(e.Payload)...)
		}
	}
	return text
}

// descends reports whether ref id is ancestor or a descendant of it.
func (r *rows) descends(id, ancestor string) bool {
	for g := r.grants[id]; g != nil; g = r.grants[g.Parent] {
		if g.ID == ancestor {
			return true
		}
	}
	return false
}

// Requests returns the rows of a session's requests, by id.
func (s *Store) Requests(id string) map[string]*session.OpenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*session.OpenRequest{}
	for request, r := range s.requests[id] {
		out[request] = clone(r)
	}
	return out
}

// RemoveReverted removes the rows that settled reverts of a session hid.
func (s *Store) RemoveReverted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.sessions[id]
	if row.Left == nil || row.Copies != nil {
		return
	}
	left := session.Reverts(row.Left.Reverts)
	head := func(key string) *session.Entry { return s.entries[id][session.HeadOf(key)] }
	maps.DeleteFunc(s.turns[id], func(message string, t *session.Turn) bool {
		return left.HidesTurn(t, head(session.MessageKey(message)))
	})
	for _, messages := range []bool{false, true} { // by which their parts are known
		maps.DeleteFunc(s.entries[id], func(key string, e *session.Entry) bool {
			return messages == (key == session.HeadOf(key)) && left.Hides(e, head(key))
		})
	}
	row.Left = nil
}

func (s *Store) dropReverted(r *session.RevertedMessage) {
	maps.DeleteFunc(s.entries[r.Session], func(key string, e *session.Entry) bool {
		return r.Removes(e)
	})
	if t := s.turns[r.Session][r.Message]; t != nil && t.Begun < r.Before && r.Part == "" {
		delete(s.turns[r.Session], r.Message)
	}
}

func (s *Store) save(c *session.Changes) error {
	s.keepBefore(c)
	for _, row := range c.Sessions {
		s.sessions[row.ID] = clone(row)
		for n := uint64(len(s.events[row.ID])); n+1 < row.Base; n++ { // of a fork in pieces
			s.events[row.ID] = append(s.events[row.ID], &session.Event{Session: row.ID, Cursor: n + 1})
		}
	}
	for _, st := range c.Streams {
		s.streams[session.StreamKey{Session: st.Session, Outbox: st.Outbox}] = clone(st)
	}
	for _, cut := range c.Prune {
		s.records[cut.Stream] = slices.DeleteFunc(s.records[cut.Stream], func(text []byte) bool {
			r, err := ledger.UnmarshalRecord(text)
			return err == nil && r.LastSeq() <= cut.Through
		})
	}
	for _, r := range c.Records {
		text := r.Record.Marshal()
		if _, err := ledger.UnmarshalRecord(text); err != nil {
			return err
		}
		s.records[r.Stream] = append(s.records[r.Stream], text)
	}
	for _, e := range c.Events {
		if want := uint64(len(s.events[e.Session]) + 1); e.Cursor != want {
			return fmt.Errorf("memtx: event %d of %s where %d is next", e.Cursor, e.Session, want)
		}
		if e.Payload == nil && s.sessions[e.Session].Base != e.Cursor && !slices.ContainsFunc(c.Events, func(p *session.Event) bool {
			return p.Session == e.Session && p.Cursor > e.Cursor && p.Method == session.MethodPurge && p.Key == e.Key
		}) {
			return fmt.Errorf("memtx: event %d of %s has no payload", e.Cursor, e.Session)
		}
		s.BytesWritten += len(e.Payload)
		s.events[e.Session] = append(s.events[e.Session], clone(e))
	}
	for _, p := range c.Purge {
		e := s.events[p.Session][p.Cursor-1]
		if e.Payload == nil || p.Payload != nil && len(p.Payload) >= len(e.Payload) {
			return fmt.Errorf("memtx: event %d of %s has nothing to purge", p.Cursor, p.Session)
		}
		freed := int64(len(e.Payload) - len(p.Payload))
		s.sessions[p.Session].Bytes -= freed
		if g := s.grants[e.Ref]; g != nil && g.Target == e.Session {
			g.Bytes = max(g.Bytes-freed, 0)
		}
		e.Payload = p.Payload
	}
	for _, list := range [][]*session.Entry{c.Entries, c.Appended, c.Edited, c.Claims} {
		if !slices.IsSortedFunc(list, func(a, b *session.Entry) int {
			return cmp.Or(strings.Compare(a.Session, b.Session), strings.Compare(a.Key, b.Key))
		}) {
			return fmt.Errorf("memtx: entries are not sorted")
		}
	}
	for _, r := range c.DropReverted {
		s.dropReverted(&r)
	}
	for id, keys := range c.DropEntries {
		if !slices.IsSorted(keys) {
			return fmt.Errorf("memtx: dropped entries of %s are not sorted", id)
		}
		for _, key := range keys {
			delete(s.entries[id], key)
		}
	}
	for id, keys := range c.DropBefore {
		for _, key := range keys {
			delete(s.before[id], key)
		}
	}
	for _, e := range c.Before {
		row := clone(e)
		if old := s.before[e.Session][e.Key]; e.Payload == nil {
			if old == nil {
				return fmt.Errorf("memtx: what is kept of %s has no value", e.Key)
			}
			row.Payload = old.Payload
		}
		put(s.before, e.Session, e.Key, row)
	}
	for id, keys := range c.DropEdits {
		for _, key := range keys {
			if old := s.entries[id][key]; old != nil {
				old.Edits = nil
			} else if !slices.Contains(c.DropEntries[id], key) {
				return fmt.Errorf("memtx: entry %s has no edits to drop", key)
			}
		}
	}
	for _, e := range c.Entries {
		if old := s.entries[e.Session][e.Key]; old != nil && old.Edits != nil {
			return fmt.Errorf("memtx: the edits of entry %s, which is written whole, stay", e.Key)
		}
		if e.Payload == nil && session.SumOf(s.events[e.Session][e.Cursor-1].Payload) != e.Sum {
			return fmt.Errorf("memtx: entry %s is not the payload of its event %d", e.Key, e.Cursor)
		}
		if s.sessions[e.Session].Life != session.Absent && e.Payload != nil && e.Key == s.events[e.Session][e.Cursor-1].Key && session.SumOf(s.events[e.Session][e.Cursor-1].Payload) == e.Sum {
			return fmt.Errorf("memtx: entry %s is written twice, here and as the payload of its event %d", e.Key, e.Cursor)
		}
		s.BytesWritten += len(e.Payload)
		row := clone(e)
		if row.Claim = nil; s.entries[e.Session][e.Key] != nil {
			row.Claim = s.entries[e.Session][e.Key].Claim
		}
		put(s.entries, e.Session, e.Key, row)
	}
	for _, e := range c.Appended {
		old := s.entries[e.Session][e.Key]
		if old == nil || old.Cursor != e.Cursor {
			return fmt.Errorf("memtx: entry %s grew and is not there", e.Key)
		}
		old.TextLen, old.LastAppend = e.TextLen, e.LastAppend
	}
	for _, e := range c.Edited {
		old := s.entries[e.Session][e.Key]
		if old == nil || old.Payload == nil || old.Edited == 0 {
			return fmt.Errorf("memtx: entry %s is edited and its row has no base", e.Key)
		}
		if value, err := session.Value(old.Payload, e.Edits); err != nil || session.SumOf(value) != e.Sum || uint64(len(value)) != e.Edited {
			return fmt.Errorf("memtx: the edits of entry %s do not make its value: %v", e.Key, err)
		}
		s.BytesWritten += len(e.Edits)
		old.Cursor, old.Schema, old.Sum, old.Edited, old.Edits = e.Cursor, e.Schema, e.Sum, e.Edited, slices.Clone(e.Edits)
	}
	for _, e := range c.Claims {
		row := s.entries[e.Session][e.Key]
		if row == nil {
			return fmt.Errorf("memtx: entry %s has a claim and is not there", e.Key)
		}
		row.Claim = clone(e.Claim)
	}
	for _, t := range c.Turns {
		put(s.turns, t.Session, t.Message, clone(t))
	}
	for _, r := range c.Requests {
		put(s.requests, r.Session, r.ID, clone(r))
	}
	for id, requests := range c.DropRequests {
		for _, request := range requests {
			delete(s.requests[id], request)
		}
	}
	for _, g := range c.Grants {
		if s.grants[g.ID] != nil {
			return fmt.Errorf("memtx: ref %s is there already", g.ID)
		}
		s.grants[g.ID] = clone(g)
	}
	for _, p := range c.Public {
		if s.grants[p.Reader] == nil {
			return fmt.Errorf("memtx: the ref %s of a public id is not there", p.Reader)
		}
		s.public = append(s.public, p)
	}
	for _, ch := range c.Charges {
		s.grants[ch.Ref].Bytes += ch.Bytes
	}
	for _, r := range c.Rotate {
		for _, g := range s.grants {
			if g.Parent == r.ID {
				g.Parent = r.By
			}
		}
		if g := s.grants[r.ID]; g.Revoked == 0 {
			g.Revoked, g.RevokedBy, g.Cut = r.At, r.By, r.Cut
		}
	}
	for _, r := range c.Revoke {
		for id, g := range s.grants {
			if g.Revoked != 0 || !s.descends(id, r.ID) {
				continue
			}
			g.Revoked, g.RevokedBy, g.Cut = r.At, r.By, r.Cut
			if row := s.sessions[g.Target]; row != nil && capability.IsSpace(capability.Target(r.ID)) {
				g.Cut = row.Cursor
			}
		}
	}
	for _, id := range c.DropState {
		delete(s.entries, id)
		delete(s.turns, id)
		delete(s.requests, id)
		for _, e := range s.events[id] {
			e.Payload = nil
		}
	}
	s.audit = append(s.audit, cloneAll(c.Audit)...)
	return nil
}

// tx is one transaction.
type tx struct {
	s      *Store
	loaded bool
	locked bool
	saved  []*session.Changes
}

// Load returns copies of the rows in w.
func (t *tx) Load(_ context.Context, w *session.ReadSet) (*session.Rows, error) {
	s := t.s
	if t.loaded && len(w.Spaces)+len(w.ExclusiveSpaces) > 0 || t.locked && len(w.Sessions) > 0 {
		return nil, fmt.Errorf("memtx: a later load locks")
	}
	for _, list := range [][]string{w.Sessions, w.Others, w.Spaces, w.ExclusiveSpaces, w.Grants, w.Lineages, w.Trees, w.Turns, w.CountedTurns, w.StreamingTurns, w.OpenOrphans, w.Requests} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			return nil, fmt.Errorf("memtx: %q is not sorted or repeats", list)
		}
	}
	for _, x := range w.External {
		if !slices.Contains(w.Spaces, x.Space) {
			return nil, fmt.Errorf("memtx: external ids of %s are asked for without its lock", x.Space)
		}
	}
	for _, m := range []map[string][]string{w.EntryMeta, w.Entries, w.Prefixes, w.TurnsOf} {
		for id, list := range m {
			if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
				return nil, fmt.Errorf("memtx: %q of %s is not sorted or repeats", list, id)
			}
		}
	}
	if err := checkTexts(w); err != nil {
		return nil, err
	}
	t.loaded, t.locked = t.loaded || len(w.Sessions) > 0 || w.Below == nil, t.locked || len(w.Sessions) > 0
	s.Loads++
	out := &session.Rows{Now: s.Now,
		Sessions: map[string]*session.Row{}, Streams: map[session.StreamKey]*ledger.Stream{},
		Records: map[session.StreamKey][]*ledger.Record{}, Grants: map[string]*capability.Grant{},
		Entries: map[string]map[string]*session.Entry{}, Turns: map[string]map[string]*session.Turn{},
		Deltas: map[string]map[string][]byte{}, Logs: map[string][]*session.Event{}, External: map[session.ExternalID]string{},
		PayloadEvents: map[string][]*session.Event{},
		Trees:         map[string]map[string]uint64{},
		Others:        map[string]*session.Row{}, Below: map[string][]string{},
	}
	for _, id := range w.Others {
		if s.sessions[id] != nil {
			out.Others[id] = clone(s.sessions[id])
		}
	}
	for id, always := range w.Below {
		for _, g := range s.grants {
			if g.Target == id && g.Children != 0 && g.Revoked == 0 && g.Epoch == s.sessions[id].Epoch {
				out.Grants[g.ID] = clone(g)
				always = true
			}
		}
		for _, below := range slices.Sorted(maps.Keys(s.sessions)) {
			if row := s.sessions[below]; always && row.Life == session.Live && row.Below(id) {
				out.Below[id] = append(out.Below[id], below)
			}
		}
	}
	for _, id := range w.Sessions {
		if s.sessions[id] == nil {
			s.sessions[id] = &session.Row{ID: id}
		}
		out.Sessions[id] = clone(s.sessions[id])
	}
	for _, k := range w.Streams {
		if st := s.streams[k]; st != nil {
			out.Streams[k] = clone(st)
		}
	}
	for _, r := range w.Records {
		if err := s.loadRecords(out, &r); err != nil {
			return nil, err
		}
	}
	for _, id := range w.Grants {
		if g := s.grants[id]; g != nil {
			out.Grants[id] = clone(g)
		}
	}
	for _, id := range w.Lineages {
		for g := s.grants[id]; g != nil; g = s.grants[g.Parent] {
			out.Grants[g.ID] = clone(g)
		}
	}
	for _, id := range w.CountedTurns {
		refs := slices.Clone(w.Grants)
		for _, t := range s.turns[id] {
			if t.Status.Open() && !t.Orphan {
				refs = append(refs, t.Ref)
			}
		}
		for _, ref := range refs {
			for g := s.grants[ref]; g != nil && g.Target == id; g = s.grants[g.Parent] {
				out.Grants[g.ID] = clone(g)
			}
		}
	}
	for _, root := range w.Trees {
		for id, g := range s.grants {
			if g.Revoked == 0 && s.descends(id, root) {
				put(out.Trees, root, g.Target, out.Trees[root][g.Target]+1)
				for below, row := range s.sessions {
					if g.Children != 0 && row.Life == session.Live && row.Below(g.Target) {
						put(out.Trees, root, below, out.Trees[root][below])
					}
				}
			}
		}
	}
	before := s.BytesRead
	s.loadState(out, w)
	for id, to := range w.Logs {
		for _, e := range s.events[id] {
			if e.Cursor <= to {
				s.BytesRead += len(e.Payload)
				out.Logs[id] = append(out.Logs[id], clone(e))
			}
		}
	}
	for id, key := range w.PayloadEvents {
		for _, e := range s.events[id] {
			if e.Payload != nil && session.HoldsPayload(e, key) {
				h := &session.Event{Session: id, Cursor: e.Cursor, Method: e.Method}
				if e.Key != key || e.Method == session.MethodFinalize {
					h.Payload = e.Payload
				}
				s.BytesRead += len(h.Payload)
				out.PayloadEvents[id] = append(out.PayloadEvents[id], h)
			}
		}
	}
	if out.Bytes = s.BytesRead - before; w.MaxBytes > 0 && out.Bytes > w.MaxBytes {
		s.BytesRead = before
		return &session.Rows{Bytes: out.Bytes}, nil
	}
	for _, x := range w.External {
		if id := s.externalOf(x); id != "" {
			out.External[x] = id
		}
	}
	return out, nil
}

// externalOf returns the living session with an external id, "" if there is none.
func (s *Store) externalOf(x session.ExternalID) string {
	for _, g := range s.grants {
		row := s.sessions[g.Target]
		if g.Owner && g.Parent == x.SpaceRef && row != nil && row.Life == session.Live && row.Space == x.Space && row.External == x.ID {
			return row.ID
		}
	}
	return ""
}

// checkTexts returns an error if a database would refuse a text of w.
func checkTexts(w *session.ReadSet) error {
	lists := [][]string{w.Spaces, w.ExclusiveSpaces, w.Sessions, w.Grants, w.Lineages, w.Trees, w.Turns, w.CountedTurns, w.StreamingTurns, w.OpenOrphans, w.Requests}
	for _, m := range []map[string][]string{w.EntryMeta, w.Entries, w.Prefixes, w.TurnsOf} {
		lists = slices.AppendSeq(lists, maps.Values(m))
	}
	lists = append(lists, slices.Collect(maps.Values(w.PayloadEvents)))
	for _, r := range w.Records {
		lists = append(lists, r.Ops)
	}
	for _, x := range w.External {
		lists = append(lists, []string{x.Space, x.SpaceRef, x.ID})
	}
	for _, text := range slices.Concat(lists...) {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("memtx: %q cannot be asked for", text)
		}
	}
	return nil
}

func (s *Store) loadRecords(out *session.Rows, r *session.RecordRange) error {
	for _, text := range s.records[r.Stream] {
		rec, err := ledger.UnmarshalRecord(text)
		if err != nil {
			return err
		}
		held := slices.ContainsFunc(rec.Outcomes, func(o ledger.Outcome) bool { return slices.Contains(r.Ops, o.OpID) })
		if held || r.To != 0 && rec.FirstSeq <= r.To && rec.LastSeq() >= r.From {
			out.Records[r.Stream] = append(out.Records[r.Stream], rec)
		}
	}
	return nil
}

func (s *Store) loadState(out *session.Rows, w *session.ReadSet) {
	s.loadForks(out, w)
	give := func(id, key string, full bool) {
		if e := s.entry(id, key, full); e != nil {
			s.BytesRead += len(e.Payload)
			put(out.Entries, id, key, e)
		}
	}
	for id, keys := range w.EntryMeta {
		for _, key := range keys {
			give(id, key, false)
		}
	}
	for id, keys := range w.Entries {
		for _, key := range keys {
			give(id, key, true)
		}
	}
	for id, prefixes := range w.Prefixes {
		for key := range s.entries[id] {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
				give(id, key, true)
			}
		}
	}
	for id, after := range w.FirstMessage {
		var first *session.Entry
		for key, e := range s.entries[id] {
			if session.HeadOf(key) == key && session.PositionOf(e).Compare(session.ByPut, after) > 0 && (first == nil || session.CompareEntries(e, first) < 0) {
				first = e
			}
		}
		if first != nil {
			give(id, first.Key, false)
		}
	}
	for _, id := range w.LapsedClaims {
		for key, e := range s.entries[id] {
			if e.Claim != nil && e.Claim.Until <= w.LapsedBy {
				give(id, key, false)
			}
		}
	}
	if w.CountedClaims != "" {
		out.ClaimCounts = map[string]int{}
		for _, e := range s.entries[w.CountedClaims] {
			if e.Claim != nil && e.Claim.Until > w.LapsedBy {
				out.ClaimCounts[e.Claim.Ref]++
			}
		}
	}
	if f := w.FreeKeys; f != nil {
		passed := 0
		for _, key := range slices.Sorted(maps.Keys(s.entries[f.Session])) {
			switch c := s.entries[f.Session][key].Claim; {
			case key <= f.After || key >= f.Below || len(out.FreeKeys) == f.Limit:
			case passed == f.Passed || passed == s.MaxPassed && passed > 0:
				out.MoreFreeKeys = true
			default:
				if passed++; c == nil || c.Until <= f.Now {
					out.FreeKeys = append(out.FreeKeys, s.entry(f.Session, key, false))
				}
			}
		}
	}
	for id, keys := range w.Deltas {
		for key, after := range keys {
			text := s.delta(id, key, after)
			s.BytesRead += len(text)
			put(out.Deltas, id, key, text)
		}
	}
	for _, id := range w.Turns {
		for m, t := range s.turns[id] {
			if t.Status.Open() && !t.Orphan {
				put(out.Turns, id, m, clone(t))
			}
		}
	}
	for _, id := range w.StreamingTurns {
		for m, t := range s.turns[id] {
			if t.Status == session.Streaming {
				put(out.Turns, id, m, clone(t))
			}
		}
	}
	for _, id := range w.Requests {
		if out.Requests == nil {
			out.Requests = map[string][]*session.OpenRequest{}
		}
		for _, r := range s.requests[id] {
			out.Requests[id] = append(out.Requests[id], clone(r))
		}
	}
	for _, id := range w.OpenOrphans {
		orphans := slices.DeleteFunc(slices.Collect(maps.Values(s.turns[id])), func(t *session.Turn) bool { return !t.Status.Open() || !t.Orphan })
		slices.SortFunc(orphans, func(a, b *session.Turn) int { return cmp.Compare(a.Begun, b.Begun) })
		for _, t := range orphans[:min(len(orphans), session.MaxOrphans)] {
			put(out.Turns, id, t.Message, clone(t))
		}
	}
	for id, messages := range w.TurnsOf {
		for _, m := range messages {
			if t := s.turns[id][m]; t != nil {
				put(out.Turns, id, m, clone(t))
			}
		}
	}
}

// Save keeps c for the end of the transaction.
func (t *tx) Save(_ context.Context, c *session.Changes) error {
	t.saved = append(t.saved, c)
	return nil
}

func put[V any](m map[string]map[string]V, a, b string, v V) {
	if m[a] == nil {
		m[a] = map[string]V{}
	}
	m[a][b] = v
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

func cloneAll[T any](list []*T) []*T {
	out := make([]*T, len(list))
	for i, p := range list {
		out[i] = clone(p)
	}
	return out
}
