// Server: it ties the packages below internal/server together, starts and drains them.

package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/server/webhooks"
	"github.com/mooring-rpc/mooring/rpc"
)

// Server serves the sessions of one database. All methods are safe for concurrent use; Run,
// or Start and Serve, are called once.
type Server struct {
	cfg        Config // at the start; liveConfig has what SetLimits changes
	liveConfig liveConfig
	log        *slog.Logger
	// connLog is log for lines about one connection.
	connLog   *slog.Logger
	hub       *fanout.Hub
	operator  *operator.Operator
	committer *commit.Committer
	objects   *objects.Service
	webhooks  *webhooks.Deliverer // nil: there are none

	connCtx     context.Context // of every connection; canceled when draining takes too long
	cancelConns context.CancelFunc
	workCtx     context.Context // of work that outlives its caller; canceled when stopping takes too long
	cancelWork  context.CancelCauseFunc

	intake       *intake.Config // memory for what peers send
	connections  *admission.Connections
	handshakes   *admission.Handshakes
	authThrottle *admission.AuthThrottle
	refusing     chan struct{} // bounds the goroutines that send a refusal
	rpcLimitHits rpc.LimitHits
	instruments  *admission.Instruments
	limitHits    admission.LimitHits
	outage       *operator.Outage

	loops     sync.WaitGroup // what Start runs until stopLoops
	stopLoops context.CancelFunc

	abandoned       chan struct{} // closed by abandonRequests: drain waits for no more requests
	abandonRequests func()

	drainAnnounced atomic.Bool // Config.DrainDelay has begun
	history        atomic.Pointer[string]

	mu            sync.Mutex
	conns         map[*rpc.Conn]*objects.ConnState
	closedTraffic traffic // of connections that have ended

	capnweb capnwebConns
	mounts  map[string]http.Handler // by path: Mount
}

// New returns a server; Start starts it. The server never closes the store.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Log, conns: map[*rpc.Conn]*objects.ConnState{}, refusing: make(chan struct{}, maxRefusing)}
	s.intake = admission.NewIntake(cfg.StrangerBytes, cfg.KnownBytes, cfg.RefBytes)
	s.capnweb.open, s.mounts = map[*capnweb.Conn]*capnwebPeer{}, map[string]http.Handler{}
	s.connections = admission.NewConnections(cfg.Connections, cfg.ConnectionsPerAddress, &s.limitHits, s.log)
	s.handshakes = admission.NewHandshakes(cfg.Handshakes, cfg.ConnectionsPerAddress, &s.limitHits, s.log)
	s.abandoned = make(chan struct{})
	s.abandonRequests = sync.OnceFunc(func() { close(s.abandoned) })
	s.connCtx, s.cancelConns = context.WithCancel(context.Background())
	s.workCtx, s.cancelWork = context.WithCancelCause(context.Background())
	s.connLog = slog.New(demoted{cfg.Log.Handler()})
	s.instruments = admission.NewInstruments()
	s.outage = operator.NewOutage(cfg.probe, cfg.Log, s.instruments)
	unmonitored := cfg.Store
	cfg.Store = monitoredStore{cfg.Store, s.outage}
	s.cfg.Store = cfg.Store
	if cfg.Webhooks != nil {
		cfg.ObserveCommit = s.observeCommit(cfg.ObserveCommit)
	}
	s.hub = fanout.NewHub(fanout.HubConfig{Log: cfg.Log, Store: cfg.Store, ReadTimeout: cfg.ReadTimeout, ObserveDelivery: s.instruments.Deliveries.Observe, ObserveCommit: cfg.ObserveCommit,
		Now: cfg.Now, PollInterval: cfg.PollInterval, IgnoreNotify: cfg.IgnoreNotify, Warn: s.outage.Warn})
	snapshots := fanout.NewSnapshots(fanout.SnapshotsConfig{Log: cfg.Log, Now: cfg.Now, Store: cfg.Store, AtOnce: cfg.Snapshots, StallTimeout: cfg.StallTimeout,
		FoldBytes: cfg.FoldBytes, LimitHits: &s.limitHits})
	audits := admission.AuditConfig{Store: cfg.Store, Log: cfg.Log, Now: cfg.Now, Window: cfg.AuditWindow}
	audit, usage := admission.NewAuditor(audits), admission.NewUsageCounter(audits)
	s.operator = operator.New(operator.Config{Context: s.workCtx, Log: cfg.Log, Now: cfg.Now, KeepLog: cfg.KeepLog, KeepDeleted: cfg.KeepDeleted,
		SoleServer: cfg.SoleServer, CommitTimeout: cfg.CommitTimeout, ReadTimeout: cfg.ReadTimeout, SweepInterval: cfg.SweepInterval,
		MeasureInterval: cfg.MeasureInterval, CountInterval: cfg.CountInterval, AuditWindow: cfg.AuditWindow, ForkBytes: cfg.Session.Limits.ForkBytes, ReplicaInterval: cfg.replicaInterval,
		SessionBytes: cfg.Session.Limits.SessionBytes, AccountBytes: cfg.Session.Limits.AccountBytes,
		Store: cfg.Store, Hub: s.hub, Outage: s.outage, Audit: audit, Usage: usage})
	cfg.Session.DenialRows, cfg.Session.CheckQuota, cfg.Session.Features = audit.ReserveRows, s.operator.CheckQuota, s.operator.Features
	s.cfg = cfg
	s.committer = commit.New(commit.Config{Context: s.workCtx, Log: cfg.Log, Session: cfg.Session, Transactions: cfg.Transactions,
		GroupOps: cfg.GroupOps, GroupBytes: cfg.GroupBytes, QueueOps: cfg.QueueOps, QueueBytes: cfg.QueueBytes, Timeout: cfg.CommitTimeout,
		SlowCommit: cfg.probe.SlowCommit, Store: unmonitored, Hub: s.hub, Outage: s.outage, QuotaMet: s.operator.QuotaMet, AskFork: s.operator.AskFork, Audit: audit,
		Usage: usage, Instruments: s.instruments, LimitHits: &s.limitHits})
	s.liveConfig.Store(&cfg)
	s.authThrottle = admission.NewAuthThrottle(cfg.WrongTries, cfg.WrongTryInterval, &s.limitHits)
	var registering *objects.WebhookConfig
	if cfg.Webhooks != nil {
		registering = &objects.WebhookConfig{AllowPrivate: cfg.Webhooks.AllowPrivate, Wake: func(id string) { s.webhooks.Wake(id) }}
	}
	s.objects = objects.New(objects.Config{Context: s.workCtx, Log: cfg.Log, Now: cfg.Now, Name: cfg.Name, History: s.historyID, Features: s.operator.Features, Audiences: cfg.Audiences,
		Limits: cfg.Session.Limits, MessageBytes: cfg.RPC.MessageBytes, ReadOnlyStreams: cfg.ReadOnlyStreams, WindowBytes: cfg.WindowBytes,
		MaxWindowBytes: cfg.MaxWindowBytes, Conn: connLimits(&cfg), ReadTimeout: cfg.ReadTimeout, CommitTimeout: cfg.CommitTimeout, Transactions: cfg.Transactions,
		Store: cfg.Store, Hub: s.hub, Snapshots: snapshots, Committer: s.committer, AuthThrottle: s.authThrottle, Audit: audit, Usage: usage,
		Instruments: s.instruments, LimitHits: &s.limitHits, Webhooks: registering})
	if hooks := cfg.Webhooks; hooks != nil {
		s.webhooks = webhooks.New(webhooks.Config{Log: cfg.Log, Store: cfg.Store, Objects: s.objects, Instruments: s.instruments, Warn: s.outage.Warn, Agent: cfg.Name,
			AllowPrivate: hooks.AllowPrivate, SoleServer: cfg.SoleServer, Timeout: cfg.CommitTimeout, Times: hooks.Times})
	}
	return s
}

// observeCommit returns what is called with each commit here: also, which may be nil, and what wakes webhooks.
func (s *Server) observeCommit(also func(session string, first, last uint64)) func(session string, first, last uint64) {
	return func(session string, first, last uint64) {
		if also != nil {
			also(session, first, last)
		}
		s.webhooks.Wake(session)
	}
}

// Run is Start and Serve.
func (s *Server) Run(ctx context.Context, web net.Listener, streams ...net.Listener) error {
	s.Start(ctx)
	return s.Serve(ctx, web, streams...)
}

// Start begins the work that Serve, and the requests of Handler, need: commits, fan-out, and
// what runs without a call. It is called once, and Serve after it, which ends all of that.
func (s *Server) Start(ctx context.Context) {
	asking, answered := context.WithTimeout(ctx, readyTimeout)
	if err := s.loadHistory(asking); err != nil { // /readyz asks again
		s.log.Warn("the database's history is not known yet", "error", err)
	}
	s.operator.RecordReplica(asking)
	answered()
	ctx, s.stopLoops = context.WithCancel(context.WithoutCancel(ctx))
	loops := append(s.operator.Loops(), s.hub.Loops()...)
	if s.webhooks != nil {
		loops = append(loops, s.webhooks.Run)
	}
	for _, loop := range loops {
		s.loops.Go(func() { s.runLoop(ctx, loop) })
	}
	s.committer.Run()
}

// Serve serves connections until ctx ends: HTTP from web (nil for none), and the standard
// two-party byte stream from streams. After Config.DrainDelay it drains: it refuses new calls
// and connections, finishes and answers running calls, and ends subscriptions with a reason,
// all within Config.DrainTimeout. It returns nil after that, or the error that ended a
// listener. The listeners are closed in any case.
func (s *Server) Serve(ctx context.Context, web net.Listener, streams ...net.Listener) error {
	served := make(chan error, 1+len(streams))
	var listeners sync.WaitGroup
	server := s.newHTTPServer()
	if web != nil {
		listeners.Go(func() {
			if err := server.Serve(web); !errors.Is(err, http.ErrServerClosed) {
				served <- err
			}
		})
	}
	for _, ln := range streams {
		listeners.Go(func() {
			if err := s.acceptStreams(ln); err != nil {
				served <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
		err = s.announceDrain(served)
	case err = <-served:
	}
	over := time.AfterFunc(s.cfg.DrainTimeout, func() { s.cancelWork(context.DeadlineExceeded) })
	defer over.Stop()
	s.drain(ctx, server, streams)
	listeners.Wait()
	s.stopLoops()
	s.committer.Close()
	s.hub.Close()
	s.loops.Wait()
	s.operator.FlushAudit(true)
	return err
}

// announceDrain makes /readyz report for Config.DrainDelay that the server is stopping, and
// changes nothing else. It returns early with the error of a listener that ends.
func (s *Server) announceDrain(served <-chan error) error {
	if s.cfg.DrainDelay <= 0 {
		return nil
	}
	s.drainAnnounced.Store(true)
	s.log.Info("draining soon: no longer ready", "in", s.cfg.DrainDelay)
	select {
	case <-time.After(s.cfg.DrainDelay):
		return nil
	case err := <-served:
		return err
	}
}

// runLoop runs a loop until ctx ends, and restarts it after a panic.
func (s *Server) runLoop(ctx context.Context, loop func(context.Context)) {
	for admission.CatchPanic(s.log, "look after the database", func() { loop(ctx) }) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(loopPause):
		}
	}
}

// loopPause is the pause before a loop is restarted after a panic.
const loopPause = time.Second

// drain stops accepting work and waits for running calls. It takes at most three quarters of
// DrainTimeout, which leaves a quarter for the final writes.
func (s *Server) drain(ctx context.Context, web *http.Server, streams []net.Listener) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout*3/4)
	defer cancel()
	s.connections.Drain()
	s.mu.Lock()
	conns := maps.Clone(s.conns)
	s.mu.Unlock()
	webs := s.capnweb.list()
	s.log.Info("draining", "connections", len(conns)+len(webs))
	s.authThrottle.Close()
	for _, ln := range streams {
		_ = ln.Close() // the only error is that it is closed already
	}
	s.hub.EndAll(fault.Draining.With("the server is stopping: use another one, or try again later"))
	notifyCtx, cancel := context.WithTimeout(limit, s.cfg.RPC.PingTimeout)
	defer cancel()
	var all sync.WaitGroup
	for c, l := range conns {
		all.Go(func() {
			l.Flow().WaitNoSubs(notifyCtx) // a peer that does not read delays the drain by at most PingTimeout
			_ = c.Drain(limit, "the server is stopping")
		})
	}
	for _, p := range webs {
		all.Go(func() { p.drain(limit, notifyCtx) })
	}
	all.Wait()
	_ = web.Shutdown(limit)
	ended := make(chan struct{})
	go func() {
		s.connections.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-limit.Done():
		s.log.Warn("draining took too long: connections are cut")
	}
	s.cancelConns()
	_ = web.Close()
	select {
	case <-ended:
	case <-s.abandoned:
	}
}
