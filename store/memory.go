// What the store remembers of sessions: the rows that its latest transactions
// have read and written, and the version of the session's own row that they belong
// to. What ops are decided on changes together with that row, or, of a stream, with
// the stream's, which has a version of its own; on whatever server that is. So what
// is remembered may be out of date at any time, and who compares versions knows
// (guess.go).

package store

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// Bounds of what is remembered, in rows but for lastEvents. A session's latest entries
// are, twice latestHeads at most: what is written again was mostly written a moment ago,
// and an entry that is not remembered is thought not to be there. Who keeps rewriting
// older ones has all that are in transactions with it read for a while.
const (
	mostOfSession = 1 << 14
	mostOfAll     = 1 << 17
	latestHeads   = 1 << 9
	lastEvents    = 1 << 8 // of a session, whose entries stay longest
)

// memory is safe for concurrent use.
type memory struct {
	mu       sync.Mutex
	sessions map[string]*recollection
	rows     int // of all

	clock   int64     // the database's, Unix ms, as it was
	clockAt time.Time // here when that was heard

	right, wrong atomic.Uint64 // guesses
}

// recollection is what is remembered of one session. A transaction takes it out
// and, once it is committed, puts it back, so one at a time has it.
type recollection struct {
	row      session.Row
	version  int64                       // of row, to which all else belongs; 0: nothing is known
	streams  map[string]versionedStream  // by outbox
	records  map[string][]*ledger.Record // by outbox, in order; not all of them
	grants   map[string]capability.Grant // by id
	heads    latest                      // of its entries
	turns    map[string]session.Turn     // by message
	open     bool                        // all open turns are in turns, but for orphans
	outcomes int                         // in records

	wrong int // guesses in a row that were
	pause int // transactions until the next one
}

// latest are entries of a session that were used lately, by key.
type latest struct{ young, old map[string]head }

// head is an entry without its session, its key and its payload: so many of them are
// remembered that nothing in them is to be followed.
type head struct {
	cursor, since, textLen, grown uint64
	schema                        uint32
	ord                           session.Ord
	sum                           session.Hash
}

func (l *latest) get(key string) (h head, known bool) {
	if h, known = l.young[key]; known {
		return h, true
	}
	if h, known = l.old[key]; known {
		l.set(key, h)
	}
	return h, known
}

func (l *latest) set(key string, h head) {
	if len(l.young) >= latestHeads {
		clear(l.old)
		l.old, l.young = l.young, l.old
	}
	if l.young == nil {
		l.young = make(map[string]head, len(l.old))
	}
	l.young[key] = h // which goes before what l.old may have
}

func (l *latest) drop(key string) {
	delete(l.young, key)
	delete(l.old, key)
}

// shorten keeps the entries that the last events up to cursor have written, if that is worth
// the trouble.
func (l *latest) shorten(cursor uint64) {
	if l.size() <= lastEvents*5/4 {
		return
	}
	few := make(map[string]head)
	for _, heads := range []map[string]head{l.old, l.young} {
		for key, h := range heads {
			if max(h.cursor, h.grown)+lastEvents > cursor {
				few[key] = h
			}
		}
	}
	*l = latest{young: few}
}

func (l *latest) size() int { return len(l.young) + len(l.old) }

// versionedStream is a stream with its row's own version.
type versionedStream struct {
	row     ledger.Stream
	version int64
}

func newRecollection() *recollection {
	r := &recollection{}
	r.forget()
	return r
}

// forget keeps nothing but how guesses have gone.
func (r *recollection) forget() {
	*r = recollection{streams: map[string]versionedStream{}, records: map[string][]*ledger.Record{}, grants: map[string]capability.Grant{},
		turns: map[string]session.Turn{}, wrong: r.wrong, pause: r.pause}
}

// size is how many rows there are.
func (r *recollection) size() int {
	return 1 + len(r.streams) + len(r.grants) + r.heads.size() + len(r.turns) + r.outcomes
}

// take gives what is remembered of sessions, which is forgotten until it is put
// back; nil for each of which nothing is.
func (m *memory) take(ids []string) map[string]*recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := make(map[string]*recollection, len(ids))
	for _, id := range ids {
		r := m.sessions[id]
		if taken[id] = r; r != nil {
			m.rows -= r.size()
			delete(m.sessions, id)
		}
	}
	return taken
}

// put remembers sessions. Where that is too much, others lose all entries but those that their
// last events have written, and then are forgotten, until there is room for more. If that is not
// enough, it goes on with those of the same transaction.
func (m *memory) put(sessions map[string]*recollection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[string]*recollection{}
	}
	for id, r := range sessions {
		if r == nil || r.size() > mostOfSession {
			continue
		}
		if old := m.sessions[id]; old != nil { // of another transaction, at the same time
			m.rows -= old.size()
		}
		m.sessions[id] = r
		m.rows += r.size()
	}
	for _, spared := range []map[string]*recollection{sessions, nil} {
		if m.rows <= mostOfAll {
			return
		}
		m.shrink(spared, func(r *recollection) { r.heads.shorten(r.row.Cursor) })
		m.shrink(spared, nil)
	}
}

// shrink makes room for a while: sessions that are not spared lose what drop takes from them,
// or, if that is nil, are forgotten, until there is enough.
func (m *memory) shrink(spared map[string]*recollection, drop func(*recollection)) {
	for id, r := range m.sessions {
		if m.rows <= mostOfAll/8*7 {
			return
		}
		if spared[id] != nil {
			continue
		}
		m.rows -= r.size()
		if drop == nil {
			delete(m.sessions, id)
			continue
		}
		drop(r)
		m.rows += r.size()
	}
}

// heard keeps what the database's clock showed a moment ago.
func (m *memory) heard(clock int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock, m.clockAt = clock, time.Now()
}

// now is about what the database's clock shows, and hardly ever more: it showed
// what was heard before it was heard, and runs as fast as ours within 0.1 %. It
// is 0 if nothing was heard for long.
func (m *memory) now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.clock == 0 || now.Sub(m.clockAt) > clockKept {
		return 0
	}
	return m.tells(now)
}

// clockKept is how long a look at the database's clock is of use.
const clockKept = time.Minute

func (m *memory) tells(now time.Time) int64 {
	since := now.Sub(m.clockAt)
	return m.clock + (since - since/1000).Milliseconds()
}

// What a load has found, the session's row first, and a stream before its records.
// Nothing is remembered of a session that is not the transaction's own. Where a row is
// another than is remembered, what belongs to it is forgotten, whatever the version says:
// a database that was put back, or that a standby took over from, gives versions again.

func (r *recollection) isRow(s *session.Row, version int64) {
	if r == nil {
		return
	}
	if version != r.version || *s != r.row {
		r.forget()
	}
	r.row, r.version = *s, version
}

func (r *recollection) isStream(m *ledger.Stream, version int64) {
	if r == nil {
		return
	}
	found := versionedStream{*m, version}
	if r.streams[m.Outbox] != found {
		r.prune(m.Outbox, math.MaxUint64)
	}
	r.streams[m.Outbox] = found
}

func (r *recollection) isRecord(outbox string, rec *ledger.Record) {
	if r == nil {
		return
	}
	list := r.records[outbox]
	i, found := slices.BinarySearchFunc(list, rec.FirstSeq, func(have *ledger.Record, seq uint64) int { return cmp.Compare(have.FirstSeq, seq) })
	if found {
		r.outcomes -= len(list[i].Outcomes)
		list[i] = rec
	} else {
		r.records[outbox] = slices.Insert(list, i, rec)
	}
	r.outcomes += len(rec.Outcomes)
}

func (r *recollection) isGrant(g *capability.Grant) {
	if r != nil {
		r.grants[g.ID] = *g
	}
}

func (r *recollection) isHead(e *session.Entry) {
	if r != nil {
		r.heads.set(e.Key, head{e.Cursor, e.Since, e.TextLen, e.Grown, e.Schema, e.Ord, e.Sum})
	}
}

func (r *recollection) isTurn(t *session.Turn) {
	if r != nil {
		r.turns[t.Message] = *t
	}
}

func (r *recollection) hasOpenTurns() {
	if r != nil {
		r.open = true
	}
}

// prune forgets the records that end at or below through.
func (r *recollection) prune(outbox string, through uint64) {
	list := r.records[outbox]
	n := 0
	for n < len(list) && list[n].LastSeq() <= through {
		r.outcomes -= len(list[n].Outcomes)
		n++
	}
	r.records[outbox] = slices.Delete(list, 0, n)
}

// covering gives the records that hold what there is of the seqs from from to to;
// ok is false if they are not all remembered.
func (r *recollection) covering(stream *ledger.Stream, from, to uint64) (found []*ledger.Record, ok bool) {
	next := max(from, stream.AckedThrough+1)
	to = min(to, stream.LastSeq)
	for _, rec := range r.records[stream.Outbox] {
		if rec.LastSeq() < next {
			continue
		}
		if next > to || rec.FirstSeq > next {
			break
		}
		found, next = append(found, rec), rec.LastSeq()+1
	}
	return found, next > to
}

// changed takes in what a transaction has written; false if that is not known of
// everything.
func (t *tx) changed(c *session.Changes) bool {
	if len(c.Purge)+len(c.Grants)+len(c.Rotate)+len(c.Revoke)+len(c.DropState) > 0 {
		return false
	}
	for _, s := range c.Sessions {
		if r := t.own[s.ID]; r != nil {
			r.row, r.version = *s, t.version
		}
	}
	for _, m := range c.Streams {
		if r := t.own[m.Session]; r != nil {
			r.streams[m.Outbox] = versionedStream{*m, t.version}
		}
	}
	for _, p := range c.Prune {
		if r := t.own[p.Stream.Session]; r != nil {
			r.prune(p.Stream.Outbox, p.Through)
		}
	}
	for _, rec := range c.Records {
		t.own[rec.Stream.Session].isRecord(rec.Stream.Outbox, rec.Record)
	}
	for _, ch := range c.Charges {
		if r := t.own[capability.Target(ch.Ref)]; r != nil {
			if g, known := r.grants[ch.Ref]; known {
				g.Bytes += ch.Bytes
				r.grants[ch.Ref] = g
			}
		}
	}
	for id, keys := range c.DropEntries {
		for _, key := range keys {
			if r := t.own[id]; r != nil {
				r.heads.drop(key)
			}
		}
	}
	for _, list := range [][]*session.Entry{c.Entries, c.Grown} {
		for _, e := range list {
			t.own[e.Session].isHead(e)
		}
	}
	for _, u := range c.Turns {
		t.own[u.Session].isTurn(u)
	}
	return true
}

// takeOut takes what is remembered of the sessions that w locks, so that it is
// brought up to date.
func (t *tx) takeOut(w *session.Want) {
	if t.memory == nil || len(w.Sessions) == 0 {
		return
	}
	if t.own == nil {
		t.own = t.memory.take(w.Sessions)
	}
	for _, id := range w.Sessions {
		if t.own[id] == nil {
			t.own[id] = newRecollection()
		}
	}
}

// learn remembers what the transaction, which is committed, has read and written.
func (t *tx) learn() {
	if t.own == nil || t.version == 0 && len(t.saved) > 0 {
		return
	}
	for _, c := range t.saved {
		if !t.changed(c) {
			return
		}
	}
	if t.guess != nil {
		t.memory.right.Add(1)
		for _, r := range t.own {
			r.wrong = 0
		}
	}
	t.memory.put(t.own)
}

// regret forgets what a guess that was wrong was made on, and puts the next one off:
// the more in a row came to nothing, the longer. What was compared with nothing, because
// it was not worth that or needs more, may be right.
func (t *tx) regret() {
	if t.guess.compared {
		t.memory.wrong.Add(1)
	}
	for id, r := range t.own {
		if r == nil {
			r = newRecollection()
			t.own[id] = r
		} else if t.guess.compared {
			r.forget()
		}
		r.wrong++
		r.pause = 1<<min(r.wrong-1, 6) - 1
	}
	if t.own != nil {
		t.memory.put(t.own)
	}
}
