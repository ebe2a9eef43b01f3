package outbox

// The stored refs as this process remembers them. Looking one up costs no statement,
// and a reading fetches no more than the rows that others have written: every row has
// the stamp of its last change, and a reading begins where the ones before it may have
// missed something.

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// refRow is a row of mooring_outbox_ref.
type refRow struct {
	id         string
	text       string // the ref's whole text; "" once it is gone
	role       Role
	external   string // of a rotated one: its secret's hash as text
	label      string
	redemption string
	saved      int64
	confirmed  int64
	rights     capability.Rights
	narrow     bool
	dead       fault.Code
}

// there says whether the row is a ref, or stands for one: neither a row that was
// never there nor one that was dropped.
func (r *refRow) there() bool { return r.role != "" && r.role != gone }

// ref is the row's ref; the error is for a text that cannot be read.
func (r *refRow) ref() (capability.Ref, error) { return capability.ParseRef(r.text) }

// told is what a server has told of the ref.
func (r *refRow) told() Told {
	t := Told{Rights: r.rights, Narrow: r.narrow, Dead: r.dead}
	if r.confirmed != 0 {
		t.Confirmed = time.UnixMilli(r.confirmed)
	}
	return t
}

func (r *refRow) tell(t Told) {
	r.rights, r.narrow, r.dead, r.confirmed = t.Rights, t.Narrow, t.Dead, 0
	if !t.Confirmed.IsZero() {
		r.confirmed = t.Confirmed.UnixMilli()
	}
}

// refCache is what is remembered. Slices and refs that it has given out are never
// changed.
type refCache struct {
	mu      sync.Mutex
	known   bool
	mark    string // with which the next reading begins
	marked  uint64 // the ticket of the reading it is of
	tickets uint64 // of readings and of writes of our own, in the order they began
	changes uint64 // counts what may have made a route that was found old

	rows map[string]*cachedRef
	was  map[string][]formerRef    // by a ref's id: those whose place it has taken
	next map[string]capability.Ref // by a ref's id: the one that is about to take its place
	// by has the refs an id, a session, a space or an external id stands for,
	// oldest first; "" has those of spaces.
	by map[string][]*SavedRef
}

// cachedRef is a row as it was last read or written.
type cachedRef struct {
	row    refRow
	ticket uint64
	live   *SavedRef // nil for a row that is no ref to send through
}

// reading is one look at the rows that were written since a mark.
type reading struct {
	ticket uint64
	mark   string
	known  bool // something was read before
}

// begin is told to merge about what is read from now on.
func (c *refCache) begin() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets++
	return reading{c.tickets, c.mark, c.known}
}

// merge takes what a reading has found; mark is the one with which the next one can
// begin, "" for none. It gives the targets whose refs are others now, and the rows whose text
// cannot be read.
//
// Readings overlap with each other, and with writes of our own. If another reading or
// write of a row began later, its row stands. It may not have seen everything that this
// reading has seen; so then this one does not move the mark, and the next reading begins
// where it would have begun without this one.
func (c *refCache) merge(r reading, rows []refRow, mark string) (targets []string, damaged []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := true
	for _, row := range rows {
		if old := c.rows[row.id]; old != nil && old.ticket > r.ticket {
			whole = whole && old.row == row
			continue
		}
		changed, broken := c.set(row, r.ticket)
		if broken {
			damaged = append(damaged, row.id)
		}
		if target := capability.Target(row.id); changed && !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	if !c.known {
		c.known, targets = true, nil // nothing was found before that could be old
	} else if len(targets) > 0 {
		c.changes++
	}
	if whole && mark != "" && r.ticket >= c.marked {
		c.mark, c.marked = mark, r.ticket
	}
	return targets, damaged
}

// put takes a row that this Box has written.
func (c *refCache) put(row refRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(row)
}

func (c *refCache) putLocked(row refRow) {
	c.tickets++
	if changed, _ := c.set(row, c.tickets); changed {
		c.changes++
	}
}

// set takes a row; changed says that it is not what it was, damaged that its text
// cannot be read and was not known to be so.
func (c *refCache) set(row refRow, ticket uint64) (changed, damaged bool) {
	old := c.rows[row.id]
	if old != nil && old.row == row {
		old.ticket = ticket
		return false, false
	}
	if old != nil {
		c.unlink(old)
	} else if !row.there() {
		c.keep(&cachedRef{row: row, ticket: ticket})
		return false, false
	}
	now := &cachedRef{row: row, ticket: ticket}
	c.keep(now)
	return true, !c.link(now)
}

func (c *refCache) keep(r *cachedRef) {
	if c.rows == nil {
		c.rows, c.by = make(map[string]*cachedRef), make(map[string][]*SavedRef)
		c.was, c.next = make(map[string][]formerRef), make(map[string]capability.Ref)
	}
	c.rows[r.row.id] = r
}

// link makes a row findable; false if its text cannot be read.
func (c *refCache) link(r *cachedRef) bool {
	if !r.row.there() {
		return true
	}
	ref, err := r.row.ref()
	if err != nil || ref.ID != r.row.id && r.row.role != rotated {
		return false
	}
	switch other := r.row.label; r.row.role {
	case rotated:
		c.was[other] = append(c.was[other], formerRef{r.row.id, r.row.external})
		c.relink(other)
	case rotating:
		c.next[other] = ref
		c.relink(other)
	default:
		c.show(r, ref)
	}
	return true
}

// unlink is the reverse of link.
func (c *refCache) unlink(r *cachedRef) {
	switch other := r.row.label; r.row.role {
	case rotated:
		c.was[other] = slices.DeleteFunc(c.was[other], func(f formerRef) bool { return f.id == r.row.id })
		c.relink(other)
	case rotating:
		delete(c.next, other)
		c.relink(other)
	default:
		c.hide(r)
	}
}

// relink has a ref found by the ids of those whose place it has taken.
func (c *refCache) relink(id string) {
	if r := c.rows[id]; r != nil && r.live != nil {
		ref := r.live.Ref
		c.hide(r)
		c.show(r, ref)
	}
}

func (c *refCache) show(r *cachedRef, ref capability.Ref) {
	row := &r.row
	s := &SavedRef{Ref: ref, RefMeta: RefMeta{Role: row.role, External: row.external, Label: row.label, Told: row.told()},
		Redemption: row.redemption, Saved: time.UnixMilli(row.saved), was: slices.Clone(c.was[row.id])}
	if next, ok := c.next[row.id]; ok {
		s.next = &next
	}
	r.live = s
	for _, k := range s.keys() {
		list := c.by[k]
		if n := len(list); n == 0 || older(list[n-1], s) < 0 {
			c.by[k] = append(list, s) // callers that have the list do not look beyond its end
			continue
		}
		at, _ := slices.BinarySearchFunc(list, s, older)
		c.by[k] = slices.Insert(slices.Clone(list), at, s)
	}
}

func (c *refCache) hide(r *cachedRef) {
	if r.live == nil {
		return
	}
	for _, k := range r.live.keys() {
		rest := slices.DeleteFunc(slices.Clone(c.by[k]), func(s *SavedRef) bool { return s == r.live })
		if c.by[k] = rest; len(rest) == 0 {
			delete(c.by, k)
		}
	}
	r.live = nil
}

// keys are what the ref can be found by.
func (r *SavedRef) keys() []string {
	keys := []string{r.ID, r.Target()}
	for _, was := range r.was {
		keys = append(keys, was.id)
	}
	if r.External != "" && r.External != r.Target() {
		keys = append(keys, r.External)
	}
	if capability.IsSpace(r.Target()) {
		keys = append(keys, "")
	}
	return keys
}

// older orders refs by when they were stored: those that one process stored within a
// millisecond by their redemption ids, which rise.
func older(a, b *SavedRef) int {
	return cmp.Or(a.Saved.Compare(b.Saved), strings.Compare(a.Redemption, b.Redemption), strings.Compare(a.ID, b.ID))
}

// get gives the refs that key stands for, oldest first; the slice is not to be changed.
func (c *refCache) get(key string) []*SavedRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return nil
	}
	return c.by[key]
}

// all gives every ref, oldest first.
func (c *refCache) all() (refs []SavedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rows {
		if r.live != nil {
			refs = append(refs, *r.live)
		}
	}
	slices.SortFunc(refs, func(a, b SavedRef) int { return older(&a, &b) })
	return refs
}

// now counts what may have made a route old.
func (c *refCache) now() (changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}
