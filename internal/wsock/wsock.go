// Package wsock holds WebSocket connections as servers of very many need them: one that is idle keeps next to no memory,
// several messages leave in one system call, and closing never hangs on a peer that does not answer. It knows nothing of
// what the messages say.
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

// The library's own buffers: it is given one frame at a time, and writes control frames only.
const (
	readBuffer  = 16
	writeBuffer = 256
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	Subprotocols   []string // the best first
	OriginPatterns []string // browser origins let in besides the server's own host
	RemoteAddr     string   // name of the peer for logs; empty is the request's address
}

// Accept answers a handshake. On an error the response has been written. Messages of any size are taken until
// SetReadLimit.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (*Conn, error) {
	c := &Conn{remote: opts.RemoteAddr}
	if c.remote == "" {
		c.remote = r.RemoteAddr
	}
	grab := &hijackGrabber{ResponseWriter: w}
	ws, err := websocket.Accept(grab, r, &websocket.AcceptOptions{
		Subprotocols:    opts.Subprotocols,
		OriginPatterns:  opts.OriginPatterns,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	c.ws, c.line = ws, grab.line
	c.SetReadLimit(-1)
	return c, nil
}

// DialOptions are the client's side of a handshake.
type DialOptions struct {
	HTTPClient   *http.Client // used as it is, but for redirects
	Header       http.Header
	Subprotocols []string
}

// Dial opens a WebSocket to a ws:// or wss:// (http, https) URL. It follows no redirects: secrets that will be sent are meant
// for the host of the URL only, and over TLS if it says so. The response, if there was one, comes with an error too.
// Messages of any size are taken until SetReadLimit.
func Dial(ctx context.Context, url string, opts DialOptions) (*Conn, *http.Response, error) {
	grab := &bodyGrabber{next: opts.HTTPClient.Transport}
	client := *opts.HTTPClient
	client.Transport = grab
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &Conn{remote: url}
	ws, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
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
	c.ws, c.line, c.client = ws, grab.line, true
	c.SetReadLimit(-1)
	return c, resp, nil
}

// hijackGrabber and bodyGrabber put a line below a WebSocket.
type hijackGrabber struct {
	http.ResponseWriter
	line *line
}

func (g *hijackGrabber) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := rw.Reader.Peek(rw.Reader.Buffered())
	if err != nil {
		return nil, nil, err
	}
	g.line = newLine(socket.New(conn, conn), bytes.Clone(early))
	over := connLine{conn, g.line}
	// The server's buffers, made for requests, would stay for as long as the connection lives.
	return over, bufio.NewReadWriter(bufio.NewReaderSize(over, readBuffer), bufio.NewWriterSize(over, writeBuffer)), nil
}

type bodyGrabber struct {
	next http.RoundTripper
	line *line
}

func (g *bodyGrabber) RoundTrip(r *http.Request) (*http.Response, error) {
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
	if _, ok := next.(*http.Transport); !ok { // another's may do anything between the body and the connection
		conn = nil
	}
	below, early := socket.New(rwc, conn), []byte(nil)
	if below.Lends() { // it is read past the body
		if early, err = readAhead(rwc, conn); err != nil {
			rwc.Close()
			return nil, err
		}
	}
	g.line = newLine(below, early)
	resp.Body = g.line
	return resp, nil
}

// readAhead takes what was read of a connection beyond the response, and no more.
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
	ws      *websocket.Conn
	line    *line
	client  bool
	remote  string
	buf     *[]byte // the present message
	cut     int
	limit   int64
	asked   bool                    // reading was asked for the present message
	reading func(int, []byte) error // nil: nobody is asked
	lost    bool                    // reading has failed
	small   bool                    // what is written is written in small pieces
	once    sync.Once
}

// SetReadLimit bounds the messages read; beyond it the error wraps websocket.ErrMessageTooBig.
func (c *Conn) SetReadLimit(bytes int64) {
	c.limit = bytes
	c.ws.SetReadLimit(bytes)
}

// CutAt has messages beyond a number of bytes arrive cut to it, for callers that want to say themselves what is wrong with them. What
// follows is not to be read then.
func (c *Conn) CutAt(bytes int) { c.cut = bytes }

// SetReading has f asked before the buffer of a message that does not come in one small piece holds so many bytes, with
// what has come of it, and told 0 when it is let go of. An error is Read's. It is to be called before the first Read.
func (c *Conn) SetReading(f func(bytes int, have []byte) error) { c.reading = f }

// SetHeard has f called, while Read runs, when anything comes of the peer, be it a ping or a part of a message: it need
// not be pinged then. It is to be called before the first Read.
func (c *Conn) SetHeard(f func()) {
	c.line.reading.Lock()
	defer c.line.reading.Unlock()
	c.line.heard = f
}

// SetWrote has f called, while Write runs, when a part of what is written has been taken in and another follows. It is to be
// called before the first Write.
func (c *Conn) SetWrote(f func()) {
	c.line.mu.Lock()
	defer c.line.mu.Unlock()
	c.line.wrote = f
}

// LimitSilence has the system find a peer dead that acknowledges nothing for so long, where it can.
func (c *Conn) LimitSilence(longest time.Duration) { c.line.below.LimitSilence(longest) }

// KeepLittle is for peers that may read very slowly, and be many: Write keeps a few KB beside the messages, and the system
// takes in no more than unsent bytes that it cannot send yet, where it can be told so. It is to be called before the first
// Write.
func (c *Conn) KeepLittle(unsent int) {
	c.small = true
	if tcp := c.line.below.TCP(); tcp != nil {
		socket.LimitUnsent(tcp, unsent)
	}
}

// Subprotocol is what was agreed on, empty for none.
func (c *Conn) Subprotocol() string { return c.ws.Subprotocol() }

// RemoteAddr names the peer for logs.
func (c *Conn) RemoteAddr() string { return c.remote }

// readBuffers are for messages while they are handled; an idle connection has none.
var readBuffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	firstBytes = 4 << 10  // the size a buffer begins with
	maxPooled  = 64 << 10 // the largest that is kept
	slowGrowth = 4 << 20  // from here on it is not doubled any more
)

// Read waits for the next message. The bytes are valid until the next Read.
func (c *Conn) Read(ctx context.Context) (websocket.MessageType, []byte, error) {
	if c.buf != nil { // the previous message is done with
		if cap(*c.buf) <= maxPooled {
			readBuffers.Put(c.buf)
		}
		c.buf = nil
		if c.asked {
			c.asked = false
			_ = c.reading(0, nil) // what is let go of is not refused
		}
	}
	if !c.lost && ctx.Err() == nil {
		if kind, b, ok := c.next(ctx.Done() == nil); ok {
			return kind, b, nil
		}
	}
	kind, b, err := c.read(ctx)
	c.lost = c.lost || err != nil
	return kind, b, err
}

// buffer gives room for a message.
func (c *Conn) buffer() []byte {
	c.buf = readBuffers.Get().(*[]byte)
	b := (*c.buf)[:0]
	if cap(b) == 0 {
		b = make([]byte, 0, firstBytes)
	}
	return b
}

// read has the library read the next message.
func (c *Conn) read(ctx context.Context) (websocket.MessageType, []byte, error) {
	kind, r, err := c.ws.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	b := c.buffer()
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if c.cut > 0 && len(b) >= c.cut {
			*c.buf, c.lost = b, true
			return kind, b[:c.cut], nil
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

// grow gives a larger buffer with the same bytes.
func (c *Conn) grow(b []byte) ([]byte, error) {
	size := max(2*len(b), firstBytes)
	if len(b) >= slowGrowth {
		size = len(b) + len(b)/2
	}
	if c.reading != nil {
		c.asked = true
		if err := c.reading(size, b); err != nil {
			return nil, err
		}
	}
	grown := make([]byte, len(b), size)
	copy(grown, b)
	return grown, nil
}

// next takes a message past the library: one that is here already, or if it may wait the next that comes, unless that is
// not in one piece.
func (c *Conn) next(wait bool) (kind websocket.MessageType, b []byte, ok bool) {
	l, masked, most := c.line, !c.client, c.most()
	l.reading.Lock()
	defer l.reading.Unlock()
	h, ok := l.whole(masked, most)
	for !ok && wait && l.pull(masked, most) {
		h, ok = l.whole(masked, most)
	}
	if !ok {
		return 0, nil, false
	}
	end := h.size + int(h.length)
	b = append(c.buffer(), l.have[h.size:end]...)
	if h.masked {
		xor(b, h.key)
	}
	l.drop(end)
	*c.buf = b
	return websocket.MessageType(h.first & 0xf), b, true
}

// most is the largest message that breaks no limit.
func (c *Conn) most() int {
	most := bulkBytes
	if c.limit >= 0 {
		most = min(most, int(c.limit))
	}
	if c.cut > 0 {
		most = min(most, c.cut-1)
	}
	return most
}

// More says that there is a whole message to be read already: the next Read will not wait. It may miss one. It is for
// the goroutine that reads.
func (c *Conn) More() bool {
	if c.lost || !c.line.reading.TryLock() {
		return false
	}
	defer c.line.reading.Unlock()
	_, ok := c.line.whole(!c.client, c.most())
	return ok
}

// Ping asks the peer for a sign of life and waits for it. Some goroutine must be reading meanwhile.
func (c *Conn) Ping(ctx context.Context) error { return c.ws.Ping(ctx) }

// handshakeTime is how long the peer may take to answer a close frame.
const handshakeTime = time.Second

// Close says goodbye, waits a moment for the answer and closes. Further calls do nothing.
func (c *Conn) Close(code int, reason string) error {
	var err error
	c.once.Do(func() {
		hard := time.AfterFunc(handshakeTime, func() { c.line.Close() })
		defer hard.Stop()
		err = c.ws.Close(websocket.StatusCode(code), clip(reason))
	})
	if err != nil {
		return fmt.Errorf("close WebSocket: %w", err)
	}
	return nil
}

// CloseNow closes without a word.
func (c *Conn) CloseNow() error { return c.ws.CloseNow() }

// Closed gives the code and the reason with which the peer closed, if that is what err says.
func Closed(err error) (code int, reason string, ok bool) {
	bye, ok := errors.AsType[websocket.CloseError](err)
	return int(bye.Code), bye.Reason, ok
}

// TooBig says whether err is that a message was larger than the read limit.
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
