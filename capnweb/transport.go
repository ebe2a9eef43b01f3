// Transports: what carries messages between two peers, and the handler of WebSockets and batches at one URL. The transports of this
// package are made here, and are in internal/transport.

package capnweb

import (
	"context"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
	"github.com/mooring-rpc/mooring/internal/wsock"
)

// Transport moves whole messages. One goroutine reads at a time, one writes; Ping and Close may be called at any time,
// and Close unblocks all others. Ending the context of one operation may close the transport. An error of Read or Write is
// the end of the connection: io.EOF an orderly one by the peer; a *BrokenError is reported as it is.
//
// A Transport may also have these methods, which are described in internal/peerconn/transport.go:
//
//	SetOnActivity(heard func())
//	SetOnProgress(wrote func())
//	SetAdmitRead(reading func(bytes int, have []byte) error)
//	More() bool
//
// One that wraps another has to pass them on. Without them the peer's own pings and the pieces of a large write are not noticed,
// and a partial message is not charged.
type Transport interface {
	// Read waits for the next message. The bytes are valid until the next Read.
	Read(ctx context.Context) ([]byte, error)
	// Write sends messages, in order. The bytes may be reused when it returns.
	Write(ctx context.Context, messages [][]byte) error
	// Ping asks the peer for a sign of life and waits for it; nil at once if the transport has no pings.
	Ping(ctx context.Context) error
	// Close closes the transport, with the reason where it can send one. Further calls do nothing.
	Close(code int, reason string) error
	RemoteAddr() string
}

// Pipe returns two transports connected in memory, for tests: unbounded, in order, closed together.
func Pipe() (a, b Transport) { return transport.Pipe() }

// AcceptOptions are the server's side of a WebSocket handshake, and of an HTTP batch.
type AcceptOptions struct {
	// OriginPatterns are the browser origins accepted besides the server's own host: hosts ("app.example", "*.example"), or
	// with a scheme before them ("https://app.example"), in the syntax of path.Match. Requests without an origin come
	// from no browser's page and are accepted.
	OriginPatterns []string
	RemoteAddr     string // name of the peer for logs; empty is the request's address
}

// Accept answers a WebSocket handshake. On an error the response has been written. Pass the transport to NewConn, which
// sets its limits.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	t, err := transport.Accept(w, r, wsock.AcceptOptions{OriginPatterns: opts.OriginPatterns, RemoteAddr: opts.RemoteAddr})
	return limited(t, err)
}

// DialOptions are the client's side of a WebSocket handshake, and of an HTTP batch.
type DialOptions struct {
	HTTPClient *http.Client // used unchanged, except for redirects; nil: one without cookies or kept connections
	Header     http.Header
}

func (o DialOptions) client() *http.Client {
	if o.HTTPClient != nil {
		return o.HTTPClient
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
}

// Dial opens a WebSocket to url (ws, wss, http or https), within ctx and 10 seconds. It follows no redirects: secrets
// that will be sent are meant for the host of the URL only.
func Dial(ctx context.Context, url string, opts DialOptions) (Transport, error) {
	t, err := transport.Dial(ctx, url, opts.client(), opts.Header)
	return limited(t, err)
}

// limited returns a WebSocket with the default limits.
func limited(t *transport.WebSocket, err error) (Transport, error) {
	if err != nil {
		return nil, err
	}
	setLimits(t, DefaultLimits())
	return t, nil
}

// setLimits gives a transport the limits that it checks before it allocates.
func setLimits(t Transport, lim Limits) {
	if ws, ok := t.(*transport.WebSocket); ok {
		ws.SetLimits(lim.MessageBytes, lim.PingInterval+lim.PingTimeout)
	}
}

// Handler serves WebSockets and HTTP batches at one URL, with CORS for the accepted origins. main is called for each
// connection, after its origin was accepted, and returns the peer's main object; it may be called from many goroutines.
func Handler(main func(r *http.Request) any, cfg Config, opts AcceptOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isUpgrade(r) {
			serveBatch(w, r, func() Config { return withMain(cfg, main, r) }, opts)
			return
		}
		t, err := Accept(w, r, opts)
		if err != nil {
			return
		}
		_ = NewConn(t, withMain(cfg, main, r)).Run(r.Context()) // it is logged
	})
}

func withMain(cfg Config, main func(r *http.Request) any, r *http.Request) Config {
	cfg.Main = main(r)
	return cfg
}

// isUpgrade reports whether a request asks for a WebSocket, well-formed or not.
func isUpgrade(r *http.Request) bool {
	for _, v := range r.Header.Values("Upgrade") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "websocket") {
				return true
			}
		}
	}
	return false
}
