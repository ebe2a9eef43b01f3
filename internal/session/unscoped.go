// Rows of a session as the store has read them, before they are limited to the scope of a ref.
// Code that reads for a peer gets these types from the store and from a commit. Their rows can be
// taken out only as a grant shows them, so a new reader cannot forget the scope.

package session

import (
	"slices"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
)

// scopable is a result of a read that can be limited to what a ref shows.
type scopable[P any] interface {
	access() *Access
	limitedTo(g *capability.Grant) P
}

// Unscoped is a result of a read, with rows that a reader's ref may not show. It is safe for
// concurrent use.
type Unscoped[P scopable[P]] struct{ whole P }

// NewUnscoped returns the result of a read; the caller does not change it afterwards.
func NewUnscoped[P scopable[P]](whole P) *Unscoped[P] { return &Unscoped[P]{whole: whole} }

// Access returns the rows by which a reader's ref is checked, in the snapshot of the result.
func (u *Unscoped[P]) Access() *Access { return u.whole.access() }

// Shown returns the result as g shows it. g is the grant that a check of Access returned.
func (u *Unscoped[P]) Shown(g *capability.Grant) P { return u.whole.limitedTo(g) }

// limitedTo returns the access with the session's row as a ref shows it: the head of the log is
// masked, a ref of some keys is not shown the session's external id, and only one that shows all of the
// session what it was forked from, and its parent.
func (a *Access) limitedTo(g *capability.Grant) Access {
	shown := *a
	if a.Row != nil {
		row := *a.Row
		row.Head = a.Key.Mask(g, row.Head)
		if !g.ShowsAllKeys() {
			row.External = ""
		}
		if !ShowsAll(g) { // nor is it shown the first event
			row.Origin, row.Parent = Origin{}, Parent{}
			if row.Revert.InForce() {
				row.Revert = Revert{Cursor: row.Revert.Cursor} // that there is one
			}
			row.Compaction = Compaction{}
		}
		shown.Row = &row
	}
	return shown
}

// Description is a session's row and its info entry, which has the title.
type Description struct {
	Access
	Info *Entry // nil if none was put, or the ref does not show it
}

// Title returns the info's title; "" if there is none.
func (d *Description) Title() string {
	if d.Info == nil {
		return ""
	}
	return gjson.GetBytes(d.Info.Payload, "title").String()
}

func (d *Description) access() *Access { return &d.Access }

func (d *Description) limitedTo(g *capability.Grant) *Description {
	shown := &Description{Access: d.Access.limitedTo(g), Info: d.Info}
	if d.Info != nil && !ShowsEntry(g, d.Info) {
		shown.Info = nil
	}
	return shown
}

func (p *LogPage) access() *Access { return &p.Access }

func (p *LogPage) limitedTo(g *capability.Grant) *LogPage {
	if ShowsAll(g) {
		return p
	}
	return &LogPage{Access: p.Access.limitedTo(g), Events: visibleEvents(g, p.Events, &p.Key), More: p.More}
}

func (p *StateRange) access() *Access { return &p.Access }

func (p *StateRange) limitedTo(g *capability.Grant) *StateRange {
	if ShowsAll(g) {
		return p
	}
	return &StateRange{Access: p.Access.limitedTo(g), Entries: shownEntries(g, p.Entries), Turns: shownTurns(g, p.Turns), More: p.More}
}

func (p *StateChunk) access() *Access { return &p.Access }

func (p *StateChunk) limitedTo(g *capability.Grant) *StateChunk {
	shown := &StateChunk{Access: p.Access.limitedTo(g), Entries: shownEntries(g, p.Entries), Turns: shownTurns(g, p.Turns), Last: p.Last}
	if ShowsAll(g) { // else nothing is left out
		shown.Compacted, shown.LeftOut = p.Compacted, p.LeftOut
	}
	if shown.Row != nil {
		shown.Hash = shown.Row.Head
	}
	return shown
}

func shownEntries(g *capability.Grant, all []*Entry) []*Entry {
	if ShowsAll(g) {
		return all
	}
	shown := make([]*Entry, 0, len(all))
	for _, e := range all {
		if ShowsEntry(g, e) {
			shown = append(shown, e.showTo(g))
		}
	}
	return shown
}

func shownTurns(g *capability.Grant, all []*Turn) []*Turn {
	if ShowsAll(g) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(t *Turn) bool { return !showsTurn(g, t) })
}

// NextKey returns the key to continue after, which the ref may not show; "" if the range has no more
// keys.
func NextKey(page *Unscoped[*StateRange]) string {
	if !page.whole.More {
		return ""
	}
	return page.whole.Last
}

// SameLog reports whether hash is what g shows of the event at cursor. The page has been read with
// that cursor in hashesAt.
func SameLog(page *Unscoped[*LogPage], g *capability.Grant, cursor uint64, hash Hash) bool {
	return cursor == 0 || page.whole.Key.Mask(g, page.whole.Hashes[cursor]) == hash
}

// HashAt returns the chain's hash of the event at cursor, which the page was read with in hashesAt;
// zero if there is no such event. It is for comparing: refs of some keys are not shown it.
func HashAt(page *Unscoped[*LogPage], cursor uint64) Hash { return page.whole.Hashes[cursor] }

// EventsOf returns the events of a page.
func EventsOf(page *Unscoped[*LogPage]) UnscopedEvents {
	return UnscopedEvents{list: page.whole.Events}
}

// UnscopedEvents are consecutive events of a session's log, of which a reader's ref may not show
// all. The zero value has none.
type UnscopedEvents struct{ list []*Event }

// NewUnscopedEvents returns consecutive events; the caller changes neither list nor events
// afterwards.
func NewUnscopedEvents(list []*Event) UnscopedEvents { return UnscopedEvents{list: list} }

// Len returns the number of events.
func (u UnscopedEvents) Len() int { return len(u.list) }

// First and Last return the cursors of the first and the last event, of which there is one.
func (u UnscopedEvents) First() uint64 { return u.list[0].Cursor }
func (u UnscopedEvents) Last() uint64  { return u.list[len(u.list)-1].Cursor }

// Covers reports whether the event at cursor is among the events.
func (u UnscopedEvents) Covers(cursor uint64) bool {
	return len(u.list) > 0 && u.First() <= cursor && cursor <= u.Last()
}

// From returns the events from cursor on, which Covers.
func (u UnscopedEvents) From(cursor uint64) UnscopedEvents {
	return UnscopedEvents{list: u.list[cursor-u.First():]}
}

// Append returns the events and those of next, which follow them. It may use the memory of u.
func (u UnscopedEvents) Append(next UnscopedEvents) UnscopedEvents {
	return UnscopedEvents{list: append(u.list, next.list...)}
}

// LastAt returns when the last event was committed, Unix ms; 0 if there is none.
func (u UnscopedEvents) LastAt() int64 {
	if len(u.list) == 0 {
		return 0
	}
	return u.list[len(u.list)-1].At
}

// hiddenEventBytes is the cost of an event that is not shown: a run of them is replaced by few
// cursor marks.
const hiddenEventBytes = 16

// Bytes is the approximate cost of event i on its way to a subscriber of some keys under g.
func (u UnscopedEvents) Bytes(i int, g *capability.Grant, keys *Selection) int {
	if e := u.list[i]; !showsEvent(g, e) || !keys.Shows(e) {
		return hiddenEventBytes
	}
	return u.list[i].Bytes()
}

// TotalBytes is the approximate cost of all events to a subscriber that is shown them.
func (u UnscopedEvents) TotalBytes() (bytes int) {
	for _, e := range u.list {
		bytes += e.Bytes()
	}
	return bytes
}

// ChainCheck remembers the last event whose hash was found to follow from the one before, so that
// it is hashed once for all readers. The zero value is ready; it is not safe for concurrent use.
type ChainCheck struct {
	head Hash
	next *Event
}

// Follows reports whether the event at cursor, which is among the events, follows an event with
// the hash head.
func (c *ChainCheck) Follows(u UnscopedEvents, cursor uint64, head Hash) bool {
	i := cursor - u.First()
	e := u.list[i]
	switch {
	case i > 0:
		return u.list[i-1].Hash == head
	case c.next == e && c.head == head:
		return true
	case HashEvent(head, e) != e.Hash:
		return false
	}
	c.head, c.next = head, e
	return true
}

// UnscopedFold folds a log, as it is stored, to the state at an earlier cursor.
type UnscopedFold struct {
	fold *Fold
	head Hash // of the event at the fold's cursor
	read int  // bytes of the events since the state was summed
}

// NewUnscopedFold returns the fold of no events of a session.
func NewUnscopedFold(session string) *UnscopedFold { return &UnscopedFold{fold: NewFold(session)} }

// Cursor returns the cursor of the last event that was folded.
func (f *UnscopedFold) Cursor() uint64 { return f.fold.Cursor }

// Add folds the events of a page, up to cursor through.
func (f *UnscopedFold) Add(page *Unscoped[*LogPage], through uint64) error {
	for _, e := range page.whole.Events {
		if e.Cursor > through {
			break
		}
		if err := f.fold.Apply(e); err != nil {
			return err
		}
		f.read, f.head = f.read+e.Bytes(), e.Hash
	}
	return nil
}

// Fits reports whether the fold holds at most about limit bytes: of the events read or, if those
// are more, of the folded state.
func (f *UnscopedFold) Fits(limit int) bool {
	if f.read <= limit {
		return true
	}
	f.read = 0
	for _, t := range f.fold.Turns() {
		f.read += t.Bytes()
	}
	for _, e := range f.fold.Entries() {
		f.read += e.Bytes()
	}
	return f.read <= limit/2 // so that much is read before it is summed again
}

// AccessAt returns the access of the session as it is now, with its row as of the fold's cursor.
func (f *UnscopedFold) AccessAt(now *Access) Access {
	at, row := *now, *now.Row
	row.Cursor, row.Head, row.Revert, row.Compaction = f.fold.Cursor, f.head, f.fold.Revert, f.fold.Compaction
	at.Row = &row
	return at
}

// Chunks calls give with the folded state, or the view of it that c makes, in chunks of at most about pieceBytes or
// one row, turns before entries, the last one marked. at is what AccessAt returned.
func (f *UnscopedFold) Chunks(at *Access, c Compaction, pieceBytes int, give func(*Unscoped[*StateChunk]) error) error {
	chunks := Chunker{Access: at, Compacted: c, PieceBytes: pieceBytes, Give: give}
	view := f.fold.view(c)
	for _, message := range view.leftOut {
		if err := chunks.LeftOut(message); err != nil {
			return err
		}
	}
	for _, t := range view.turns {
		if err := chunks.Turn(t); err != nil {
			return err
		}
	}
	for _, e := range view.entries {
		if err := chunks.Entry(e); err != nil {
			return err
		}
	}
	return chunks.Flush(true)
}

// Chunker cuts a state into chunks of at most about PieceBytes or one row.
type Chunker struct {
	Access     *Access // of all chunks; it is read when a chunk is given
	Compacted  Compaction
	PieceBytes int
	Give       func(*Unscoped[*StateChunk]) error

	next StateChunk
	size int
}

// LeftOut adds a message that is left out; all come before the first turn. Its error is Give's.
func (c *Chunker) LeftOut(message string) error {
	err := c.room(len(message) + 16)
	c.next.LeftOut = append(c.next.LeftOut, message)
	return err
}

// Turn adds a turn; all turns come before the first entry. Its error is Give's.
func (c *Chunker) Turn(t *Turn) error {
	err := c.room(t.Bytes())
	c.next.Turns = append(c.next.Turns, t)
	return err
}

// Entry adds an entry. Its error is Give's.
func (c *Chunker) Entry(e *Entry) error {
	err := c.room(e.Bytes())
	c.next.Entries = append(c.next.Entries, e)
	return err
}

func (c *Chunker) room(bytes int) error {
	if c.size > 0 && c.size+bytes > c.PieceBytes {
		if err := c.Flush(false); err != nil {
			return err
		}
	}
	c.size += bytes
	return nil
}

// Flush gives what was added since the last chunk.
func (c *Chunker) Flush(last bool) error {
	chunk := c.next
	chunk.Access, chunk.Compacted, chunk.Last = *c.Access, c.Compacted, last
	c.next, c.size = StateChunk{}, 0
	return c.Give(NewUnscoped(&chunk))
}

// Published is the changes of a committed group, for subscribers: to be sent after the commit,
// never before.
type Published struct {
	Sessions []PublishedSession // only sessions with events, by id
}

// PublishedSession is one session's new events, consecutive up to Row.Cursor. AuthChanged reports
// that authority over it changed: the refs of live objects of it must be checked again.
type PublishedSession struct {
	Row         Row
	Events      UnscopedEvents
	AuthChanged bool
}

// Shown are consecutive events as readers of one sight are shown them. It is safe for concurrent
// use.
type Shown struct {
	Events []*Event // not to be changed
	Cursor uint64   // of the last one in the log, shown or not,
	Head   Hash     // and its hash

	once    sync.Once
	encoded any
}

// Encoded returns what encode makes of the events, which is called once: all callers pass the same
// function.
func (s *Shown) Encoded(encode func([]*Event) any) any {
	s.once.Do(func() { s.encoded = encode(s.Events) })
	return s.encoded
}

// ShownCache remembers events that were shown, so that the next reader of equal sight shares them.
// The zero value is ready; it is not safe for concurrent use.
type ShownCache struct{ shown map[shownKey]*Shown }

// shownKey identifies events by the first one: those after it in a log never change while it is
// held.
type shownKey struct {
	sight Sight
	first *Event
	n     int
}

// maxShown bounds a cache: readers at the same place ask for the same events one after the other.
const maxShown = 16

// Shown returns the first n events of u as g and keys show them, whose sight is given. key masks
// hashes.
func (c *ShownCache) Shown(u UnscopedEvents, n int, sight Sight, g *capability.Grant, keys *Selection, key *HashKey) *Shown {
	at := shownKey{sight, u.list[0], n}
	if s := c.shown[at]; s != nil {
		return s
	}
	last := u.list[n-1]
	events := slices.Clone(u.list[:n]) // so that the page they are part of can be freed
	s := &Shown{Events: keys.Events(visibleEvents(g, events, key)), Cursor: last.Cursor, Head: last.Hash}
	if len(c.shown) >= maxShown || c.shown == nil {
		c.shown = make(map[shownKey]*Shown, maxShown)
	}
	c.shown[at] = s
	return s
}

// Clear forgets all.
func (c *ShownCache) Clear() { c.shown = nil }
