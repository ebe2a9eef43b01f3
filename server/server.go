package server

// The server: New, Serve, Handler and Close.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/a2ahttp"
	"github.com/mooring-rpc/mooring/internal/aisdk"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/mcphttp"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/share"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
	"github.com/mooring-rpc/mooring/internal/web"
)

// Server is a server with its database. All methods are safe for concurrent use.
type Server struct {
	store   *store.Store
	node    *node.Server
	sharing *share.Service
	mcp     *mcphttp.Handler // nil unless Config.MCP is set
	owner   Owner
	address capability.Ref
	hosts   origin.Hosts // by which metrics may be asked for

	closing context.Context // ends when Close begins
	close   context.CancelFunc

	mu      sync.Mutex
	started bool          // the node's own work runs
	served  bool          // Serve, or Close in its place, was called
	ended   chan struct{} // closed when that has returned

	closeStore func() error
}

// Owner says where the owner's ref of the server's space is. It contains no secret.
type Owner struct {
	Path    string // of the file with the ref; "" if it is in the folder of the server that started first
	Space   string // id of the space
	Created bool   // New made the space
	Foreign bool   // the file is of another database
	Dead    bool   // the file's ref was rotated or revoked
}

// New opens the database and returns a server that serves nothing yet. ctx bounds New alone,
// which waits for a Postgres that is starting, takes no writes or has no free connection. An
// error is a *fault.Error with code Usage if cfg cannot be meant (Config.Validate).
func New(ctx context.Context, cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	address, err := cfg.address()
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	st, err := cfg.open(ctx)
	if err != nil {
		return nil, err
	}
	// With SQLite this is the only server, so its owner's ref should lead to its address.
	owner, err := operator.Bootstrap(ctx, st, cfg.Dir, address, cfg.DatabaseURL == "")
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	s := &Server{store: st, owner: Owner(*owner), address: address, ended: make(chan struct{}), closeStore: sync.OnceValue(st.Close)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.mount(cfg)
	return s, nil
}

// open opens the database, and creates and migrates it if needed.
func (c *Config) open(ctx context.Context) (*store.Store, error) {
	if c.DatabaseURL == "" {
		return sqlite.Open(ctx, sqlite.Config{Dir: c.Dir})
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	cfg := postgres.Config{URL: c.DatabaseURL, AllowUnsafe: c.AllowUnsafeDatabase, Log: c.Log, Wait: true}
	if c.DatabaseConnections > 0 {
		cfg.MaxConns, cfg.Reserve = c.DatabaseConnections-1, true // the store uses one more, which listens
	}
	st, err := postgres.Open(ctx, cfg)
	return st, postgres.Explain("Config.DatabaseURL", c.DatabaseURL, err)
}

// mount makes the node and the handlers that it serves.
func (s *Server) mount(cfg Config) {
	nodeCfg, shareCfg := node.DefaultConfig(), share.DefaultConfig()
	cfg.Limits.apply(&nodeCfg, &shareCfg)
	nodeCfg.Store, nodeCfg.Log, nodeCfg.Name = s.store, cfg.Log, cfg.Name
	nodeCfg.Prefix, nodeCfg.OriginPatterns = s.address.Prefix, cfg.Origins
	nodeCfg.PollInterval, nodeCfg.KeepDeleted = orDefault(cfg.PollInterval, nodeCfg.PollInterval), orDefault(cfg.KeepDeleted, keepDeleted)
	nodeCfg.KeepLog, nodeCfg.DrainTimeout, nodeCfg.DrainDelay, nodeCfg.Session.Lease = cfg.KeepLog, cfg.DrainTimeout, cfg.DrainDelay, cfg.TurnLease
	if cfg.DatabaseURL == "" {
		nodeCfg.SoleServer, nodeCfg.PollInterval, nodeCfg.Transactions = true, 0, 1
	}
	if cfg.Webhooks {
		nodeCfg.Webhooks = &node.WebhookConfig{AllowPrivate: cfg.WebhooksAllowPrivate}
	}
	nodeCfg.Audiences = audiences(s.address.Hosts, cfg.Hosts, cfg.Addrs)
	nodeCfg.Hosts = ownHosts(nodeCfg.Audiences)
	s.hosts.Names = nodeCfg.Hosts
	s.node = node.New(nodeCfg)

	if cfg.PublicURL == "" && cfg.Address != "" {
		cfg.PublicURL = s.address.WebAddress()
	}
	limits := session.DefaultLimits()
	shareCfg.Store, shareCfg.Server, shareCfg.Log, shareCfg.OriginPatterns = s.store, s.node, cfg.Log, cfg.Origins
	shareCfg.Base, shareCfg.Key, shareCfg.NoLoopback = cfg.PublicURL, cfg.ShareKey, !cfg.ShareLoopback
	shareCfg.CommitLimits = opencode.Limits{Ops: limits.BatchOps, Bytes: limits.BatchBytes, Payload: limits.PayloadBytes}
	s.sharing = share.New(shareCfg)
	s.sharing.Mount()

	web.New(web.Config{Log: cfg.Log, Prefix: s.address.Prefix, Hosts: s.address.Hosts, TLS: s.address.TLS, TokenLife: cfg.PageLife, Lease: cfg.TurnLease},
		s.node, s.store, s.sharing).Mount()

	api := httpapi.Config{
		Server: s.node, Address: s.address, Origins: cfg.Origins, Log: cfg.Log,
		BodyBytes: 2 * nodeCfg.RPC.MessageBytes, // as for Cap'n Web: JSON is larger than the data it encodes
		Timeout:   nodeCfg.BatchTimeout, StallTimeout: nodeCfg.RPC.WriteTimeout,
	}
	version := strings.TrimPrefix(cfg.Name, "mooring/")
	s.node.Mount(httpapi.Path, httpapi.New(api))
	if cfg.AISDK {
		s.node.Mount(aisdk.Path, aisdk.New(api))
	}
	if cfg.A2A {
		for path, h := range a2ahttp.Handlers(api, version) {
			s.node.Mount(path, h)
		}
	}
	if cfg.MCP {
		s.mcp = mcphttp.New(mcphttp.Config{Config: api, Allow: cfg.MCPAllow, Version: version})
		s.node.Mount(mcphttp.Path, s.mcp)
	}
}

// Owner returns where the owner's ref is.
func (s *Server) Owner() Owner { return s.owner }

// Address returns where clients reach the server, as a ref without id and secret.
func (s *Server) Address() capability.Ref { return s.address }

// Serve serves HTTP on web (nil for none), and the two-party byte stream of plain Cap'n Proto
// on streams, until ctx ends or Close is called. Then it waits for Config.DrainDelay and drains:
// new calls and connections are refused, calls that run are answered, and subscriptions end
// with a reason, all within Config.DrainTimeout. It returns nil after that, or the error that
// ended a listener. The listeners are closed in any case. Serve is called once.
func (s *Server) Serve(ctx context.Context, web net.Listener, streams ...net.Listener) error {
	if !s.begin(true) {
		for _, ln := range slices.Concat(streams, []net.Listener{web}) {
			if ln != nil {
				_ = ln.Close()
			}
		}
		return fault.Usage.With("the server has served already, or was closed")
	}
	defer close(s.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	return s.node.Serve(ctx, web, streams...)
}

// Handler serves everything that is served over HTTP, from now on: WebSockets at /capnp and
// /rpc, the API at /api/v1, A2A at /a2a, MCP at /mcp, the pages, opencode's shares, /healthz and /readyz, at the root and
// below the path of Config.Address. Requests over loopback must name a host of this server. The
// ResponseWriter of middleware around it must have an Unwrap method (http.ResponseController):
// without, WebSockets cannot be opened, slow readers have no deadlines, and Close cannot cut off a
// request, but leaves it behind when DrainTimeout is over.
func (s *Server) Handler() http.Handler {
	s.begin(false)
	return s.node.Handler()
}

// begin starts the node's own work, once. It returns false if serving has begun before.
func (s *Server) begin(serving bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served {
		return false
	}
	s.served = serving
	if !s.started {
		s.started = true
		s.node.Start(s.closing)
	}
	return true
}

// Metrics serves the metrics of the server and its process, in the Prometheus formats, to
// requests that come from other machines or name a host of this server. They contain no
// session, ref or peer.
func (s *Server) Metrics() http.Handler { return s.hosts.Guard(s.node.Metrics()) }

// SetLimits replaces the limits while the server runs. HandshakeTimeout, BatchTimeout,
// WriteTimeout and MessageBytes stay as they were for New: clients, or net/http, were given
// them. Fields left out go back to their
// defaults. Nothing is taken away that exceeds a new limit already.
func (s *Server) SetLimits(limits Limits) error {
	if err := limits.Validate(); err != nil {
		return err
	}
	nodeCfg, shareCfg := node.DefaultConfig(), share.DefaultConfig()
	limits.apply(&nodeCfg, &shareCfg)
	s.node.SetLimits(nodeCfg)
	s.sharing.SetLimits(shareCfg)
	return nil
}

// Close drains the server as the end of Serve does, waits for Serve, and closes the database.
// Handler refuses later requests.
func (s *Server) Close() error {
	s.close()
	s.mu.Lock()
	begun, started := s.served, s.started
	s.served = true
	s.mu.Unlock()
	switch {
	case begun:
		<-s.ended
	case started:
		_ = s.node.Serve(s.closing, nil) // without listeners it only drains
		close(s.ended)
	default:
		s.node.Refuse()
		close(s.ended)
	}
	if s.mcp != nil {
		s.mcp.Close()
	}
	return s.closeStore()
}
