// The WebSocket transport, over coder/websocket.

package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

const (
	// SubprotocolMerged lets several Cap'n Proto messages travel in one binary WebSocket message.
	SubprotocolMerged = "mooring.capnp.v1"
	// SubprotocolPlain has one Cap'n Proto message in each binary WebSocket message when sending.
	SubprotocolPlain = "capnp"
)

// AcceptOptions are the server's side of a handshake.
type AcceptOptions struct {
	MessageBytes   int      // Limits.MessageBytes of the connection; 0 takes the default
	OriginPatterns []string // browser origins let in besides the server's own host
	RemoteAddr     string   // name of the peer, if not the request's address
}

// Accept answers a WebSocket handshake. On an error the response has been written.
func Accept(w http.ResponseWriter, r *http.Request, opts AcceptOptions) (Transport, error) {
	panic("rpc: under construction")
}

// DialOptions are the client's side of a handshake.
type DialOptions struct {
	MessageBytes int         // Limits.MessageBytes of the connection; 0 takes the default
	TLS          *tls.Config // for wss
	HTTPClient   *http.Client // used as it is, TLS and DialContext ignored
	DialContext  func(ctx context.Context, network, addr string) (net.Conn, error)
	Header       http.Header
	Timeout      time.Duration // for the handshake; 0 is 10 s
	Subprotocols []string      // offered; nil is merged, then plain
}

// Dial opens a WebSocket to a ws:// or wss:// (http, https) URL.
func Dial(ctx context.Context, url string, opts DialOptions) (Transport, error) {
	panic("rpc: under construction")
}
