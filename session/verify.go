package session

// Whether a log is what was written: its rows one after the other, none missing,
// moved or changed, and of their payloads only those gone that a purge or the
// session's end took. It takes the rows alone, so that whoever can read a whole
// log can check it.

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Finding is something wrong with a log, by the first cursor that it concerns.
type Finding struct {
	Cursor uint64
	What   string
}

// Verifier checks a log that comes piece by piece. It belongs to one goroutine.
type Verifier struct {
	first  uint64 // the cursor before the log's first event
	cursor uint64 // of the last event seen
	prevs  []Hash // what the next event may go on from: one, while all is well; none: that is not known
	found  map[uint64]string
	gaps   [][2]uint64 // first and last cursor of what is missing
	known  map[uint64]Hash

	odd     map[uint64]*oddPayload
	whole   uint64 // the last event whose payload is as it was written
	deleted uint64 // cursor of the session's end
	misfits []*misfit
}

// oddPayload is a payload that is not as it was written. Purges say what is to
// be there in its place; the last one counts.
type oddPayload struct {
	gone      bool
	sum       Hash // of what is there
	explained bool
}

// misfit is an event that does not go on from the one before it.
type misfit struct {
	at    uint64 // where it stands
	prevs []Hash // what the event that belongs there may go on from
	event *Event
	home  uint64 // where it fits; 0 if that is not known
}

// maxMisfits bounds the search for what was moved.
const maxMisfits = 64

// NewVerifier begins with the event after cursor, whose hash is prev: the zero
// Hash and 0 for a whole log, a checkpoint's for one that was trimmed.
func NewVerifier(prev Hash, cursor uint64) *Verifier {
	return &Verifier{first: cursor, cursor: cursor, prevs: []Hash{prev}, found: map[uint64]string{}, known: map[uint64]Hash{}, odd: map[uint64]*oddPayload{}}
}

// NewVerifierAfter begins with the event after cursor where the hash before it is
// not known: what that event goes on from is not checked.
func NewVerifierAfter(cursor uint64) *Verifier {
	v := NewVerifier(Hash{}, cursor)
	v.prevs = nil
	return v
}

// Cursor is that of the last event added.
func (v *Verifier) Cursor() uint64 { return v.cursor }

// Head is the hash of the last event added, or that before the log's first.
func (v *Verifier) Head() (h Hash) {
	if len(v.prevs) > 0 {
		h = v.prevs[0]
	}
	return h
}

// Add takes the next events. They are kept only if something is wrong with them.
func (v *Verifier) Add(events []*Event) {
	for _, e := range events {
		v.add(e)
	}
}

func (v *Verifier) add(e *Event) {
	if e.Cursor <= v.cursor {
		v.note(e.Cursor, "stands where event %d belongs", v.cursor+1)
		return
	}
	switch missing := e.Cursor - v.cursor - 1; {
	case missing == 1:
		v.note(v.cursor+1, "is missing")
	case missing > 1:
		v.note(v.cursor+1, "is missing, and all up to event %d", e.Cursor-1)
	}
	if e.Cursor != v.cursor+1 {
		v.prevs = nil
		v.gaps = append(v.gaps, [2]uint64{v.cursor + 1, e.Cursor - 1})
	}
	v.cursor = e.Cursor
	if !v.fits(e) {
		v.misfit(e)
	} else {
		v.prevs = append(v.prevs[:0], e.Hash)
	}
	if head, known := v.known[e.Cursor]; known && !slices.Contains(v.prevs, head) {
		v.note(e.Cursor, "is not the one that the session was at")
	}
	v.payload(e)
}

// Expect says what is known beforehand: the hash that the event at cursor, yet to
// be added, had at some time.
func (v *Verifier) Expect(cursor uint64, head Hash) { v.known[cursor] = head }

func (v *Verifier) note(cursor uint64, what string, args ...any) {
	if _, noted := v.found[cursor]; !noted {
		v.found[cursor] = fmt.Sprintf(what, args...)
	}
}

// fits says whether e goes on from what may be before it.
func (v *Verifier) fits(e *Event) bool {
	return len(v.prevs) == 0 || slices.ContainsFunc(v.prevs, func(prev Hash) bool { return Chain(prev, e) == e.Hash })
}

// misfit takes in an event that does not. What follows may go on from it as it
// stands, from what it would be with the fields it has, or from what stood here.
func (v *Verifier) misfit(e *Event) {
	m := &misfit{at: e.Cursor, prevs: slices.Clone(v.prevs), event: new(*e)}
	m.event.Payload = nil
	next := []Hash{e.Hash}
	for _, prev := range m.prevs {
		next = append(next, Chain(prev, e))
	}
	v.prevs = append(next, m.prevs[:min(len(m.prevs), 8)]...)
	if len(v.misfits) == maxMisfits {
		v.note(e.Cursor, "was changed")
		return
	}
	v.misfits = append(v.misfits, m)
	for again := true; again; {
		again = false
		for _, x := range v.misfits {
			for _, place := range v.misfits {
				again = v.settle(x, place) || again
			}
		}
	}
}

// settle says whether x was found to belong where place is, which tells what
// the event after that one goes on from.
func (v *Verifier) settle(x, place *misfit) bool {
	moved := *x.event
	moved.Cursor = place.at
	if x.home != 0 || !slices.ContainsFunc(place.prevs, func(prev Hash) bool { return Chain(prev, &moved) == moved.Hash }) {
		return false
	}
	x.home = place.at
	for _, after := range v.misfits {
		if after.at == place.at+1 {
			after.prevs = append(after.prevs, moved.Hash)
		}
	}
	if place.at == v.cursor {
		v.prevs = append(v.prevs, moved.Hash)
	}
	return true
}

// payload holds an event's payload against its sum, and takes in what a purge
// says of others.
func (v *Verifier) payload(e *Event) {
	switch {
	case e.Payload == nil:
		v.odd[e.Cursor] = &oddPayload{gone: true}
	case SumOf(e.Payload) != e.Sum:
		v.odd[e.Cursor] = &oddPayload{sum: SumOf(e.Payload)}
		return
	default:
		v.whole = e.Cursor
	}
	switch e.Method {
	case MethodDelete:
		v.deleted = e.Cursor
	case MethodPurge:
		var p purgePayload
		if e.Payload == nil {
			return // so its session was deleted, or Findings says that this is missing
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			v.note(e.Cursor, "is a purge that cannot be read")
			return
		}
		for _, n := range p.Events {
			v.explain(e.Cursor, n)
		}
	}
}

// explain takes in what the purge at cursor by says of an event.
func (v *Verifier) explain(by uint64, n purgedNote) {
	if n.Cursor <= v.first || n.Cursor >= by {
		return // it was trimmed since
	}
	odd := v.odd[n.Cursor]
	if odd == nil && slices.ContainsFunc(v.gaps, func(g [2]uint64) bool { return g[0] <= n.Cursor && n.Cursor <= g[1] }) {
		return
	}
	if odd == nil {
		v.note(n.Cursor, "has its payload, which event %d purged", by)
		return
	}
	var sum Hash
	if n.Sum == "" {
		odd.explained = odd.gone
		return
	}
	b, err := hex.DecodeString(n.Sum)
	copy(sum[:], b)
	odd.explained = err == nil && !odd.gone && odd.sum == sum
}

// Findings is all that is wrong with what was added, by cursor.
func (v *Verifier) Findings() []Finding {
	found := make(map[uint64]string, len(v.found))
	for _, m := range v.misfits {
		switch m.home {
		case m.at: // it was what stood before it
		case 0:
			found[m.at] = "was changed"
		default:
			found[m.at] = fmt.Sprintf("is out of order: it belongs at %d", m.home)
		}
	}
	for cursor, what := range v.found {
		found[cursor] = what
	}
	for cursor, odd := range v.odd {
		switch {
		case found[cursor] != "" || odd.explained || odd.gone && v.deleted != 0:
		case odd.gone:
			found[cursor] = "has lost its payload, and no purge took it"
		default:
			found[cursor] = "has another payload than was written"
		}
	}
	if v.deleted != 0 && v.whole != 0 && found[v.whole] == "" {
		found[v.whole] = fmt.Sprintf("has its payload, although the session was deleted at %d", v.deleted)
	}
	list := make([]Finding, 0, len(found))
	for cursor, what := range found {
		list = append(list, Finding{cursor, what})
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return list
}

// End says what is known of the log's end: that the event at cursor has the hash
// head, and is the last one. It is called once all was added.
func (v *Verifier) End(cursor uint64, head Hash) {
	switch {
	case v.cursor < cursor && v.cursor+1 == cursor:
		v.note(cursor, "is missing: the log ends before it")
	case v.cursor < cursor:
		v.note(v.cursor+1, "is missing, and all up to event %d, where the log ended", cursor)
	case v.cursor > cursor:
		v.note(cursor+1, "is there, although the session has come to event %d only", cursor)
	case cursor > v.first && !slices.Contains(v.prevs, head):
		v.note(cursor, "is not the one that the session ends with")
	}
}

// maxTold bounds the findings of one message.
const maxTold = 20

// Err is nil if nothing is wrong, or FindingsError.
func (v *Verifier) Err() error { return FindingsError(v.Findings()) }

// FindingsError is nil for none, or an Internal fault that names them, at the
// first one's cursor.
func FindingsError(found []Finding) error {
	if len(found) == 0 {
		return nil
	}
	said := make([]string, 0, maxTold)
	for _, f := range found[:min(len(found), maxTold)] {
		said = append(said, fmt.Sprintf("event %d %s", f.Cursor, f.What))
	}
	if len(found) > maxTold {
		said = append(said, fmt.Sprintf("and %d more", len(found)-maxTold))
	}
	return fault.Internal.With("the log is not the one that was written: %s", strings.Join(said, "; ")).Pos(found[0].Cursor)
}

// VerifyChain is a Verifier for a log in one piece, to its end: events go on from
// the event at cursor, whose hash is prev. It returns the last hash.
func VerifyChain(prev Hash, cursor uint64, events []*Event) (Hash, error) {
	v := NewVerifier(prev, cursor)
	v.Add(events)
	return v.Head(), v.Err()
}
