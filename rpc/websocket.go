// The WebSocket transport, over coder/websocket.

package rpc

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// SubprotocolMerged lets several Cap'n Proto messages travel in one binary WebSocket message.
	SubprotocolMerged = "mooring.capnp.v1"
	// SubprotocolPlain has one Cap'n Proto message in each binary WebSocket message when sending. Several are accepted
	// always.
	SubprotocolPlain = "capnp"
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	OriginPatterns []string // browser origins let in besides the server's own host
	RemoteAddr     string   // name of the peer for logs; empty is the request's address
}

// Accept answers a WebSocket handshake, preferring the merged subprotocol; a client that offers none gets plain
// messages. On an error the response has been written. Hand the transport to NewConn, which tells it the limits.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	grab := &hijackGrabber{ResponseWriter: w}
	t := new(wsTransport)
	c, err := websocket.Accept(grab, r, &websocket.AcceptOptions{
		OnPingReceived:  t.onPing,
		Subprotocols:    []string{SubprotocolMerged, SubprotocolPlain},
		OriginPatterns:  opts.OriginPatterns,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	remote := opts.RemoteAddr
	if remote == "" {
		remote = r.RemoteAddr
	}
	t.init(c, grab.conn, remote)
	return t, nil
}

// DialOptions are the client's side of a handshake.
type DialOptions struct {
	TLS          *tls.Config  // for wss
	HTTPClient   *http.Client // used as it is, but for redirects; TLS and DialContext are ignored then
	DialContext  func(ctx context.Context, network, addr string) (net.Conn, error)
	Header       http.Header
	Timeout      time.Duration // for the handshake; 0 is 10 s
	Subprotocols []string      // offered; nil is merged, then plain
}

// Dial opens a WebSocket to a ws:// or wss:// (http, https) URL. It follows no redirects: secrets that will be sent
// are meant for the host of the URL only, and over TLS if it says so.
func Dial(ctx context.Context, url string, opts DialOptions) (Transport, error) {
	timeout := opts.Timeout
	if timeout <= 0 {
		timeout = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client := opts.HTTPClient
	if client == nil {
		client = &http.Client{Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			DialContext:       opts.DialContext,
			TLSClientConfig:   opts.TLS,
			DisableKeepAlives: true, // a connection that does not become a WebSocket is of no further use
		}}
	}
	grab := &bodyGrabber{next: client.Transport}
	grabbing := *client
	grabbing.Transport = grab
	grabbing.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	protocols := opts.Subprotocols
	if protocols == nil {
		protocols = []string{SubprotocolMerged, SubprotocolPlain}
	}
	t := new(wsTransport)
	c, resp, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		OnPingReceived:  t.onPing,
		HTTPClient:      &grabbing,
		HTTPHeader:      opts.Header,
		Subprotocols:    protocols,
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode/100 == 3 {
			if to, e := resp.Location(); e == nil {
				return nil, fmt.Errorf("the server redirects to %s, which is not followed: "+
					"if that is the right server, put its address in the ref", clip(to.Redacted(), 200))
			}
		}
		return nil, err
	}
	remote := url
	if resp != nil && resp.Request != nil {
		remote = resp.Request.URL.Host
	}
	t.init(c, grab.body, remote)
	return t, nil
}

// hijackGrabber and bodyGrabber keep what is below a WebSocket, so that it can be closed without any handshake.
type hijackGrabber struct {
	http.ResponseWriter
	conn net.Conn
}

func (g *hijackGrabber) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	g.conn = conn
	// The server's buffers, made for requests, would stay for as long as the connection lives.
	n := rw.Reader.Buffered()
	early, err := rw.Reader.Peek(n)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(early)), conn), max(wsReadBuffer, n))
	if _, err := in.Peek(n); err != nil { // who takes the connection over takes only what is buffered
		return nil, nil, err
	}
	return conn, bufio.NewReadWriter(in, bufio.NewWriterSize(conn, wsWriteBuffer)), nil
}

type bodyGrabber struct {
	next http.RoundTripper
	body io.Closer
}

func (g *bodyGrabber) RoundTrip(r *http.Request) (*http.Response, error) {
	next := g.next
	if next == nil {
		next = http.DefaultTransport
	}
	resp, err := next.RoundTrip(r)
	if err == nil {
		g.body = resp.Body
	}
	return resp, err
}

type wsTransport struct {
	c      *websocket.Conn
	below  io.Closer
	remote string
	merged bool
	heard  func()
	buf    *[]byte // the present batch
	once   sync.Once
}

func (t *wsTransport) init(c *websocket.Conn, below io.Closer, remote string) {
	t.c, t.below, t.remote, t.merged = c, below, remote, c.Subprotocol() == SubprotocolMerged
	t.setLimits(DefaultLimits())
}

func (t *wsTransport) setHeard(heard func()) { t.heard = heard }

// onPing runs while ReadBatch does. A peer that pings need not be pinged.
func (t *wsTransport) onPing(context.Context, []byte) bool {
	if t.heard != nil {
		t.heard()
	}
	return true
}

// setLimits bounds a WebSocket message by one Cap'n Proto message, or by what a peer merges.
func (t *wsTransport) setLimits(lim Limits) {
	t.c.SetReadLimit(int64(max(lim.MessageBytes, chunkBytes)))
}

// An idle connection of a server keeps these: enough for a frame's header and a small message. Larger ones go past them.
const (
	wsReadBuffer  = 512
	wsWriteBuffer = 1 << 10
)

// readBuffers are for messages while they are handled; an idle connection has none.
var readBuffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	wsFirst   = 4 << 10  // the size a buffer begins with
	maxPooled = 64 << 10 // the largest that is kept
)

func (t *wsTransport) ReadBatch(ctx context.Context) ([]byte, error) {
	if t.buf != nil { // the batch of before is done with
		if cap(*t.buf) <= maxPooled {
			readBuffers.Put(t.buf)
		}
		t.buf = nil
	}
	kind, r, err := t.c.Reader(ctx)
	if err != nil {
		if bye, ok := errors.AsType[websocket.CloseError](err); ok && (bye.Code == closeNormal || bye.Code == closeAway) {
			return nil, closedError(bye.Reason)
		}
		return nil, t.readError(err)
	}
	if kind != websocket.MessageBinary {
		return nil, frameError("a text message; Cap'n Proto travels in binary ones")
	}
	t.buf = readBuffers.Get().(*[]byte)
	b := (*t.buf)[:0]
	if cap(b) == 0 {
		b = make([]byte, 0, wsFirst)
	}
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			*t.buf = b
			return b, nil
		}
		if err != nil {
			return nil, t.readError(err)
		}
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
	}
}

// readError tells a message that is too large from a connection that was lost.
func (t *wsTransport) readError(err error) error {
	if errors.Is(err, websocket.ErrMessageTooBig) {
		return overLimit{LimitMessageBytes, err}
	}
	return err
}

func (t *wsTransport) WriteBatch(ctx context.Context, messages []byte) error {
	if t.merged {
		return t.c.Write(ctx, websocket.MessageBinary, messages)
	}
	for len(messages) > 0 {
		n := ownFrameSize(messages)
		if err := t.c.Write(ctx, websocket.MessageBinary, messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}

func (t *wsTransport) Ping(ctx context.Context) error { return t.c.Ping(ctx) }

// closeHandshakeTime is how long the peer may take to answer a close frame.
const closeHandshakeTime = time.Second

func (t *wsTransport) Close(code int, reason string) error {
	var err error
	t.once.Do(func() {
		hard := time.AfterFunc(closeHandshakeTime, func() { t.below.Close() })
		defer hard.Stop()
		err = t.c.Close(websocket.StatusCode(code), clip(reason, 120))
	})
	if err != nil {
		return fmt.Errorf("close WebSocket: %w", err)
	}
	return nil
}

func (t *wsTransport) RemoteAddr() string { return t.remote }
