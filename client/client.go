// Client: its configuration, opening and closing.

package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rpctrace"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config says where the outbox is and how to reach servers. Exactly one of OpenOutbox and
// Outbox must be set; every other field may be zero.
type Config struct {
	// OpenOutbox opens the outbox, which Close closes: sqliteclient.Outbox(folder), or
	// pgclient.Outbox(url, name).
	OpenOutbox func(ctx context.Context, cfg outbox.Config) (*outbox.Box, error)
	// Outbox is an outbox that the caller has opened. Close leaves it open. Several clients may
	// share one: the first client opened sends for all of them, and when it is closed another one
	// does.
	Outbox *outbox.Box
	// OutboxConfig is for an outbox that Open opens. A nil Logger or Now is set from Config's.
	OutboxConfig outbox.Config

	// Offline starts no sender: ops become durable and another process sends them. It concerns
	// sending only: reads and the direct verbs still go to servers.
	Offline bool
	// AllowPlaintext allows secrets to be sent unencrypted to hosts that are not loopback.
	AllowPlaintext bool
	// SealKey is the private key of sealed refs, which are refused without it. Its public key is
	// ShareOptions.Seal of a ref shared with this client.
	SealKey ed25519.PrivateKey
	// TLS configures connections to moorings:// refs; nil trusts the system's CAs.
	TLS *tls.Config
	// RetryTimeout bounds retries of reads and direct verbs over broken connections, unreachable
	// hosts, and answers that ask for a retry (overloaded, not_yet_known). It bounds the start of
	// an attempt: one in flight ends by itself, after 5 s without a connection or 10 s more
	// without an answer to hello. A server that is at work on a call is waited for until the
	// call's context ends. 0 is 10 s, negative is one attempt.
	RetryTimeout time.Duration
	// Agent names this program in servers' logs.
	Agent string
	// Logger gets errors of background work; nil discards.
	Logger *slog.Logger
	// Now is the clock of the outbox; nil is time.Now.
	Now func() time.Time

	// DialContext opens the connection below the WebSocket, for proxies.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Reconnect bounds the wait between attempts to connect.
	Reconnect Reconnect

	// dial opens a transport to a ref's ws:// or wss:// URL; nil is a WebSocket. ctx bounds the opening only.
	dial  func(ctx context.Context, url string) (rpc.Transport, error)
	trace rpctrace.Func // sees every message of every connection
}

// Reconnect bounds the wait between attempts to connect to a server, which grows from Initial to
// Max. Zero fields take the default.
type Reconnect struct {
	Initial time.Duration // default 100 ms; also the minimum, however many calls wait
	Max     time.Duration // default 5 s
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	c.RetryTimeout = cmp.Or(c.RetryTimeout, 10*time.Second)
	c.Agent = cmp.Or(c.Agent, "mooring-go")
	c.OutboxConfig.Logger = cmp.Or(c.OutboxConfig.Logger, c.Logger)
	if c.OutboxConfig.Now == nil {
		c.OutboxConfig.Now = c.Now
	}
	c.Reconnect.Initial = cmp.Or(c.Reconnect.Initial, 100*time.Millisecond)
	c.Reconnect.Max = cmp.Or(c.Reconnect.Max, 5*time.Second)
	if c.dial == nil {
		c.dial = serverconn.WebSocket(c.TLS, c.DialContext)
	}
	return c
}

// newBackOff returns a backoff between attempts, without a maximum total time.
func (c *Config) newBackOff() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.Reconnect.Initial),
		backoff.WithMaxInterval(c.Reconnect.Max),
		backoff.WithMaxElapsedTime(0),
	)
}

// Client is an open outbox with its connections to servers.
type Client struct {
	cfg     Config
	box     *outbox.Box
	ownsBox bool
	wake    func() // wakes the sender when a connection is up

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	tasks sync.WaitGroup // the sender and the servers' loops

	mu      sync.Mutex
	closed  bool
	servers map[string]*serverconn.Server // by address
	sendErr error                         // why the sender ended by itself

	confirmed map[string]bool // refs as used (usedKey) that a server has accepted
	probing   map[string]bool // refs as used that are being tried at another address
}

// Open opens the outbox and starts sending its queued batches. It needs no server. ctx bounds the
// opening only.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if cfg.trace == nil {
		cfg.trace = rpctrace.From(ctx)
	}
	box, own, err := openBox(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, box: box, ownsBox: own, wake: box.Wake, servers: map[string]*serverconn.Server{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	if !cfg.Offline {
		c.tasks.Go(c.send)
		c.tasks.Go(c.resumeRotations)
	}
	return c, nil
}

func openBox(ctx context.Context, cfg Config) (box *outbox.Box, own bool, err error) {
	switch {
	case cfg.Outbox != nil && cfg.OpenOutbox != nil:
		return nil, false, fault.Usage.With("client.Config names two outboxes: set OpenOutbox or Outbox")
	case cfg.Outbox != nil:
		return cfg.Outbox, false, nil
	case cfg.OpenOutbox == nil:
		return nil, false, fault.Usage.With("client.Config names no outbox: set OpenOutbox, to sqliteclient.Outbox(folder) for example, or Outbox")
	}
	box, err = cfg.OpenOutbox(ctx, cfg.OutboxConfig) // whose error names the outbox
	return box, true, err
}

// send runs the outbox's sender until Close.
func (c *Client) send() {
	err := c.box.Run(c.ctx, link{c})
	if err == nil || c.ctx.Err() != nil {
		return
	}
	c.cfg.Logger.Error("the outbox's sender ended", "error", err)
	c.mu.Lock()
	c.sendErr = err
	c.mu.Unlock()
}

// Outbox returns the client's outbox: its rows, and the verbs on them.
func (c *Client) Outbox() *outbox.Box { return c.box }

// Err returns why the sender has ended by itself; nil while it runs.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sendErr
}

// Close stops sending, closes every connection and waits for the goroutines it started.
// Subscriptions end with Canceled. Unsent batches stay in the outbox for the next Open. Further
// calls do nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.stop()
	c.tasks.Wait()
	if !c.ownsBox {
		return nil
	}
	if err := c.box.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close the outbox: %w", err)
	}
	return nil
}
