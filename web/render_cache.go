// What events were rendered to: everybody who follows a session is sent the same,
// and it is made once.

package web

import (
	"container/list"
	"sync"

	"github.com/mooring-rpc/mooring/session"
)

// renderCache keeps what was rendered last, as it is sent. It is safe for
// concurrent use.
type renderCache struct {
	limit int // bytes

	mu      sync.Mutex
	bytes   int
	entries map[eventKey]*list.Element
	lru     *list.List // of *renderedEvent, the last used first
}

// eventKey names what an event shows: after a purge, which takes something of the
// payload and leaves the sum, it is another.
type eventKey struct {
	session string
	cursor  uint64
	hash    session.Hash // another, where the database was put back and has gone on
	sum     session.Hash
	payload int // bytes
}

type renderedEvent struct {
	key    eventKey
	size   int // that is counted; 0 until it is made
	once   sync.Once
	frames []byte
}

func newRenderCache(limit int) *renderCache {
	return &renderCache{limit: limit, entries: map[eventKey]*list.Element{}, lru: list.New()}
}

// get is an event as it is sent; not to be changed.
func (c *renderCache) get(e *session.Event, order session.Order) []byte {
	if e.Hidden || e.Redacted || e.Method == session.MethodAppendText || e.Payload == nil { // made faster than found, or another for another reader
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

// entryOverhead is what an event costs besides its bytes, about.
const entryOverhead = 256

// charge counts what was made, and lets go of what was not used for longest.
func (c *renderCache) charge(r *renderedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[r.key]; at == nil || at.Value != r {
		return // let go of while it was made
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
