// Pings and pongs, which pass the library by: in its own loop it would wait for the next message on twice the stack, and peers
// that rest ping every few seconds; and it would wait there until a pong is written, which may take until the peer reads,
// whose reader may wait for its pong likewise. Those that do not arrive in one piece are the library's.

package wsock

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
)

const (
	opcodePing = 0x9
	opcodePong = 0xa
	// maxControl is the largest payload of a control frame (RFC 6455, 5.5).
	maxControl = 125
)

// pings are those of this side that wait for their pongs.
type pings struct {
	mu      sync.Mutex
	last    uint64               // the payload of the last one
	waiting map[uint64]chan bool // by payload; nil while nobody waits. Its channel gets true when the pong is there
	closed  bool

	pong    [][]byte // for writePongs to write: one at most
	due     bool     // it has that to write, or what is left of another
	ponging bool     // it runs
}

// begin returns the payload of a new ping, and the channel that its end is sent to: true with the pong, false when the
// connection is closed.
func (p *pings) begin() (payload uint64, ended <-chan bool) {
	c := make(chan bool, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c <- false
		return 0, c
	}
	if p.waiting == nil {
		p.waiting = map[uint64]chan bool{}
	}
	p.last++
	p.waiting[p.last] = c
	return p.last, c
}

// end is called when nobody waits for a pong any more.
func (p *pings) end(payload uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(payload)
}

func (p *pings) remove(payload uint64) {
	if delete(p.waiting, payload); len(p.waiting) == 0 {
		p.waiting = nil
	}
}

// answered is called with the payload of each pong. One that answers no ping is ignored.
func (p *pings) answered(payload []byte) {
	if len(payload) != 8 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := binary.BigEndian.Uint64(payload)
	if c := p.waiting[n]; c != nil {
		c <- true
		p.remove(n)
	}
}

// close ends all that wait, and those to come.
func (p *pings) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.waiting {
		c <- false
	}
	p.waiting = nil
}

// Ping asks the peer for a sign of life and waits for it. A goroutine must be reading meanwhile. If ctx ends while the ping
// is being written, the connection is closed.
func (c *Conn) Ping(ctx context.Context) error {
	n, ended := c.frameConn.pings.begin()
	defer c.frameConn.pings.end(n)
	if err := c.write(ctx, opcodePing, binary.BigEndian.AppendUint64(nil, n)); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	select {
	case answered := <-ended:
		if !answered {
			return net.ErrClosed
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no answer to a ping: %w", ctx.Err())
	}
}

// pong is called by the library for a pong that it has read.
func (c *Conn) pong(_ context.Context, payload []byte) { c.frameConn.pings.answered(payload) }

// handleControl answers the ping, or takes note of the pong, which is the next frame; false if that is something else, or not
// received as a whole. frameConn.reading is held.
func (c *Conn) handleControl() bool {
	l := c.frameConn
	if !l.delivered.atBoundary() {
		return false
	}
	h, ok := parseHeader(l.unread)
	if !ok || !h.control(!c.client) || len(l.unread) < h.size+int(h.length) {
		return false
	}
	var room [maxControl]byte
	payload := room[:copy(room[:h.length], l.unread[h.size:])]
	if h.masked {
		xor(payload, h.key)
	}
	if h.first&0xf == opcodePong {
		l.pings.answered(payload)
	} else if !c.tryPong(payload) {
		c.pongLater(payload)
	}
	l.drop(h.size + int(h.length))
	return true
}

// tryPong writes a pong, unless it would have to wait for another write or for the peer.
func (c *Conn) tryPong(payload []byte) bool {
	l := c.frameConn
	if !l.inner.NonBlocking() || !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	if len(l.unwritten) > 0 {
		return false
	}
	w := frameWriter{frameConn: l, b: make([]byte, 0, maxHeader+maxControl), masked: c.client, frameBytes: frameBytes}
	w.message(opcodePong, payload)
	n, err := l.inner.TryWrite(w.b)
	if err == nil && 0 < n && n < len(w.b) {
		l.unwritten = w.b[n:]
		c.pongLater(nil)
	}
	return n > 0 || err != nil // which the reader finds
}

// pongLater has a goroutine write a pong, or with nil what is left of one. A later one replaces it: the last ping alone has to
// be answered (RFC 6455, 5.5.3).
func (c *Conn) pongLater(payload []byte) {
	p := &c.frameConn.pings
	p.mu.Lock()
	defer p.mu.Unlock()
	if payload != nil {
		p.pong = [][]byte{bytes.Clone(payload)}
	}
	p.due = true
	if !p.ponging && !p.closed {
		p.ponging = true
		go c.writePongs()
	}
}

func (c *Conn) writePongs() {
	p := &c.frameConn.pings
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.due {
		pong := p.pong
		p.due, p.pong = false, nil
		p.mu.Unlock()
		err := c.write(context.Background(), opcodePong, pong...)
		p.mu.Lock()
		if err != nil { // the reader finds it
			break
		}
	}
	p.ponging = false
}
