package outbox

// A cache of the stored refs. A lookup costs no statement, and a reading fetches only the rows
// that others have written: every row has the stamp of its last change, and a reading begins
// where the ones before it may have missed something.

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
	text       string // the ref's whole text; "" once it is dropped
	role       Role
	external   string // of a rotated ref: its secret's hash as text
	label      string
	redemption string
	saved      int64
	confirmed  int64
	rights     capability.Rights
	restricted bool
	dead       fault.Code
}

// exists reports whether the row is a ref, or stands for one: neither a row that never existed
// nor one that was dropped.
func (r *refRow) exists() bool { return r.role != "" && r.role != roleGone }

// ref parses the row's ref; the error is for an unreadable text.
func (r *refRow) ref() (capability.Ref, error) { return capability.ParseRef(r.text) }

// status returns the ref's status, from a server's answers.
func (r *refRow) status() RefStatus {
	t := RefStatus{Rights: r.rights, Restricted: r.restricted, Dead: r.dead}
	if r.confirmed != 0 {
		t.Confirmed = time.UnixMilli(r.confirmed)
	}
	return t
}

func (r *refRow) setStatus(t RefStatus) {
	r.rights, r.restricted, r.dead, r.confirmed = t.Rights, t.Restricted, t.Dead, 0
	if !t.Confirmed.IsZero() {
		r.confirmed = t.Confirmed.UnixMilli()
	}
}

// refCache caches the rows. It is safe for concurrent use; slices and refs that it has returned
// are never changed.
type refCache struct {
	mu          sync.Mutex
	loaded      bool
	since       string // where the next reading begins
	sinceTicket uint64 // the ticket of the reading that set since
	tickets     uint64 // counts readings and own writes, in the order they began
	gen         uint64 // counts the changes that may have made a route stale

	rows       map[string]*cachedRef
	replaced   map[string][]replacedRef  // by a ref's id: the refs that it has replaced
	successors map[string]capability.Ref // by a ref's id: the ref that is about to replace it
	// byKey has the refs for a ref id, a session, a space or an external id, oldest first; ""
	// has all space refs.
	byKey map[string][]*SavedRef
}

// cachedRef is a row as it was last read or written.
type cachedRef struct {
	row    refRow
	ticket uint64
	saved  *SavedRef // nil for a row that cannot be sent through
}

// refReading is one reading of the rows that were written since a stamp.
type refReading struct {
	ticket      uint64
	since       string
	incremental bool // something was read before
}

// beginReading begins a reading; its result goes to merge.
func (c *refCache) beginReading() refReading {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets++
	return refReading{c.tickets, c.since, c.loaded}
}

// merge merges the rows of a reading; mark is where the next one can begin, "" if unknown. It
// returns the targets whose refs changed, and the ids of the rows whose text cannot be read.
//
// Readings overlap with each other, and with own writes. If another reading or write of a row
// began later, its row stands. It may not have seen everything that this reading has seen; so
// then this one does not advance since, and the next reading begins where it would have begun
// without this one.
func (c *refCache) merge(r refReading, rows []refRow, mark string) (targets []string, damaged []string) {
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
	if !c.loaded {
		c.loaded, targets = true, nil // no route was found before that could be stale
	} else if len(targets) > 0 {
		c.gen++
	}
	if whole && mark != "" && r.ticket >= c.sinceTicket {
		c.since, c.sinceTicket = mark, r.ticket
	}
	return targets, damaged
}

// put stores a row that this Box has written.
func (c *refCache) put(row refRow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(row)
}

func (c *refCache) putLocked(row refRow) {
	c.tickets++
	if changed, _ := c.set(row, c.tickets); changed {
		c.gen++
	}
}

// set stores a row; changed reports that it differs, damaged that its text has become
// unreadable.
func (c *refCache) set(row refRow, ticket uint64) (changed, damaged bool) {
	old := c.rows[row.id]
	if old != nil && old.row == row {
		old.ticket = ticket
		return false, false
	}
	if old != nil {
		c.unlink(old)
	} else if !row.exists() {
		c.store(&cachedRef{row: row, ticket: ticket})
		return false, false
	}
	now := &cachedRef{row: row, ticket: ticket}
	c.store(now)
	return true, !c.link(now)
}

func (c *refCache) store(r *cachedRef) {
	if c.rows == nil {
		c.rows, c.byKey = make(map[string]*cachedRef), make(map[string][]*SavedRef)
		c.replaced, c.successors = make(map[string][]replacedRef), make(map[string]capability.Ref)
	}
	c.rows[r.row.id] = r
}

// link indexes a row; false if its text cannot be read.
func (c *refCache) link(r *cachedRef) bool {
	if !r.row.exists() {
		return true
	}
	ref, err := r.row.ref()
	if err != nil || ref.ID != r.row.id && r.row.role != roleRotated {
		return false
	}
	switch other := r.row.label; r.row.role {
	case roleRotated:
		c.replaced[other] = append(c.replaced[other], replacedRef{r.row.id, r.row.external})
		c.relink(other)
	case roleRotating:
		c.successors[other] = ref
		c.relink(other)
	default:
		c.index(r, ref)
	}
	return true
}

// unlink is the reverse of link.
func (c *refCache) unlink(r *cachedRef) {
	switch other := r.row.label; r.row.role {
	case roleRotated:
		c.replaced[other] = slices.DeleteFunc(c.replaced[other], func(f replacedRef) bool { return f.id == r.row.id })
		c.relink(other)
	case roleRotating:
		delete(c.successors, other)
		c.relink(other)
	default:
		c.unindex(r)
	}
}

// relink indexes a ref by the ids of the refs it has replaced.
func (c *refCache) relink(id string) {
	if r := c.rows[id]; r != nil && r.saved != nil {
		ref := r.saved.Ref
		c.unindex(r)
		c.index(r, ref)
	}
}

func (c *refCache) index(r *cachedRef, ref capability.Ref) {
	row := &r.row
	s := &SavedRef{Ref: ref, RefMeta: RefMeta{Role: row.role, External: row.external, Label: row.label, RefStatus: row.status()},
		Redemption: row.redemption, Saved: time.UnixMilli(row.saved), replaced: slices.Clone(c.replaced[row.id])}
	if next, ok := c.successors[row.id]; ok {
		s.successor = &next
	}
	r.saved = s
	for _, k := range s.keys() {
		list := c.byKey[k]
		if n := len(list); n == 0 || compareByAge(list[n-1], s) < 0 {
			c.byKey[k] = append(list, s) // callers that have the list do not read beyond its length
			continue
		}
		at, _ := slices.BinarySearchFunc(list, s, compareByAge)
		c.byKey[k] = slices.Insert(slices.Clone(list), at, s)
	}
}

func (c *refCache) unindex(r *cachedRef) {
	if r.saved == nil {
		return
	}
	for _, k := range r.saved.keys() {
		rest := slices.DeleteFunc(slices.Clone(c.byKey[k]), func(s *SavedRef) bool { return s == r.saved })
		if c.byKey[k] = rest; len(rest) == 0 {
			delete(c.byKey, k)
		}
	}
	r.saved = nil
}

// keys returns the keys of byKey for a ref.
func (r *SavedRef) keys() []string {
	keys := []string{r.ID, r.Target()}
	for _, was := range r.replaced {
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

// compareByAge orders refs by when they were stored; refs that one process stored within a
// millisecond by their redemption ids, which ascend.
func compareByAge(a, b *SavedRef) int {
	return cmp.Or(a.Saved.Compare(b.Saved), strings.Compare(a.Redemption, b.Redemption), strings.Compare(a.ID, b.ID))
}

// get returns the refs for key, oldest first; the slice must not be changed.
func (c *refCache) get(key string) []*SavedRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded {
		return nil
	}
	return c.byKey[key]
}

// all returns every ref, oldest first.
func (c *refCache) all() (refs []SavedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rows {
		if r.saved != nil {
			refs = append(refs, *r.saved)
		}
	}
	slices.SortFunc(refs, func(a, b SavedRef) int { return compareByAge(&a, &b) })
	return refs
}

// generation counts the changes that may have made a route stale.
func (c *refCache) generation() (changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gen
}
