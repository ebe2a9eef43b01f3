package refs

// A cache of the stored refs. A lookup costs no statement, and a reading fetches only the rows
// that others have written: every row has the stamp of its last change, and a reading begins
// where the ones before it may have missed something.

import (
	"slices"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Row is a row of mooring_outbox_ref.
type Row struct {
	ID         string
	Text       string // the ref's whole text; "" once it is dropped
	Role       Role
	External   string // of a rotated ref: its secret's hash as text
	Label      string
	Redemption string
	Saved      int64
	Confirmed  int64
	Rights     capability.Rights
	Restricted bool
	Dead       fault.Code
}

// Exists reports whether the row is a ref, or stands for one: neither a row that never existed
// nor one that was dropped.
func (r *Row) Exists() bool { return r.Role != "" && r.Role != RoleGone }

// Ref parses the row's ref; the error is for an unreadable text.
func (r *Row) Ref() (capability.Ref, error) { return capability.ParseRef(r.Text) }

// status returns the ref's status, from a server's answers.
func (r *Row) status() RefStatus {
	t := RefStatus{Rights: r.Rights, Restricted: r.Restricted, Dead: r.Dead}
	if r.Confirmed != 0 {
		t.Confirmed = time.UnixMilli(r.Confirmed)
	}
	return t
}

func (r *Row) setStatus(t RefStatus) {
	r.Rights, r.Restricted, r.Dead, r.Confirmed = t.Rights, t.Restricted, t.Dead, 0
	if !t.Confirmed.IsZero() {
		r.Confirmed = t.Confirmed.UnixMilli()
	}
}

// Cache caches the rows. It is safe for concurrent use; slices and refs that it has returned
// are never changed.
type Cache struct {
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
	row    Row
	ticket uint64
	saved  *SavedRef // nil for a row that cannot be sent through
}

// Reading is one reading of the rows that were written since a stamp.
type Reading struct {
	ticket      uint64
	Since       string
	Incremental bool // something was read before
}

// BeginReading begins a reading; its result goes to merge.
func (c *Cache) BeginReading() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets++
	return Reading{c.tickets, c.since, c.loaded}
}

// Merge merges the rows of a reading; mark is where the next one can begin, "" if unknown. It
// returns the targets whose refs changed, and the ids of the rows whose text cannot be read.
//
// Readings overlap with each other, and with own writes. If another reading or write of a row
// began later, its row stands. It may not have seen everything that this reading has seen; so
// then this one does not advance since, and the next reading begins where it would have begun
// without this one.
func (c *Cache) Merge(r Reading, rows []Row, mark string) (targets []string, damaged []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := true
	for _, row := range rows {
		if old := c.rows[row.ID]; old != nil && old.ticket > r.ticket {
			whole = whole && old.row == row
			continue
		}
		changed, broken := c.set(row, r.ticket)
		if broken {
			damaged = append(damaged, row.ID)
		}
		if target := capability.Target(row.ID); changed && !slices.Contains(targets, target) {
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

// Put stores a row that this Box has written.
func (c *Cache) Put(row Row) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(row)
}

func (c *Cache) putLocked(row Row) {
	c.tickets++
	if changed, _ := c.set(row, c.tickets); changed {
		c.gen++
	}
}

// set stores a row; changed reports that it differs, damaged that its text has become
// unreadable.
func (c *Cache) set(row Row, ticket uint64) (changed, damaged bool) {
	old := c.rows[row.ID]
	if old != nil && old.row == row {
		old.ticket = ticket
		return false, false
	}
	if old != nil {
		c.unlink(old)
	} else if !row.Exists() {
		c.store(&cachedRef{row: row, ticket: ticket})
		return false, false
	}
	now := &cachedRef{row: row, ticket: ticket}
	c.store(now)
	return true, !c.link(now)
}

func (c *Cache) store(r *cachedRef) {
	if c.rows == nil {
		c.rows, c.byKey = make(map[string]*cachedRef), make(map[string][]*SavedRef)
		c.replaced, c.successors = make(map[string][]replacedRef), make(map[string]capability.Ref)
	}
	c.rows[r.row.ID] = r
}

// link indexes a row; false if its text cannot be read.
func (c *Cache) link(r *cachedRef) bool {
	if !r.row.Exists() {
		return true
	}
	ref, err := r.row.Ref()
	if err != nil || ref.ID != r.row.ID && r.row.Role != RoleRotated {
		return false
	}
	switch other := r.row.Label; r.row.Role {
	case RoleRotated:
		c.replaced[other] = append(c.replaced[other], replacedRef{r.row.ID, r.row.External})
		c.relink(other)
	case RoleRotating:
		c.successors[other] = ref
		c.relink(other)
	default:
		c.index(r, ref)
	}
	return true
}

// unlink is the reverse of link.
func (c *Cache) unlink(r *cachedRef) {
	switch other := r.row.Label; r.row.Role {
	case RoleRotated:
		c.replaced[other] = slices.DeleteFunc(c.replaced[other], func(f replacedRef) bool { return f.id == r.row.ID })
		c.relink(other)
	case RoleRotating:
		delete(c.successors, other)
		c.relink(other)
	default:
		c.unindex(r)
	}
}

// relink indexes a ref by the ids of the refs it has replaced.
func (c *Cache) relink(id string) {
	if r := c.rows[id]; r != nil && r.saved != nil {
		ref := r.saved.Ref
		c.unindex(r)
		c.index(r, ref)
	}
}

func (c *Cache) index(r *cachedRef, ref capability.Ref) {
	row := &r.row
	s := &SavedRef{Ref: ref, RefMeta: RefMeta{Role: row.Role, External: row.External, Label: row.Label, RefStatus: row.status()},
		Redemption: row.Redemption, Saved: time.UnixMilli(row.Saved), replaced: slices.Clone(c.replaced[row.ID]), Rotated: len(c.replaced[row.ID]) > 0}
	if next, ok := c.successors[row.ID]; ok {
		s.Successor = &next
	}
	r.saved = s
	for _, k := range s.keys() {
		list := c.byKey[k]
		if n := len(list); n == 0 || CompareByAge(list[n-1], s) < 0 {
			c.byKey[k] = append(list, s) // callers that have the list do not read beyond its length
			continue
		}
		at, _ := slices.BinarySearchFunc(list, s, CompareByAge)
		c.byKey[k] = slices.Insert(slices.Clone(list), at, s)
	}
}

func (c *Cache) unindex(r *cachedRef) {
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

// Get returns the refs for key, oldest first; the slice must not be changed.
func (c *Cache) Get(key string) []*SavedRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded {
		return nil
	}
	return c.byKey[key]
}

// All returns every ref, oldest first.
func (c *Cache) All() (refs []SavedRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.rows {
		if r.saved != nil {
			refs = append(refs, *r.saved)
		}
	}
	slices.SortFunc(refs, func(a, b SavedRef) int { return CompareByAge(&a, &b) })
	return refs
}

// Generation counts the changes that may have made a route stale.
func (c *Cache) Generation() (changes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gen
}

// ApplyUpdates caches updates that were written.
func (c *Cache) ApplyUpdates(news []Update) {
	if len(news) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range news {
		r := c.rows[n.ID]
		if r == nil || r.saved == nil {
			continue
		}
		row := r.row
		status := row.status()
		status.Dead = n.Status.Dead
		if !n.Status.Confirmed.IsZero() {
			status.Confirmed = n.Status.Confirmed
		}
		if n.Status.Rights != 0 {
			status.Rights = n.Status.Rights
		}
		row.setStatus(status)
		c.putLocked(row)
	}
}

// ByID returns a cached ref without asking the database; nil if there is none.
func (c *Cache) ByID(id string) *SavedRef {
	for _, r := range c.Get(id) {
		if !r.foundByTarget(id) {
			return r
		}
	}
	return nil
}

// Forget empties the cache, so that all refs are read again: for tests.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gen++
	c.loaded, c.since = false, ""
	c.rows, c.byKey, c.replaced, c.successors = nil, nil, nil, nil
}
