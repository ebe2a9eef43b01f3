// What events were rendered to: everybody who follows a session is sent the same,
// and it is made once.

package web

import (
	"container/list"
	"sync"

	"github.com/mooring-rpc/mooring/session"
)

// renderedEvents keeps what was rendered last, as it is sent. It is safe for
// concurrent use.
type renderedEvents struct {
	limit int // bytes

	mu    sync.Mutex
	bytes int
	by    map[eventKey]*list.Element
	order *list.List // of *renderedEvent, the last used first
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
	key  eventKey
	size int // that is counted; 0 until it is made
	once sync.Once
	made []byte
}

func newRenderedEvents(limit int) *renderedEvents {
	return &renderedEvents{limit: limit, by: map[eventKey]*list.Element{}, order: list.New()}
}

// of is an event as it is sent; not to be changed.
func (c *renderedEvents) of(e *session.Event, order session.Order) []byte {
	if e.Hidden || e.Cut || e.Method == session.MethodAppendText || e.Payload == nil { // made faster than found, or another for another reader
		return appendEvent(nil, e, order.Place)
	}
	r := c.entry(eventKey{e.Session, e.Cursor, e.Hash, e.Sum, len(e.Payload)})
	r.once.Do(func() {
		r.made = appendEvent(nil, e, order.Place)
		c.count(r)
	})
	return r.made
}

func (c *renderedEvents) entry(key eventKey) *renderedEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[key]; at != nil {
		c.order.MoveToFront(at)
		return at.Value.(*renderedEvent)
	}
	r := &renderedEvent{key: key}
	c.by[key] = c.order.PushFront(r)
	return r
}

// renderedOverhead is what an event costs besides its bytes, about.
const renderedOverhead = 256

// count counts what was made, and lets go of what was not used for longest.
func (c *renderedEvents) count(r *renderedEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.by[r.key]; at == nil || at.Value != r {
		return // let go of while it was made
	}
	r.size = len(r.made) + renderedOverhead
	c.bytes += r.size
	for c.bytes > c.limit {
		last := c.order.Back().Value.(*renderedEvent)
		c.order.Remove(c.order.Back())
		delete(c.by, last.key)
		c.bytes -= last.size
	}
}
