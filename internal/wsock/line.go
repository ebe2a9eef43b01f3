// The line below a WebSocket: few system calls while there is traffic, and little memory while there is none.

package wsock

import (
	"io"
	"net"
	"sync"

	"github.com/mooring-rpc/mooring/internal/socket"
)

const (
	bulkBytes  = 16 << 10 // what is read into, but while nothing comes
	smallBytes = 512      // what is kept to be read into then, where one cannot wait without: enough for a small message
)

var bulkBuffers = sync.Pool{New: func() any { b := make([]byte, bulkBytes); return &b }}

// line is what a WebSocket reads from and writes to. The library is given one frame at a time, so that messages which come
// in one piece can be taken past it. Any number may write; Close unblocks all.
type line struct {
	below *socket.Conn

	reading sync.Mutex // whoever reads holds it, and while nothing comes, for long
	small   []byte     // nil where reading lends a buffer
	bulk    *[]byte
	have    []byte // read, and not yet handed out
	more    bool   // there was more to be read than there was room
	failed  error  // for the library to come upon
	heard   func() // called when something has come; may be nil
	given   frames // to the library

	mu    sync.Mutex // whoever writes holds it for whole frames
	rest  []byte     // of a frame that has begun
	wrote func()     // called in between when a write goes on
}

// newLine makes a line over a connection. early was read before.
func newLine(below *socket.Conn, early []byte) *line {
	l := &line{below: below, have: early, wrote: func() {}}
	below.LimitUnsent()
	if !below.Lends() {
		l.small = make([]byte, smallBytes)
	}
	return l
}

func (l *line) Close() error { return l.below.Close() }

// Read gives the library what is left of the present frame, or the next one.
func (l *line) Read(p []byte) (int, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if len(l.have) == 0 {
		if l.failed == nil && l.given.skip >= smallBytes && len(p) >= smallBytes { // a large message is read to where it belongs
			n, err := l.below.Read(p[:min(uint64(len(p)), l.given.skip)])
			l.given.take(p[:n])
			l.cameIn(n)
			return n, err
		}
		if l.failed != nil {
			return 0, l.failed
		}
		if err := l.fill(); err != nil {
			return 0, err
		}
	}
	n := l.given.take(l.have[:min(len(l.have), len(p))])
	copy(p, l.have[:n])
	l.drop(n)
	return n, nil
}

// fill reads what has come. Where the small buffer has to be waited with, the large one is taken when there is more.
func (l *line) fill() error {
	var n int
	var err error
	switch {
	case l.small == nil:
		l.bulk, n, err = l.below.ReadLent(&bulkBuffers)
		if n > 0 {
			l.have, l.more = (*l.bulk)[:n], n == bulkBytes
		}
	case l.more:
		l.bulk = bulkBuffers.Get().(*[]byte)
		n, err = l.below.Read(*l.bulk)
		l.have, l.more = (*l.bulk)[:n], n == bulkBytes
	default:
		n, err = l.below.Read(l.small)
		l.have, l.more = l.small[:n], n == smallBytes
	}
	l.cameIn(n)
	if n > 0 {
		return nil // an error with bytes comes again with the next read
	}
	l.drop(0)
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

func (l *line) cameIn(n int) {
	if n > 0 && l.heard != nil {
		l.heard()
	}
}

// drop forgets the first n bytes at hand.
func (l *line) drop(n int) {
	if l.have = l.have[n:]; len(l.have) > 0 {
		return
	}
	l.have = nil
	if l.bulk != nil {
		bulkBuffers.Put(l.bulk)
		l.bulk = nil
	}
}

// whole finds a message that is at hand in one piece, of at most some bytes. Everything else (control frames, messages
// in parts, what breaks the rules) is for the library. masked is what the peer's frames have to be.
func (l *line) whole(masked bool, most int) (h header, ok bool) {
	if !l.given.between() {
		return h, false
	}
	h, ok = parseHeader(l.have)
	return h, ok && h.message(masked, min(most, len(l.have)-h.size))
}

// pull reads until there is more at hand of what may be a message in one piece, of at most some bytes; false when it is the
// library's turn.
func (l *line) pull(masked bool, most int) bool {
	if l.failed != nil || !l.given.between() {
		return false
	}
	if len(l.have) == 0 {
		l.failed = l.fill()
		return l.failed == nil
	}
	if !l.more { // the rest may take its time, and is not waited for with a large buffer
		return false
	}
	if h, ok := parseHeader(l.have); ok && (!h.message(masked, most) || h.size+int(h.length) > bulkBytes || h.size+int(h.length) <= len(l.have)) {
		return false
	}
	if l.bulk == nil {
		l.bulk = bulkBuffers.Get().(*[]byte)
	}
	b := *l.bulk
	k := copy(b, l.have)
	n, err := l.below.Read(b[k:])
	l.have, l.more = b[:k+n], k+n == len(b)
	l.cameIn(n)
	if n == 0 && err == nil {
		err = io.ErrNoProgress
	}
	if n == 0 {
		l.failed = err
	}
	return n > 0
}

// Write writes what the library has to say, which is control frames, each in one piece.
func (l *line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writeRest(); err != nil {
		return 0, err
	}
	return l.below.Write(p)
}

// writeRest writes what a frame that has begun still lacks. The lock is held.
func (l *line) writeRest() error {
	if len(l.rest) == 0 {
		return nil
	}
	_, err := l.below.Write(l.rest)
	l.rest = nil
	return err
}

// connLine is a line over a network connection, as a server has it.
type connLine struct {
	net.Conn
	*line
}

func (c connLine) Read(p []byte) (int, error)  { return c.line.Read(p) }
func (c connLine) Write(p []byte) (int, error) { return c.line.Write(p) }
func (c connLine) Close() error                { return c.line.Close() }
