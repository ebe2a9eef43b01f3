// Cache of rendered events: all followers of a session are sent the same bytes, which are
// rendered once.

package web

import (
	"container/list"
	"sync"

	"github.com/mooring-rpc/mooring/internal/session"
)

// renderCache holds the most recently used rendered events. It is safe for concurrent use.
type renderCache struct {
	limit int // bytes

	mu      sync.Mutex
	bytes   int
	entries map[eventKey]*list.Element
	lru     *list.List // of *renderedEvent, most recently used first
}

// eventKey identifies an event's content. The payload's length distinguishes it after a purge,
// which removes payload but keeps the sum.
type eventKey struct {
	session string
	cursor  uint64
	hash    session.Hash // differs after a restore from a backup
	sum     session.Hash
	payload int // bytes
}

type renderedEvent struct {
	key    eventKey
	size   int // bytes counted; 0 until rendered
	once   sync.Once
	frames []byte
}

func newRenderCache(limit int) *renderCache {
	return &renderCache{limit: limit, entries: map[eventKey]*list.Element{}, lru: list.New()}
}

// get returns an event as it is sent; the result must not be modified.
func (c *renderCache) get(e *session.Event, order session.Order) []byte {
	if e.Hidden || e.Redacted || e.Method == session.MethodAppendText || e.Payload == nil { // cheaper to render than to look up, or different per reader
		return appendEvent(nil, e, order.NewOrd)
	}
	r := c.lookup(eventKey{e.Session, e.Cursor, e.Hash, e.Sum, len(e.Payload)})
	r.once.Do(func() {
		r.frames = appendEvent(nil, e, order.NewOrd)
		c.charge(r)
	})
	return r.frames
}

func (c *renderCache) lookup(key eventKey) *renderedEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[key]; at != nil {
		c.lru.MoveToFront(at)
		return at.Value.(*renderedEvent)
	}
	r := &renderedEvent{key: key}
	c.entries[key] = c.lru.PushFront(r)
	return r
}

// entryOverhead is an event's approximate cost besides its bytes.
const entryOverhead = 256

// charge counts a rendered event, and evicts the least recently used.
func (c *renderCache) charge(r *renderedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[r.key]; at == nil || at.Value != r {
		return // evicted while it was rendered
	}
	r.size = len(r.frames) + entryOverhead
	c.bytes += r.size
	for c.bytes > c.limit {
		last := c.lru.Back().Value.(*renderedEvent)
		c.lru.Remove(c.lru.Back())
		delete(c.entries, last.key)
		c.bytes -= last.size
	}
}
