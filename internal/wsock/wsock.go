// Package wsock has WebSocket connections for servers with very many of them: an idle one uses next to no memory, several
// messages leave in one system call, and closing never hangs on a peer that does not answer. It knows nothing of the
// messages' content.
//
// # Lock order
//
//	frameConn.reading, then frameConn.mu (without waiting for it), then pings.mu
//
// # Bounds
//
// SetReadLimit or TruncateAt bounds a received message, SetAdmitRead its buffer; frameBytes and writeBytes bound the write
// buffer, handshakeTime bounds Close, and pongs that have to wait are one at a time, of one goroutine.
package wsock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/internal/socket"
)

// Sizes of the library's own buffers: it is given one frame at a time, and writes control frames only.
const (
	readBuffer  = 16
	writeBuffer = 256
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	Subprotocols   []string // most preferred first
	OriginPatterns []string // browser origins accepted besides the server's own host
	RemoteAddr     string   // name of the peer for logs; empty is the request's address
}

// Accept answers a handshake. On an error the response has been written. Messages of any size are accepted until
// SetReadLimit.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (*Conn, error) {
	c := &Conn{remote: opts.RemoteAddr}
	if c.remote == "" {
		c.remote = r.RemoteAddr
	}
	grab := &hijackWrapper{ResponseWriter: w}
	ws, err := websocket.Accept(grab, r, &websocket.AcceptOptions{
		OnPongReceived:  c.pong,
		Subprotocols:    opts.Subprotocols,
		OriginPatterns:  opts.OriginPatterns,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	c.ws, c.frameConn = ws, grab.frameConn
	c.SetReadLimit(-1)
	return c, nil
}

// DialOptions are the client's side of a handshake.
type DialOptions struct {
	HTTPClient   *http.Client // used unchanged, except for redirects
	Header       http.Header
	Subprotocols []string
}

// Dial opens a WebSocket to a ws:// or wss:// (http, https) URL. It follows no redirects: secrets that will be sent are meant
// for the host of the URL only, and over TLS if it says so. The response, if there was one, is returned with an error too.
// Messages of any size are accepted until SetReadLimit.
func Dial(ctx context.Context, url string, opts DialOptions) (*Conn, *http.Response, error) {
	grab := &bodyWrapper{next: opts.HTTPClient.Transport}
	client := *opts.HTTPClient
	client.Transport = grab
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &Conn{remote: url}
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		OnPongReceived:  c.pong,
		HTTPClient:      &client,
		HTTPHeader:      opts.Header,
		Subprotocols:    opts.Subprotocols,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, resp, err
	}
	if resp.Request != nil {
		c.remote = resp.Request.URL.Host
	}
	c.ws, c.frameConn, c.client = ws, grab.frameConn, true
	c.SetReadLimit(-1)
	return c, resp, nil
}

// hijackWrapper and bodyWrapper put a frameConn below a WebSocket.
type hijackWrapper struct {
	http.ResponseWriter
	frameConn *frameConn
}

func (g *hijackWrapper) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	g.frameConn = newFrameConn(socket.New(conn, conn), bytes.Clone(early))
	over := frameNetConn{conn, g.frameConn}
	// The server's buffers, made for requests, would stay for as long as the connection lives.
	return over, bufio.NewReadWriter(bufio.NewReaderSize(over, readBuffer), bufio.NewWriterSize(over, writeBuffer)), nil
}

type bodyWrapper struct {
	next      http.RoundTripper
	frameConn *frameConn
}

func (g *bodyWrapper) RoundTrip(r *http.Request) (*http.Response, error) {
	next := g.next
	if next == nil {
		next = http.DefaultTransport
	}
	var conn net.Conn
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { conn = got.Conn }}
	resp, err := next.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return resp, err
	}
	rwc, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return resp, nil
	}
	if _, ok := next.(*http.Transport); !ok { // another implementation may do anything between the body and the connection
		conn = nil
	}
	below, early := socket.New(rwc, conn), []byte(nil)
	if below.NonBlocking() { // reads bypass the body
		if early, err = readAhead(rwc, conn); err != nil {
			rwc.Close()
			return nil, err
		}
	}
	g.frameConn = newFrameConn(below, early)
	resp.Body = g.frameConn
	return resp, nil
}

// readAhead returns the bytes that were read of a connection beyond the response, and no more.
func readAhead(body io.Reader, conn net.Conn) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, err
	}
	early, err := io.ReadAll(body)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("read what came with the response: %w", err)
	}
	return early, conn.SetReadDeadline(time.Time{})
}

// Conn is a WebSocket. One goroutine reads and one writes at a time; Ping and Close may be called at any time, and Close
// unblocks all others.
type Conn struct {
	ws         *websocket.Conn
	frameConn  *frameConn
	client     bool
	remote     string
	buf        *[]byte // the present message
	truncateAt int
	limit      int64
	admitted   bool                    // admitRead was called for the present message
	admitRead  func(int, []byte) error // nil: not called
	readFailed bool                    // a read has failed
	lowMemory  bool                    // writes use small frames
	once       sync.Once
}

// SetReadLimit bounds the messages read; beyond it the error wraps websocket.ErrMessageTooBig.
func (c *Conn) SetReadLimit(bytes int64) {
	c.limit = bytes
	c.ws.SetReadLimit(bytes)
}

// TruncateAt makes messages beyond a number of bytes arrive truncated to it, for callers that report the error themselves.
// Nothing may be read after that.
func (c *Conn) TruncateAt(bytes int) { c.truncateAt = bytes }

// SetAdmitRead sets a function that is called before the buffer of a message that does not arrive in one small piece grows
// to bytes, with the bytes so far, and with 0 when it is released. Its error is Read's. Call it before the first Read.
func (c *Conn) SetAdmitRead(f func(bytes int, have []byte) error) { c.admitRead = f }

// SetOnActivity sets a function that is called, while Read runs, when anything arrives from the peer, be it a ping or a part
// of a message: the peer need not be pinged then. Call it before the first Read.
func (c *Conn) SetOnActivity(f func()) {
	c.frameConn.reading.Lock()
	defer c.frameConn.reading.Unlock()
	c.frameConn.onActivity = f
}

// SetOnProgress sets a function that is called, while Write runs, when a part was written and another follows. Call it
// before the first Write.
func (c *Conn) SetOnProgress(f func()) {
	c.frameConn.mu.Lock()
	defer c.frameConn.mu.Unlock()
	c.frameConn.onProgress = f
}

// SetUserTimeout makes the system detect a dead peer that acknowledges nothing for this long, where it can.
func (c *Conn) SetUserTimeout(longest time.Duration) { c.frameConn.inner.SetUserTimeout(longest) }

// SetLowMemory is for peers that may read very slowly, and be many: Write uses a few KB besides the messages, and the system
// accepts at most unsent bytes that it cannot send yet, where it has an option for that. Call it before the first Write.
func (c *Conn) SetLowMemory(unsent int) {
	c.lowMemory = true
	if tcp := c.frameConn.inner.TCP(); tcp != nil {
		socket.LimitUnsent(tcp, unsent)
	}
}

// Subprotocol returns the negotiated subprotocol, empty for none.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// RemoteAddr returns the peer's name for logs.
func (c *Conn) RemoteAddr() string { return c.remote }

// readBuffers are for messages while they are handled; an idle connection has none.
var readBuffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	firstBytes = 4 << 10  // a buffer's first size
	maxPooled  = 64 << 10 // the largest that is pooled
	slowGrowth = 4 << 20  // from this size on it is not doubled any more
)

// Read waits for the next message. The bytes are valid until the next Read.
func (c *Conn) Read(ctx context.Context) (websocket.MessageType, []byte, error) {
	if c.buf != nil { // the previous message is not used any more
		if cap(*c.buf) <= maxPooled {
			readBuffers.Put(c.buf)
		}
		c.buf = nil
		if c.admitted {
			c.admitted = false
			_ = c.admitRead(0, nil) // releasing is not refused
		}
	}
	if !c.readFailed && ctx.Err() == nil {
		if kind, b, ok := c.next(ctx.Done() == nil); ok {
			return kind, b, nil
		}
	}
	kind, b, err := c.read(ctx)
	c.readFailed = c.readFailed || err != nil
	return kind, b, err
}

// buffer returns an empty buffer for a message.
func (c *Conn) buffer() []byte {
	c.buf = readBuffers.Get().(*[]byte)
	b := (*c.buf)[:0]
	if cap(b) == 0 {
		b = make([]byte, 0, firstBytes)
	}
	return b
}

// read reads the next message through the library.
func (c *Conn) read(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, r, err := c.ws.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	b := c.buffer()
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if c.truncateAt > 0 && len(b) >= c.truncateAt {
			*c.buf, c.readFailed = b, true
			return kind, b[:c.truncateAt], nil
		}
		if err != nil {
			*c.buf = b
			if err == io.EOF {
				return kind, b, nil
			}
			return 0, nil, err
		}
		if len(b) == cap(b) {
			if b, err = c.grow(b); err != nil {
				return 0, nil, err
			}
		}
	}
}

// grow returns a larger buffer with the same bytes.
func (c *Conn) grow(b []byte) ([]byte, error) {
	size := max(2*len(b), firstBytes)
	if len(b) >= slowGrowth {
		size = len(b) + len(b)/2
	}
	if c.admitRead != nil {
		c.admitted = true
		if err := c.admitRead(size, b); err != nil {
			return nil, err
		}
	}
	grown := make([]byte, len(b), size)
	copy(grown, b)
	return grown, nil
}

// next reads a message without the library: one already received or, if it may wait, the next, unless that is fragmented.
// Connections at rest wait here, each on a stack of its own: little is on it.
func (c *Conn) next(wait bool) (kind websocket.MessageType, b []byte, ok bool) {
	l := c.frameConn
	l.reading.Lock()
	defer l.reading.Unlock()
	for {
		if kind, b, ok = c.takeMessage(); ok {
			return kind, b, true
		}
		if !c.handleControl() && !(wait && l.readMore(!c.client, c.maxMessage())) {
			return 0, nil, false
		}
	}
}

// takeMessage returns the next message if it has been received. frameConn.reading is held.
func (c *Conn) takeMessage() (kind websocket.MessageType, b []byte, ok bool) {
	l := c.frameConn
	h, ok := l.wholeMessage(!c.client, c.maxMessage())
	if !ok {
		return 0, nil, false
	}
	end := h.size + int(h.length)
	b = append(c.buffer(), l.unread[h.size:end]...)
	if h.masked {
		xor(b, h.key)
	}
	l.drop(end)
	*c.buf = b
	return websocket.MessageType(h.first & 0xf), b, true
}

// maxMessage returns the largest message that exceeds no limit.
func (c *Conn) maxMessage() int {
	most := readBufBytes
	if c.limit >= 0 {
		most = min(most, int(c.limit))
	}
	if c.truncateAt > 0 {
		most = min(most, c.truncateAt-1)
	}
	return most
}

// Buffered reports whether a whole message has been received: the next Read will not wait. It may miss one. It is for
// the goroutine that reads.
func (c *Conn) Buffered() bool {
	if c.readFailed || !c.frameConn.reading.TryLock() {
		return false
	}
	defer c.frameConn.reading.Unlock()
	_, ok := c.frameConn.wholeMessage(!c.client, c.maxMessage())
	return ok
}

// handshakeTime is how long the peer may take to answer a close frame.
const handshakeTime = time.Second

// Close sends a close frame, waits up to handshakeTime for the answer and closes. Further calls do nothing.
func (c *Conn) Close(code int, reason string) error {
	var err error
	c.once.Do(func() {
		hard := time.AfterFunc(handshakeTime, func() { c.frameConn.Close() })
		defer hard.Stop()
		err = c.ws.Close(websocket.StatusCode(code), clip(reason))
	})
	if err != nil {
		return fmt.Errorf("close WebSocket: %w", err)
	}
	return nil
}

// CloseNow closes without a close frame.
func (c *Conn) CloseNow() error { return c.ws.CloseNow() }

// Closed returns the code and the reason with which the peer closed, if that is err's cause.
func Closed(err error) (code int, reason string, ok bool) {
	bye, ok := errors.AsType[websocket.CloseError](err)
	return int(bye.Code), bye.Reason, ok
}

// TooBig reports whether err says that a message was larger than the read limit.
func TooBig(err error) bool { return errors.Is(err, websocket.ErrMessageTooBig) }

// clip shortens a reason to what a close frame holds.
func clip(s string) string {
	const most = 123
	if len(s) <= most {
		return s
	}
	end := most - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
