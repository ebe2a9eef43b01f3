// Package server binds the domain to the wires: it serves the objects of
// capnp/mooring.capnp over connections of the vat and over Cap'n Web, gathers what they are asked
// to do into transactions, and tells subscribers what came of it.
//
// An op's way through it, a step a file: stream.go and stream_apply.go decode a batch
// and queue it; group.go gathers what waits on all connections into one transaction of
// the store, in which session.Commit decides everything, and answers; hub.go,
// topic.go, subscription.go and sink.go hand what was committed to subscribers, here and,
// through notifications and polling (news.go), on the other replicas. What is read goes
// another way: snapshot.go, places.go and pace.go send the state.
//
// gateway.go (with redeem.go, challenge.go and wrongtries.go), space.go and sess.go are
// the objects around it, and decode.go and encode.go what they are told and tell;
// authority.go is the check of what a reader may see; attenuate.go, save.go, rotate.go,
// refs.go and the files that begin with space_ and sess_ change and show authority;
// audit.go and uses.go keep what was refused and used, pages.go writes it.
//
// config.go says what a server is told, listen.go, http.go and address.go let
// connections in, intake.go says how much is taken in of them, bounds.go, metrics.go, observe.go and log.go count and tell, outage.go looks
// into what keeps commits from succeeding; sweeper.go and
// trim.go do what is done without a call, owner.go is the first start, owner_rotate.go
// and owner_session.go the rescue of a lost owner's ref. web.go and the files beside it
// are the same objects over Cap'n Web, door.go and those beside it the same for faces
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
	"github.com/mooring-rpc/mooring/internal/gate"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// Server serves one database's sessions. All methods are safe for concurrent
// use; Run is called once.
type Server struct {
	cfg    Config // of the start: what SetLimits changes is in limits
	limits *limits
	log    *slog.Logger
	// connLog is log for what concerns one connection.
	connLog *slog.Logger
	hub     *hub
	commit  *committer
	audit   *auditor
	uses    *usage
	quotas  *quotas

	accounts *accounts
	shots    *places // of the snapshots that are being sent

	base   context.Context // of every connection; ended when draining takes too long
	cutOff context.CancelFunc
	work   context.Context // of what is finished whatever becomes of its caller; ended when stopping takes too long
	giveUp context.CancelCauseFunc

	intake      *intake.Config // of what peers send
	connections *gate.Gate
	handshakes  *handshakes
	tries       *wrongTries
	telling     chan struct{} // bounds those who are told why they are turned away
	hits        rpc.Hits
	observed    *observed
	met         boundHits
	outage      *outage

	ending  atomic.Bool // Config.DrainDelay has begun
	history atomic.Pointer[string]
	totals  atomic.Pointer[session.Totals] // nil until they were counted

	byHand, generated atomic.Uint64 // batches that were read so

	mu       sync.Mutex
	stopping bool
	stopped  chan struct{} // closed when stopping is set
	conns    map[*rpc.Conn]*link
	past     traffic // of connections that have ended
	open     sync.WaitGroup

	web   webConns
	faces map[string]http.Handler // by path: Mount
}

// New makes a server; Run starts it. It never closes the store.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Log, stopped: make(chan struct{}), conns: map[*rpc.Conn]*link{},
		connections: gate.New(cfg.Connections, cfg.ConnectionsPerAddress), telling: make(chan struct{}, tellingAtOnce)}
	s.intake = newIntake(&cfg)
	s.web.open, s.faces = map[*capnweb.Conn]*webPeer{}, map[string]http.Handler{}
	s.handshakes = &handshakes{server: s, gate: gate.NewEvicting(cfg.Handshakes, cfg.ConnectionsPerAddress), open: map[net.Conn]*httpConn{}}
	s.base, s.cutOff = context.WithCancel(context.Background())
	s.work, s.giveUp = context.WithCancelCause(context.Background())
	s.connLog = slog.New(demoted{cfg.Log.Handler()})
	s.observed = newObserved()
	s.outage = newOutage(cfg, s.observed)
	cfg.Store = watched{cfg.Store, s.outage}
	s.cfg.Store = cfg.Store
	s.hub = newHub(cfg.Store, cfg.ReadTimeout, cfg.Log)
	s.hub.taken = s.observed.deliveries.Observe
	s.audit, s.uses, s.quotas = newAuditor(cfg), newUsage(cfg), newQuotas()
	s.accounts = newAccounts(cfg.Session.Limits.AccountBytes)
	cfg.Session.DenialRows, cfg.Session.Full = s.audit.room, s.accounts.full
	s.cfg = cfg
	s.commit = newCommitter(s.work, cfg, s.hub, s.uses, &s.met, s.quotas, s.observed, s.outage)
	s.commit.denied, s.limits = s.audit.counted, s.commit.limits
	s.shots = newPlaces(cfg.Snapshots, cfg.StallTimeout, &s.met)
	s.tries = newWrongTries(cfg.WrongTries, cfg.WrongTryInterval, &s.met)
	return s
}

// Run serves connections until ctx ends: over HTTP from web (nil for none), and
// of the standard two-party byte stream from streams. Then, after Config.DrainDelay, it drains: new calls
// and connections are refused, what runs is finished and answered, and subscribers
// are told, all within Config.DrainTimeout. It returns nil after that, or what
// ended a listener. The listeners are closed in any case.
func (s *Server) Run(ctx context.Context, web net.Listener, streams ...net.Listener) error {
	asking, answered := context.WithTimeout(ctx, readyTimeout)
	if err := s.learnHistory(asking); err != nil { // /readyz asks again
		s.log.Warn("the database's history is not known yet", "error", err)
	}
	answered()
	looping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){s.listen, s.poll, s.expire, s.sweep, s.trim, s.forget, s.measure, s.retitle, s.account, s.count, s.watchCommits} {
		loops.Go(func() { s.keep(looping, loop) })
	}
	s.commit.start()

	served := make(chan error, 1+len(streams))
	var listeners sync.WaitGroup
	server := s.newHTTP()
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
		err = s.announceEnd(served)
	case err = <-served:
	}
	over := time.AfterFunc(s.cfg.DrainTimeout, func() { s.giveUp(context.DeadlineExceeded) })
	defer over.Stop()
	s.drain(ctx, server, streams)
	listeners.Wait()
	stop()
	s.commit.close()
	s.hub.close()
	loops.Wait()
	s.writeAudit(true)
	return err
}

// announceEnd has readyz say for Config.DrainDelay that the server is to stop, and nothing
// else change. It ends early if a listener does.
func (s *Server) announceEnd(served <-chan error) error {
	if s.cfg.DrainDelay <= 0 {
		return nil
	}
	s.ending.Store(true)
	s.log.Info("draining soon: not ready any more", "in", s.cfg.DrainDelay)
	select {
	case <-time.After(s.cfg.DrainDelay):
		return nil
	case err := <-served:
		return err
	}
}

// keep runs a loop until ctx ends. After a defect in it, it is begun anew.
func (s *Server) keep(ctx context.Context, loop func(context.Context)) {
	for guarded(s.log, "look after the database", func() { loop(ctx) }) != nil {
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
	close(s.stopped)
	conns := maps.Clone(s.conns)
	s.mu.Unlock()
	webs := s.web.list()
	s.log.Info("draining", "connections", len(conns)+len(webs))
	s.tries.close()
	for _, ln := range streams {
		_ = ln.Close() // it can only be closed already
	}
	s.hub.end(fault.Draining.With("the server is stopping: go to another, or come back"))
	told, cancel := context.WithTimeout(limit, s.cfg.RPC.PingTimeout)
	defer cancel()
	var all sync.WaitGroup
	for c, l := range conns {
		all.Go(func() {
			l.quiet(told) // who does not take that it ends is not waited for long
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
		s.open.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-limit.Done():
		s.log.Warn("draining took too long: connections are cut")
	}
	s.cutOff()
	_ = web.Close()
	<-ended
}

func (s *Server) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// writing is the context of one transaction that is finished whatever becomes of its
// caller.
func (s *Server) writing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.work, s.cfg.CommitTimeout)
}

func (s *Server) now() time.Time { return s.cfg.Now() }
