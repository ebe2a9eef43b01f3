// Writing messages: the frames are made here, so that many leave in one system call. Control frames are the library's.

package wsock

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/coder/websocket"
)

// writeBytes is how much is gathered before it is written.
const writeBytes = 64 << 10

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBytes); return &b }}

// Write sends messages, in order and together. The bytes may be reused when it returns. When ctx ends meanwhile the
// connection is closed.
func (c *Conn) Write(ctx context.Context, kind websocket.MessageType, messages ...[]byte) error {
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { c.line.Close() })()
	}
	pooled := writeBuffers.Get().(*[]byte)
	w := frameWriter{line: c.line, b: (*pooled)[:0], masked: c.client}
	c.line.mu.Lock()
	w.err = c.line.writeRest()
	for _, m := range messages {
		w.message(opcodeOf(kind), m)
	}
	w.flush()
	c.line.mu.Unlock()
	*pooled = w.b
	writeBuffers.Put(pooled)
	if w.err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return w.err
}

// TryWrite sends a message as far as that goes without waiting. If it is not done, the rest leaves before what is written
// next, be it nothing. It has not tried where waiting cannot be told from writing, and while somebody else writes.
func (c *Conn) TryWrite(kind websocket.MessageType, message []byte) (tried, done bool, err error) {
	if !c.line.below.Lends() || len(message) > writeBytes/2 || !c.line.mu.TryLock() {
		return false, false, nil
	}
	defer c.line.mu.Unlock()
	if len(c.line.rest) > 0 {
		return false, false, nil
	}
	pooled := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(pooled)
	w := frameWriter{line: c.line, b: (*pooled)[:0], masked: c.client}
	w.message(opcodeOf(kind), message)
	n, err := c.line.below.TryWrite(w.b)
	if err == nil && n < len(w.b) {
		c.line.rest = bytes.Clone(w.b[n:])
	}
	return true, n == len(w.b), err
}

func opcodeOf(kind websocket.MessageType) byte {
	if kind == websocket.MessageBinary {
		return 0x2
	}
	return 0x1
}

// frameWriter gathers frames. The line's lock is held.
type frameWriter struct {
	line   *line
	b      []byte // of writeBytes
	masked bool   // as a client's have to be
	err    error  // the first
}

func (w *frameWriter) flush() {
	if w.err == nil && len(w.b) > 0 {
		_, w.err = w.line.below.Write(w.b)
	}
	w.b = w.b[:0]
}

// message writes one message as one frame.
func (w *frameWriter) message(opcode byte, m []byte) {
	if cap(w.b)-len(w.b) < mostHeader+min(len(m), writeBytes/2) {
		w.flush()
	}
	mask := byte(0)
	if w.masked {
		mask = 0x80
	}
	w.b = append(w.b, 0x80|opcode)
	switch n := len(m); {
	case n < 126:
		w.b = append(w.b, mask|byte(n))
	case n < 1<<16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, mask|126), uint16(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, mask|127), uint64(n))
	}
	if !w.masked {
		if len(m) <= cap(w.b)-len(w.b) {
			w.b = append(w.b, m...)
			return
		}
		w.flush() // the header with what is before it, and then the message without a copy
		if w.err == nil {
			_, w.err = w.line.below.Write(m)
		}
		return
	}
	key := rand.Uint32() // what may follow is not to be foreseen by who chose the message
	w.b = binary.LittleEndian.AppendUint32(w.b, key)
	for len(m) > 0 && w.err == nil {
		n := len(m)
		if room := cap(w.b) - len(w.b); n > room {
			if n = room &^ 3; n == 0 { // of four, so that the key starts anew
				w.flush()
				continue
			}
		}
		from := len(w.b)
		w.b = append(w.b, m[:n]...)
		xor(w.b[from:], key)
		m = m[n:]
	}
}

// xor masks b with a key that begins at its first byte.
func xor(b []byte, key uint32) {
	key8 := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^key8)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(key >> (8 * (i % 4)))
	}
}
