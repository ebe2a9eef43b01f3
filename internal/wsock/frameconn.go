// frameConn, below a WebSocket: few system calls while there is traffic, and little memory while there is none.

package wsock

import (
	"io"
	"net"
	"sync"

	"github.com/mooring-rpc/mooring/internal/socket"
)

const (
	readBufBytes = 16 << 10 // the read buffer, while there is input
	waitBufBytes = 512      // the buffer kept for waiting, where reading needs one: enough for a small message
)

var bulkReadBuffers = sync.Pool{New: func() any { b := make([]byte, readBufBytes); return &b }}

// frameConn is what a WebSocket reads from and writes to. The library is given one frame at a time, so that unfragmented
// messages can bypass it. Any number of goroutines may write; Close unblocks all.
type frameConn struct {
	inner *socket.Conn

	reading     sync.Mutex // held by the reader, and for long while nothing arrives
	waitBuf     []byte     // nil where reading uses a pooled buffer
	readBuf     *[]byte
	unread      []byte       // read, and not yet returned
	moreWaiting bool         // there was more to read than room
	readErr     error        // to be returned to the library
	onActivity  func()       // called when input has arrived; may be nil
	delivered   frameTracker // of the frames returned to the library
	pings       pings

	mu         sync.Mutex // held by a writer for whole frames
	unwritten  []byte     // rest of a frame that is partly written
	onProgress func()     // called during a long write when it makes progress
}

// newFrameConn makes a frameConn over a connection. early are bytes read before.
func newFrameConn(below *socket.Conn, early []byte) *frameConn {
	l := &frameConn{inner: below, unread: early, onProgress: func() {}}
	below.LimitUnsent()
	if !below.NonBlocking() {
		l.waitBuf = make([]byte, waitBufBytes)
	}
	return l
}

func (l *frameConn) Close() error {
	l.pings.close()
	return l.inner.Close()
}

// Read returns the rest of the present frame, or the next one, to the library.
func (l *frameConn) Read(p []byte) (int, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(l.unread) == 0 {
		if l.readErr == nil && l.delivered.skip >= waitBufBytes && len(p) >= waitBufBytes { // a large message is read directly into p
			n, err := l.inner.Read(p[:min(uint64(len(p)), l.delivered.skip)])
			l.delivered.consume(p[:n])
			l.received(n)
			return n, err
		}
		if l.readErr != nil {
			return 0, l.readErr
		}
		if err := l.fill(); err != nil {
			return 0, err
		}
	}
	n := l.delivered.consume(l.unread[:min(len(l.unread), len(p))])
	copy(p, l.unread[:n])
	l.drop(n)
	return n, nil
}

// fill reads available bytes. Where waiting needs the small buffer, the large one is used when there is more.
func (l *frameConn) fill() error {
	var n int
	var err error
	switch {
	case l.waitBuf == nil:
		l.readBuf, n, err = l.inner.ReadPooled(&bulkReadBuffers)
		if n > 0 {
			l.unread, l.moreWaiting = (*l.readBuf)[:n], n == readBufBytes
		}
	case l.moreWaiting:
		l.readBuf = bulkReadBuffers.Get().(*[]byte)
		n, err = l.inner.Read(*l.readBuf)
		l.unread, l.moreWaiting = (*l.readBuf)[:n], n == readBufBytes
	default:
		n, err = l.inner.Read(l.waitBuf)
		l.unread, l.moreWaiting = l.waitBuf[:n], n == waitBufBytes
	}
	l.received(n)
	if n > 0 {
		return nil // an error with bytes comes again with the next read
	}
	l.drop(0)
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (l *frameConn) received(n int) {
	if n > 0 && l.onActivity != nil {
		l.onActivity()
	}
}

// drop removes the first n unread bytes.
func (l *frameConn) drop(n int) {
	if l.unread = l.unread[n:]; len(l.unread) > 0 {
		return
	}
	l.unread = nil
	if l.readBuf != nil {
		bulkReadBuffers.Put(l.readBuf)
		l.readBuf = nil
	}
}

// wholeMessage finds an unfragmented message, completely read, of at most this many bytes. Everything else but whole pings and
// pongs (handleControl) is for the library: fragmented messages, close frames, violations of the protocol. masked is whether
// the peer's frames must be masked.
func (l *frameConn) wholeMessage(masked bool, most int) (h header, ok bool) {
	if !l.delivered.atBoundary() {
		return h, false
	}
	h, ok = parseHeader(l.unread)
	return h, ok && h.message(masked, min(most, len(l.unread)-h.size))
}

// readMore reads on until there is more of a message that may be unfragmented and of at most this many bytes; false when
// the library has to read.
func (l *frameConn) readMore(masked bool, most int) bool {
	switch {
	case l.readErr != nil || !l.delivered.atBoundary():
		return false
	case len(l.unread) == 0:
		l.readErr = l.fill()
		return l.readErr == nil
	case !l.moreWaiting: // the rest may take time, and is not waited for with a large buffer
		return false
	}
	return l.readRest(masked, most)
}

// readRest is readMore where a message has begun, and there is more to read.
func (l *frameConn) readRest(masked bool, most int) bool {
	if h, ok := parseHeader(l.unread); ok && (!h.message(masked, most) && !h.control(masked) || h.size+int(h.length) > readBufBytes || h.size+int(h.length) <= len(l.unread)) {
		return false
	}
	if l.readBuf == nil {
		l.readBuf = bulkReadBuffers.Get().(*[]byte)
	}
	b := *l.readBuf
	k := copy(b, l.unread)
	n, err := l.inner.Read(b[k:])
	l.unread, l.moreWaiting = b[:k+n], k+n == len(b)
	l.received(n)
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if n == 0 {
		l.readErr = err
	}
	return n > 0
}

// Write writes the library's control frames, each in one piece.
func (l *frameConn) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writeRest(); err != nil {
		return 0, err
	}
	return l.inner.Write(p)
}

// writeRest writes the rest of a partly written frame. The lock is held.
func (l *frameConn) writeRest() error {
	if len(l.unwritten) == 0 {
		return nil
	}
	_, err := l.inner.Write(l.unwritten)
	l.unwritten = nil
	return err
}

// frameNetConn is a frameConn as a net.Conn, for the server.
type frameNetConn struct {
	net.Conn
	*frameConn
}

func (c frameNetConn) Read(p []byte) (int, error)  { return c.frameConn.Read(p) }
func (c frameNetConn) Write(p []byte) (int, error) { return c.frameConn.Write(p) }
func (c frameNetConn) Close() error                { return c.frameConn.Close() }
