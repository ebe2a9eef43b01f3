// Package server binds the domain to the wires: it serves the objects of
// capnp/mooring.capnp over connections of the vat and over Cap'n Web, gathers what they are asked
// to do into transactions, and tells subscribers what came of it.
//
// An op's way through it, a step a file: stream.go and stream_apply.go decode a batch
// and queue it; group_commit.go gathers what waits on all connections into one transaction of
// the store, in which session.Commit decides everything, and answers; hub.go,
// session_fanout.go, subscription.go and sink.go hand what was committed to subscribers, here and,
// through notifications and polling (replicas.go), on the other replicas. What is read goes
// another way: snapshot.go, snapshot_slots.go and send_window.go send the state.
//
// gateway.go (with redeem.go, challenge.go and auth_throttle.go), space.go and sess.go are
// the objects around it, and decode.go and encode.go what they are told and tell;
// authority.go is the check of what a reader may see; attenuate.go, save.go, rotate.go,
// refs.go and the files that begin with space_ and sess_ change and show authority;
// audit.go and usage_counter.go keep what was refused and used, page_writer.go writes it.
//
// config.go says what a server is told, listen.go, http.go and address.go let
// connections in, intake.go says how much is taken in of them, limit_hits.go, metrics.go, instruments.go and log.go count and tell, outage.go looks
// into what keeps commits from succeeding; sweeper.go and
// trim.go do what is done without a call, owner.go is the first start, owner_rotate.go
// and owner_session.go the rescue of a lost owner's ref. capnweb.go and the files beside it
// are the same objects over Cap'n Web, inproc.go and those beside it the same for faces
// within the process (Mount). store.go is what all of it needs of a store, faults.go how
// errors leave.
//
// A server holds no state that a transaction does not check again, so any number
// of them may share a database.
package server

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
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// Server serves one database's sessions. All methods are safe for concurrent
// use; Run is called once.
type Server struct {
	cfg        Config // of the start: what SetLimits changes is in limits
	liveConfig *liveConfig
	log        *slog.Logger
	// connLog is log for what concerns one connection.
	connLog      *slog.Logger
	hub          *hub
	committer    *committer
	audit        *auditor
	usage        *usageCounter
	measureQueue *measureQueue

	accountQuotas *accountQuotas
	snapshotSlots *snapshotSlots // of the snapshots that are being sent

	connCtx     context.Context // of every connection; ended when draining takes too long
	cancelConns context.CancelFunc
	workCtx     context.Context // of what is finished whatever becomes of its caller; ended when stopping takes too long
	cancelWork  context.CancelCauseFunc

	intake       *intake.Config // of what peers send
	connections  *connlimit.Limiter
	handshakes   *handshakes
	authThrottle *authThrottle
	refusing     chan struct{} // bounds those who are told why they are turned away
	rpcLimitHits rpc.LimitHits
	instruments  *instruments
	limitHits    limitHits
	outage       *outage

	drainAnnounced atomic.Bool // Config.DrainDelay has begun
	history        atomic.Pointer[string]
	totals         atomic.Pointer[session.Totals] // nil until they were counted

	fastBatches, generatedBatches atomic.Uint64 // batches that were read so

	mu            sync.Mutex
	stopping      bool
	drainStarted  chan struct{} // closed when stopping is set
	conns         map[*rpc.Conn]*connState
	closedTraffic traffic // of connections that have ended
	connWG        sync.WaitGroup

	capnweb capnwebConns
	mounts  map[string]http.Handler // by path: Mount
}

// New makes a server; Run starts it. It never closes the store.
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

// Run serves connections until ctx ends: over HTTP from web (nil for none), and
// of the standard two-party byte stream from streams. Then, after Config.DrainDelay, it drains: new calls
// and connections are refused, what runs is finished and answered, and subscribers
// are told, all within Config.DrainTimeout. It returns nil after that, or what
// ended a listener. The listeners are closed in any case.
func (s *Server) Run(ctx context.Context, web net.Listener, streams ...net.Listener) error {
	asking, answered := context.WithTimeout(ctx, readyTimeout)
	if err := s.loadHistory(asking); err != nil { // /readyz asks again
		s.log.Warn("the database's history is not known yet", "error", err)
	}
	answered()
	looping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){s.listen, s.poll, s.expire, s.sweep, s.trim, s.trimDeleted, s.measure, s.refreshTitles, s.auditLoop, s.countSessions, s.watchCommits} {
		loops.Go(func() { s.runLoop(looping, loop) })
	}
	s.committer.run()

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
	stop()
	s.committer.close()
	s.hub.close()
	loops.Wait()
	s.flushAudit(true)
	return err
}

// announceDrain has readyz say for Config.DrainDelay that the server is to stop, and nothing
// else change. It ends early if a listener does.
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

// runLoop runs a loop until ctx ends. After a defect in it, it is begun anew.
func (s *Server) runLoop(ctx context.Context, loop func(context.Context)) {
	for catchPanic(s.log, "look after the database", func() { loop(ctx) }) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(loopPause):
		}
	}
}

// loopPause is how long a loop rests after a defect in it.
const loopPause = time.Second

// drain stops taking work and waits for what runs. A quarter of the time that there is
// remains for what is still to be written then.
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
		_ = ln.Close() // it can only be closed already
	}
	s.hub.endAll(fault.Draining.With("the server is stopping: go to another, or come back"))
	told, cancel := context.WithTimeout(limit, s.cfg.RPC.PingTimeout)
	defer cancel()
	var all sync.WaitGroup
	for c, l := range conns {
		all.Go(func() {
			l.waitNoSubs(told) // who does not take that it ends is not waited for long
			_ = c.Drain(limit, "the server is stopping")
		})
	}
	for _, p := range webs {
		all.Go(func() { p.drain(limit, told) })
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

// commitContext is the context of one transaction that is finished whatever becomes of its
// caller.
func (s *Server) commitContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.workCtx, s.cfg.CommitTimeout)
}

func (s *Server) now() time.Time { return s.cfg.Now() }
