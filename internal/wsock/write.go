// Writing messages: the frames are made here, so that many leave in one system call. Close frames are the library's.

package wsock

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/coder/websocket"
)

const (
	// frameBytes is how many bytes of a message go into one frame: a large message leaves in several, and control
	// frames (pings, and pongs) leave in between. Progress is also reported in between, which a slow peer may take minutes to
	// make.
	frameBytes = 64 << 10
	// writeBytes is the size of the write buffer: room for any frame.
	writeBytes = maxHeader + frameBytes
)

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBytes); return &b }}

const (
	// smallFrameBytes is frameBytes for a connection that is to use little memory.
	smallFrameBytes = 4 << 10
	// smallWriteBytes is enough for most writes: a peer that does not read then holds up no large buffer.
	smallWriteBytes = smallFrameBytes + 8*maxHeader
)

var smallWriteBuffers = sync.Pool{New: func() any { b := make([]byte, 0, smallWriteBytes); return &b }}

// buffersFor returns the pool of buffers for messages.
func (c *Conn) buffersFor(messages [][]byte) *sync.Pool {
	if c.lowMemory {
		return &smallWriteBuffers
	}
	bytes := 0
	for _, m := range messages {
		if c.inPlace(m) {
			m = nil
		}
		if bytes += maxHeader + len(m); bytes > smallWriteBytes {
			return &writeBuffers
		}
	}
	return &smallWriteBuffers
}

// inPlace reports whether a message is written from where it is, and not copied to the write buffer.
func (c *Conn) inPlace(m []byte) bool {
	return !c.client && !c.lowMemory && len(m) > smallFrameBytes && c.frameConn.inner.NonBlocking()
}

// Write sends messages, in order and together. The bytes may be reused when it returns. If ctx ends meanwhile the
// connection is closed.
func (c *Conn) Write(ctx context.Context, kind websocket.MessageType, messages ...[]byte) error {
	return c.write(ctx, opcodeOf(kind), messages...)
}

func (c *Conn) write(ctx context.Context, opcode byte, messages ...[]byte) error {
	if ctx.Done() != nil {
		if err := ctx.Err(); err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { c.frameConn.Close() })()
	}
	buffers := c.buffersFor(messages)
	pooled := buffers.Get().(*[]byte)
	w := frameWriter{frameConn: c.frameConn, b: (*pooled)[:0], masked: c.client, frameBytes: frameBytes}
	if c.lowMemory {
		w.frameBytes = smallFrameBytes
	}
	c.frameConn.mu.Lock()
	w.err = c.frameConn.writeRest()
	for _, m := range messages {
		w.inPlace = c.inPlace(m)
		w.message(opcode, m)
	}
	w.flush()
	c.frameConn.mu.Unlock()
	*pooled = w.b
	buffers.Put(pooled)
	if w.err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return w.err
}

// TryWrite sends a message as far as that goes without waiting. If done is false, the rest leaves before the next write,
// which may be empty. tried is false where a write might wait, and while another goroutine writes.
func (c *Conn) TryWrite(kind websocket.MessageType, message []byte) (tried, done bool, err error) {
	if !c.frameConn.inner.NonBlocking() || len(message) > frameBytes/2 || !c.frameConn.mu.TryLock() {
		return false, false, nil
	}
	defer c.frameConn.mu.Unlock()
	if len(c.frameConn.unwritten) > 0 {
		return false, false, nil
	}
	pooled := writeBuffers.Get().(*[]byte)
	defer writeBuffers.Put(pooled)
	w := frameWriter{frameConn: c.frameConn, b: (*pooled)[:0], masked: c.client, frameBytes: frameBytes}
	w.message(opcodeOf(kind), message)
	n, err := c.frameConn.inner.TryWrite(w.b)
	if err == nil && n < len(w.b) {
		c.frameConn.unwritten = bytes.Clone(w.b[n:])
	}
	return true, n == len(w.b), err
}

func opcodeOf(kind websocket.MessageType) byte {
	if kind == websocket.MessageBinary {
		return 0x2
	}
	return 0x1
}

// frameWriter collects frames. The frameConn's lock is held.
type frameWriter struct {
	frameConn  *frameConn
	b          []byte // of writeBytes, or smallWriteBytes if frames are small or all messages fit
	masked     bool   // as a client's have to be
	frameBytes int    // payload of one frame at most
	inPlace    bool   // the present message is not copied
	wrote      bool   // a frame of it was just written
	err        error  // the first error
}

func (w *frameWriter) flush() {
	if w.err == nil && len(w.b) > 0 {
		_, w.err = w.frameConn.inner.Write(w.b)
	}
	w.b = w.b[:0]
}

// message writes one message, a large one as several frames.
func (w *frameWriter) message(opcode byte, m []byte) {
	const fin, continuation = 0x80, 0
	for ; len(m) > w.frameBytes; m = m[w.frameBytes:] {
		w.frame(opcode, m[:w.frameBytes])
		opcode = continuation
	}
	w.frame(fin|opcode, m)
}

// frame writes one frame. If that makes it a long write, the lock is released before, for control frames to leave.
func (w *frameWriter) frame(first byte, payload []byte) {
	room := maxHeader
	if !w.inPlace {
		room += len(payload)
	}
	if w.wrote || cap(w.b)-len(w.b) < room {
		w.wrote = false
		if w.flush(); w.err == nil {
			w.frameConn.mu.Unlock()
			w.frameConn.onProgress()
			w.frameConn.mu.Lock()
		}
	}
	mask := byte(0)
	if w.masked {
		mask = 0x80
	}
	w.b = append(w.b, first)
	switch n := len(payload); {
	case n < 126:
		w.b = append(w.b, mask|byte(n))
	case n < 1<<16:
		w.b = binary.BigEndian.AppendUint16(append(w.b, mask|126), uint16(n))
	default:
		w.b = binary.BigEndian.AppendUint64(append(w.b, mask|127), uint64(n))
	}
	if w.inPlace {
		if w.wrote = true; w.err == nil {
			w.err = w.frameConn.inner.WriteBoth(w.b, payload)
		}
		w.b = w.b[:0]
		return
	}
	if !w.masked {
		w.b = append(w.b, payload...)
		return
	}
	key := rand.Uint32() // the message's author must not be able to predict its bytes on the wire
	w.b = binary.LittleEndian.AppendUint32(w.b, key)
	at := len(w.b)
	w.b = append(w.b, payload...)
	xor(w.b[at:], key)
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
