// Package objects binds the domain to the wire protocols. It serves the objects of
// capnp/mooring.capnp over rpc connections and over Cap'n Web, groups pending batches into
// transactions, and fans the committed events out to subscribers.
//
// An op passes through one file per step: stream.go and stream_apply.go decode a batch and
// queue it; group_commit.go groups the pending batches of all connections into one
// transaction of the store, in which session.Commit decides everything, and answers;
// hub.go, session_fanout.go, subscription.go and sink.go deliver the committed events to
// subscribers, here and, through notifications and polling (replicas.go), on the other
// replicas. Reads of the state take another path: snapshot.go, snapshot_slots.go and
// send_window.go send it.
//
// gateway.go (with redeem.go, challenge.go and auth_throttle.go), space.go and sess.go are
// the objects of the schema, and decode.go and encode.go convert their arguments and results.
// authority.go checks what a reader may see. attenuate.go, save.go, rotate.go, refs.go and
// the files that begin with space_ and sess_ change and list authority. audit.go and
// usage_counter.go collect refusals and uses, and page_writer.go writes them.
//
// config.go is the configuration. listen.go, http.go and address.go accept connections, and
// intake.go bounds the memory for what they send. limit_hits.go, metrics.go, instruments.go
// and log.go observe. outage.go probes whether commits succeed. sweeper.go and trim.go run
// without a call. owner.go is the first start; owner_rotate.go and owner_session.go replace
// a lost owner's ref. capnweb*.go serve the same objects over Cap'n Web, and inproc*.go serve
// them to faces: HTTP handlers in this process (Mount). store.go is the interface to the
// store, and faults.go maps errors to answers.
//
// A server holds no state that a transaction does not check again, so any number of servers
// may share a database.
//
// The comments of this package use these words:
//
//	ref           sturdy ref: an id and a secret that grant access to a session or a space
//	grant         the stored row of a ref: rights, limits, parent, revocation
//	authority     the ref, and its attenuation, under which a live object acts
//	cursor        the number of an event in a session's log
//	AuthGen       a session's counter, raised whenever authority over it changes
//	outbox        a client's queue of ops, known by a secret
//	stream        the right to send the batches of one outbox to one session
//	direct        a commit without an outbox: share, revoke, rotate, repeatable ops
//	turn          a message that is being streamed, under a lease
//	face          an HTTP handler in this process that uses Caller and Capability
//
// # Lock order
//
// Each lock is taken before the ones to its right:
//
//	committer.replyMu, stream.mu, committer.mu
//	committer.replyMu, hub.mu, sessionFanout.mu, connState.mu or hub.runMu
//	sendWindow.mu, connState.mu or snapshotSlots.mu
//
// All other mutexes are leaves within this package. No mutex is held over a call of the store
// or of a sink. session.Commit calls accountQuotas.check and auditor.reserveRows inside a
// transaction. pageWriter.sem and savedRefs.sem, which are held over transactions, come
// before every mutex.
//
// # Bounds
//
//	connections         Config.Connections, ConnectionsPerAddress; before an upgrade Handshakes
//	messages in memory  Config.StrangerBytes, KnownBytes, RefBytes
//	commit queue        Config.QueueOps, QueueBytes; in one transaction GroupOps, GroupBytes
//	transactions        Config.Transactions at once, and 4 more that are not answered yet
//	one stream          Config.BatchesInFlight
//	one connection      Config.Subscriptions; half of RPC.QueuedBytes in flight to them
//	one fan-out         a tail of 1 MiB; on all fan-outs 4 reads of the log at once, 1 MiB each
//	snapshots           Config.Snapshots at once, FoldBytes each
//	wrong refs          64 delayed answers for each of 65536 addresses
//	audit, one window   1000 single refusals, 1000 rows of counts, 10,000 rows of uses
package objects

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
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// Server serves the sessions of one database. All methods are safe for concurrent use; Run,
// or Start and Serve, are called once.
type Server struct {
	cfg        Config // at the start; liveConfig has what SetLimits changes
	liveConfig *liveConfig
	log        *slog.Logger
	// connLog is log for lines about one connection.
	connLog      *slog.Logger
	hub          *hub
	committer    *committer
	audit        *auditor
	usage        *usageCounter
	measureQueue *measureQueue

	accountQuotas *accountQuotas
	snapshotSlots *snapshotSlots // of the snapshots being sent

	connCtx     context.Context // of every connection; canceled when draining takes too long
	cancelConns context.CancelFunc
	workCtx     context.Context // of work that outlives its caller; canceled when stopping takes too long
	cancelWork  context.CancelCauseFunc

	intake       *intake.Config // memory for what peers send
	connections  *connlimit.Limiter
	handshakes   *handshakes
	authThrottle *authThrottle
	refusing     chan struct{} // bounds the goroutines that send a refusal
	rpcLimitHits rpc.LimitHits
	instruments  *instruments
	limitHits    limitHits
	outage       *outage

	loops     sync.WaitGroup // what Start runs until stopLoops
	stopLoops context.CancelFunc

	drainAnnounced atomic.Bool // Config.DrainDelay has begun
	history        atomic.Pointer[string]
	totals         atomic.Pointer[session.Totals] // nil until the first count

	fastBatches, generatedBatches atomic.Uint64 // batches by decoder

	mu            sync.Mutex
	stopping      bool
	drainStarted  chan struct{} // closed when stopping is set
	conns         map[*rpc.Conn]*connState
	closedTraffic traffic // of connections that have ended
	connWG        sync.WaitGroup

	capnweb capnwebConns
	mounts  map[string]http.Handler // by path: Mount
}

// New returns a server; Start starts it. The server never closes the store.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Log, drainStarted: make(chan struct{}), conns: map[*rpc.Conn]*connState{},
		connections: connlimit.New(cfg.Connections, cfg.ConnectionsPerAddress), refusing: make(chan struct{}, maxRefusing)}
	s.intake = newIntakeConfig(&cfg)
	s.capnweb.open, s.mounts = map[*capnweb.Conn]*capnwebPeer{}, map[string]http.Handler{}
	s.handshakes = &handshakes{server: s, limiter: connlimit.NewEvictingLimiter(cfg.Handshakes, cfg.ConnectionsPerAddress), open: map[net.Conn]*httpConn{}}
	s.connCtx, s.cancelConns = context.WithCancel(context.Background())
	s.workCtx, s.cancelWork = context.WithCancelCause(context.Background())
	s.connLog = slog.New(demoted{cfg.Log.Handler()})
	s.instruments = newInstruments()
	s.outage = newOutage(cfg, s.instruments)
	cfg.Store = monitoredStore{cfg.Store, s.outage}
	s.cfg.Store = cfg.Store
	s.hub = newHub(cfg.Store, cfg.ReadTimeout, cfg.Log)
	s.hub.observeDelivery = s.instruments.deliveries.Observe
	s.audit, s.usage, s.measureQueue = newAuditor(cfg), newUsageCounter(cfg), newMeasureQueue()
	s.accountQuotas = newAccountQuotas(cfg.Session.Limits.AccountBytes)
	cfg.Session.DenialRows, cfg.Session.CheckQuota = s.audit.reserveRows, s.accountQuotas.check
	s.cfg = cfg
	s.committer = newCommitter(s.workCtx, cfg, s.hub, s.usage, &s.limitHits, s.measureQueue, s.instruments, s.outage)
	s.committer.auditDenials, s.liveConfig = s.audit.addCounts, s.committer.liveConfig
	s.snapshotSlots = newSnapshotSlots(cfg.Snapshots, cfg.StallTimeout, &s.limitHits)
	s.authThrottle = newAuthThrottle(cfg.WrongTries, cfg.WrongTryInterval, &s.limitHits)
	return s
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
	answered()
	ctx, s.stopLoops = context.WithCancel(context.WithoutCancel(ctx))
	for _, loop := range []func(context.Context){s.listen, s.poll, s.expire, s.sweep, s.trim, s.trimDeleted, s.measure, s.refreshTitles, s.auditLoop, s.countSessions, s.watchCommits} {
		s.loops.Go(func() { s.runLoop(ctx, loop) })
	}
	s.committer.run()
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
	s.committer.close()
	s.hub.close()
	s.loops.Wait()
	s.flushAudit(true)
	return err
}

// announceDrain makes /readyz report for Config.DrainDelay that the server is stopping, and
// changes nothing else. It returns early with the error of a listener that ends.
func (s *Server) announceDrain(served <-chan error) error {
	if s.cfg.DrainDelay <= 0 {
		return nil
	}
	s.drainAnnounced.Store(true)
	s.log.Info("draining soon: not ready any more", "in", s.cfg.DrainDelay)
	select {
	case <-time.After(s.cfg.DrainDelay):
		return nil
	case err := <-served:
		return err
	}
}

// runLoop runs a loop until ctx ends, and restarts it after a panic.
func (s *Server) runLoop(ctx context.Context, loop func(context.Context)) {
	for catchPanic(s.log, "look after the database", func() { loop(ctx) }) != nil {
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
	s.mu.Lock()
	s.stopping = true
	close(s.drainStarted)
	conns := maps.Clone(s.conns)
	s.mu.Unlock()
	webs := s.capnweb.list()
	s.log.Info("draining", "connections", len(conns)+len(webs))
	s.authThrottle.close()
	for _, ln := range streams {
		_ = ln.Close() // the only error is that it is closed already
	}
	s.hub.endAll(fault.Draining.With("the server is stopping: go to another, or come back"))
	notifyCtx, cancel := context.WithTimeout(limit, s.cfg.RPC.PingTimeout)
	defer cancel()
	var all sync.WaitGroup
	for c, l := range conns {
		all.Go(func() {
			l.waitNoSubs(notifyCtx) // a peer that does not read delays the drain by at most PingTimeout
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
		s.connWG.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-limit.Done():
		s.log.Warn("draining took too long: connections are cut")
	}
	s.cancelConns()
	_ = web.Close()
	<-ended
}

func (s *Server) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// commitContext returns the context of a transaction that outlives its caller, with
// Config.CommitTimeout.
func (s *Server) commitContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.workCtx, s.cfg.CommitTimeout)
}

func (s *Server) now() time.Time { return s.cfg.Now() }
