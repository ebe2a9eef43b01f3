// The byte stream transport: the standard two-party protocol over TCP, Unix sockets and the like.

package transport

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/socket"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// NewStream returns the transport of a byte stream.
func NewStream(rwc io.ReadWriteCloser) *Stream {
	conn, _ := rwc.(net.Conn)
	t := &Stream{rwc: rwc, sock: socket.New(rwc, conn), onProgress: func() {}, admitRead: func(int, []byte) error { return nil }}
	t.sock.LimitUnsent()
	return t
}

// Stream is a byte stream. There is no ping in it: the system finds a dead peer.
type Stream struct {
	rwc  io.ReadWriteCloser
	sock *socket.Conn // over rwc
	lim  framing.Limits
	once sync.Once

	buf        []byte // read but not returned yet: buf[start:end]
	start, end int
	pooled     *[]byte // of streamBuffers, if buf is one of them

	admitRead     func(int, []byte) error // called before buf grows to so many bytes
	admittedBytes int                     // the size it was called with last

	unwritten  []byte // to be written first
	onProgress func() // called when a piece was written
}

// SetLimits bounds received messages, and has the system find a dead peer in interval and timeout.
func (t *Stream) SetLimits(lim framing.Limits, interval, timeout time.Duration) {
	t.lim = lim
	if tcp := t.sock.TCP(); tcp != nil {
		// An error means a socket that is dead, which reading will show.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: interval, Interval: timeout / 4, Count: 4})
		t.sock.SetUserTimeout(interval + timeout)
	}
}

func (t *Stream) SetAdmitRead(reading func(int, []byte) error) { t.admitRead = reading }

// admitBytes asks whether the buffer may hold n bytes.
func (t *Stream) admitBytes(n int) error {
	if n == t.admittedBytes {
		return nil
	}
	t.admittedBytes = n
	return t.admitRead(n, t.buf[t.start:t.end])
}

func (t *Stream) SetOnProgress(wrote func()) { t.onProgress = wrote }

// streamBuffer is how many bytes are read at once, and kept by an idle connection that cannot wait without a buffer.
const streamBuffer = 4 << 10

// streamBuffers are for reading available data; an idle connection has none.
var streamBuffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

func (t *Stream) ReadBatch(context.Context) ([]byte, error) {
	for {
		whole, need, err := wholeFrames(t.buf[t.start:t.end], t.lim)
		if err != nil {
			return nil, err
		}
		if whole > 0 {
			batch := t.buf[t.start : t.start+whole]
			t.start += whole
			return batch, nil
		}
		n, err := t.fill(need)
		if n == 0 && err != nil {
			if t.end > t.start && err == io.EOF {
				return nil, framing.Error("the stream ends in the middle of it")
			}
			return nil, err
		}
	}
}

// fill reads available bytes, up to a message of need bytes and a little more.
func (t *Stream) fill(need int) (n int, err error) {
	if t.start < t.end || !t.sock.NonBlocking() {
		if err := t.ensureSpace(need); err != nil {
			return 0, err
		}
		n, err = t.sock.Read(t.buf[t.end:])
		t.end += n
		return n, err
	}
	t.releaseBuffer()
	t.buf, t.start, t.end = nil, 0, 0
	if err := t.admitBytes(0); err != nil {
		return 0, err
	}
	if t.pooled, n, err = t.sock.ReadPooled(&streamBuffers); n > 0 {
		t.buf, t.end = *t.pooled, n
	}
	return n, err
}

// releaseBuffer returns a pooled buffer in which nothing is left.
func (t *Stream) releaseBuffer() {
	if t.pooled != nil {
		streamBuffers.Put(t.pooled)
		t.pooled = nil
	}
}

// ensureSpace makes room for the rest of a message of need bytes, and a little more.
func (t *Stream) ensureSpace(need int) error {
	rest := t.buf[t.start:t.end]
	size := max(need, streamBuffer)
	if cap(t.buf) < size || (cap(t.buf) > 16*streamBuffer && size <= streamBuffer) {
		// Grow as bytes arrive, not by what a header promises.
		size = min(size, max(2*len(rest), 16*streamBuffer))
		return t.resizeBuffer(max(size, len(rest)+streamBuffer))
	}
	if t.start > 0 {
		t.end = copy(t.buf, rest)
		t.start = 0
	}
	if t.end == len(t.buf) {
		return t.resizeBuffer(2 * len(t.buf))
	}
	return nil
}

// resizeBuffer replaces the buffer by one of size bytes.
func (t *Stream) resizeBuffer(size int) error {
	if err := t.admitBytes(size); err != nil {
		return err
	}
	buf := make([]byte, size)
	t.end = copy(buf, t.buf[t.start:t.end])
	t.buf, t.start = buf, 0
	t.releaseBuffer()
	return nil
}

// wholeFrames returns how many bytes at the start of b are whole messages, and how many the first needs if none is.
func wholeFrames(b []byte, lim framing.Limits) (whole, need int, err error) {
	for {
		size, n, err := framing.Size(b[whole:], lim)
		if err != nil {
			return 0, 0, err
		}
		if n > len(b)-whole {
			return whole, n, nil
		}
		whole += size
	}
}

func (t *Stream) WriteBatch(_ context.Context, messages []byte) error {
	for _, b := range [][]byte{t.unwritten, messages} {
		for len(b) > 0 {
			n := min(len(b), peerconn.ChunkBytes)
			if _, err := t.sock.Write(b[:n]); err != nil {
				return err
			}
			if b = b[n:]; len(b) > 0 {
				t.onProgress()
			}
		}
	}
	t.unwritten = nil
	return nil
}

// TryWriteBatch implements peerconn.TryWriter.
func (t *Stream) TryWriteBatch(messages []byte) (tried, done bool, err error) {
	if !t.sock.NonBlocking() {
		return false, false, nil
	}
	n, err := t.sock.TryWrite(messages)
	if err == nil && n < len(messages) {
		t.unwritten = bytes.Clone(messages[n:])
	}
	return true, t.unwritten == nil, err
}

func (t *Stream) Ping(context.Context) error { return nil }

// Close sends an end of stream first and reads for a moment what the peer still sends: closing a socket with unread
// data would reset the connection, and the peer might never receive our last messages.
func (t *Stream) Close(int, string) error {
	var err error
	t.once.Do(func() {
		type halfCloser interface {
			CloseWrite() error
			SetReadDeadline(time.Time) error
		}
		if h, ok := t.rwc.(halfCloser); ok && h.CloseWrite() == nil && h.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(t.rwc, lingerBytes)) // neither the data nor the error is of use
		}
		err = t.rwc.Close()
	})
	return err
}

const (
	lingerTime  = 250 * time.Millisecond
	lingerBytes = 1 << 20
)

func (t *Stream) RemoteAddr() string {
	if c, ok := t.rwc.(*net.UnixConn); ok { // the other end seldom has a name
		return "unix:" + c.LocalAddr().String()
	}
	if c, ok := t.rwc.(net.Conn); ok {
		return c.RemoteAddr().String()
	}
	return "stream"
}
