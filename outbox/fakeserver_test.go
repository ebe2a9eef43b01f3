package outbox

// A server for tests: the ledger's own rules over rows in memory, behind Link.
// Its links can be cut, its answers swallowed, and it can be made to refuse.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// fakeServer is what outlives every link.
type fakeServer struct {
	mu       sync.Mutex
	streams  map[string]*fakeStreamRow // session + outbox
	sessions map[string]*fakeSession
	links    map[*fakeStream]bool
	down     error // what OpenStream fails with
	dead     bool  // whoever sends may change nothing
	opened   []StreamRequest
	acks     []uint64

	// before and after are asked around every batch: an error before is a
	// call-level answer; cut breaks the link there, after: with the answer lost.
	before func(b *ledger.Batch) (err error, cut bool)
	after  func(b *ledger.Batch) (cut bool)
	// hold keeps answers back while it is locked.
	hold sync.RWMutex
}

type fakeStreamRow struct {
	row     ledger.Stream
	history *ledger.History
	hash    [32]byte
}

// fakeSession is a log: what applied, in order.
type fakeSession struct {
	log     []fakeEvent
	made    bool // by create
	managed bool // create has to come first
}

type fakeEvent struct {
	op, batch, method string
	args              []ledger.Arg
}

func newFakeServer() *fakeServer {
	return &fakeServer{streams: make(map[string]*fakeStreamRow), sessions: make(map[string]*fakeSession), links: make(map[*fakeStream]bool)}
}

func (s *fakeServer) session(id string) *fakeSession {
	if s.sessions[id] == nil {
		s.sessions[id] = &fakeSession{}
	}
	return s.sessions[id]
}

// log is what applied in a session.
func (s *fakeServer) log(session string) []fakeEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]fakeEvent(nil), s.session(session).log...)
}

// setDown makes every opening fail, or work again, and cuts what is open.
func (s *fakeServer) setDown(err error) {
	s.mu.Lock()
	s.down = err
	s.mu.Unlock()
	if err != nil {
		s.cutAll()
	}
}

func (s *fakeServer) cutAll() {
	s.mu.Lock()
	var all []*fakeStream
	for l := range s.links {
		all = append(all, l)
	}
	s.mu.Unlock()
	for _, l := range all {
		l.cut()
	}
}

func (s *fakeServer) openings() []StreamRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]StreamRequest(nil), s.opened...)
}

func (s *fakeServer) ackedThrough(session, outbox string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.streams[session+outbox]; r != nil {
		return r.row.AckedThrough
	}
	return 0
}

// OpenStream makes fakeServer a Link.
func (s *fakeServer) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return nil, s.down
	}
	s.opened = append(s.opened, req)
	key := req.Session + req.Outbox
	r := s.streams[key]
	if r == nil {
		r = &fakeStreamRow{row: ledger.Stream{Session: req.Session, Outbox: req.Outbox}, history: ledger.NewHistory(nil), hash: req.Secret.Hash()}
		s.streams[key] = r
	}
	if r.hash != req.Secret.Hash() {
		return nil, fault.WrongOutbox.With("the secret does not match")
	}
	if req.Incarnation < r.row.Incarnation {
		return nil, fault.Fenced.With("incarnation %d, the server knows %d", req.Incarnation, r.row.Incarnation)
	}
	if se := s.session(req.Session); se.managed && !se.made && req.SpaceRef == nil {
		return nil, fault.NotYetKnown.With("the session is not there yet")
	}
	r.row.Incarnation = req.Incarnation
	l := &fakeStream{server: s, req: req, last: r.row.LastSeq, wake: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{})}
	s.links[l] = true
	go l.run()
	return l, nil
}

// fakeStream answers in order, from a goroutine of its own.
type fakeStream struct {
	server *fakeServer
	req    StreamRequest
	last   uint64
	wake   chan struct{}
	done   chan struct{}
	ended  chan struct{}

	mu     sync.Mutex
	queue  []func(cut bool)
	broken bool
}

func (l *fakeStream) Opened(context.Context) (uint64, error) { return l.last, nil }
func (l *fakeStream) Done() <-chan struct{}                  { return l.done }

func (l *fakeStream) Close() { l.cut() }

func (l *fakeStream) cut() {
	l.mu.Lock()
	if !l.broken {
		l.broken = true
		close(l.done)
	}
	l.mu.Unlock()
	l.poke()
	l.server.mu.Lock()
	delete(l.server.links, l)
	l.server.mu.Unlock()
}

func (l *fakeStream) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *fakeStream) push(f func(cut bool)) {
	l.mu.Lock()
	l.queue = append(l.queue, f)
	over := l.broken
	l.mu.Unlock()
	if over {
		// run may have ended: whoever comes late is told from here, in order.
		go l.flush()
	}
	l.poke()
}

func (l *fakeStream) flush() {
	<-l.ended
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.queue {
		f(true)
	}
	l.queue = nil
}

func (l *fakeStream) run() {
	defer close(l.ended)
	for {
		l.mu.Lock()
		broken := l.broken
		var f func(bool)
		if len(l.queue) > 0 {
			f, l.queue = l.queue[0], l.queue[1:]
		}
		l.mu.Unlock()
		switch {
		case f != nil:
			f(broken)
		case broken:
			return
		default:
			<-l.wake
		}
	}
}

func (l *fakeStream) Apply(b *ledger.Batch, done func(Reply)) {
	l.push(func(cut bool) {
		gone := Reply{Err: fault.Disconnected.With("the link broke")}
		if cut {
			done(gone)
			return
		}
		s := l.server
		if s.before != nil {
			err, cut := s.before(b)
			if cut {
				l.cut()
				done(gone)
				return
			}
			if err != nil {
				done(Reply{Err: err})
				return
			}
		}
		r := s.apply(b)
		s.held()
		if s.after != nil && s.after(b) {
			l.cut()
			done(gone)
			return
		}
		done(r)
	})
}

func (l *fakeStream) Acknowledge(through uint64) {
	l.push(func(cut bool) {
		if cut {
			return
		}
		s := l.server
		s.mu.Lock()
		defer s.mu.Unlock()
		r := s.streams[l.req.Session+l.req.Outbox]
		s.acks = append(s.acks, through)
		if _, err := ledger.AckThrough(&r.row, through, r.history.Record); err == nil {
			r.history.Prune(r.row.AckedThrough)
		}
	})
}

// held waits while answers are kept back.
func (s *fakeServer) held() {
	s.hold.RLock()
	defer s.hold.RUnlock()
}

// apply is one batch through the ledger.
func (s *fakeServer) apply(b *ledger.Batch) Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.streams[b.Session+b.Outbox]
	if r == nil {
		return Reply{Err: fault.Internal.With("no stream")}
	}
	outs, err := ledger.Admit(&r.row, b, r.history.Record)
	if err != nil {
		return Reply{Err: err}
	}
	se := s.session(b.Session)
	if outs == nil {
		rec, err := ledger.Decide(&r.row, b, r.history.Outcome, ledger.DefaultLimits(), &fakeEffects{se: se, dead: s.dead})
		if err != nil {
			return Reply{Err: err}
		}
		r.history.Add(rec)
		outs = append(outs, rec.Outcomes...)
	}
	if _, err := ledger.AckThrough(&r.row, b.AckedThrough, r.history.Record); err != nil {
		return Reply{Err: err}
	}
	r.history.Prune(r.row.AckedThrough)
	return Reply{Outcomes: outs}
}

// fakeEffects knows a few methods: put, reject, deny and create. A result has
// the cursor and the arguments.
type fakeEffects struct {
	se   *fakeSession
	dead bool
}

func (f *fakeEffects) Cursor() uint64      { return uint64(len(f.se.log)) }
func (f *fakeEffects) Savepoint() any      { return len(f.se.log) }
func (f *fakeEffects) RollbackTo(mark any) { f.se.log = f.se.log[:mark.(int)] }

func (f *fakeEffects) Authorize(op *ledger.Intent) *fault.Error {
	switch {
	case f.dead, op.Method == "deny":
		return fault.Revoked.With("no")
	case f.se.managed && !f.se.made && op.Method != intent.MethodCreate:
		return fault.UnknownRef.With("the session was not made")
	}
	return nil
}

func (f *fakeEffects) Apply(op *ledger.Intent) (uint64, []byte, *fault.Error) {
	switch op.Method {
	case "reject":
		return 0, nil, fault.BadPayload.With("on request")
	case "refuse-create":
		return 0, nil, fault.AlreadyExists.With("on request")
	case intent.MethodCreate:
		for _, a := range op.Args {
			if a.Name == "refuse" {
				return 0, nil, fault.AlreadyExists.With("on request")
			}
		}
		f.se.made = true
	}
	f.se.log = append(f.se.log, fakeEvent{op.OpID, op.BatchID, op.Method, op.Args})
	cursor := uint64(len(f.se.log))
	var b strings.Builder
	fmt.Fprintf(&b, `{"cursor":%d,"args":{`, cursor)
	for i, a := range op.Args {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", a.Name, a.JSON)
	}
	b.WriteString("}}")
	return cursor, []byte(b.String()), nil
}

// testRef makes a ref for a new session or space and stores it.
func testRef(tb testing.TB, b *Box, target string, meta RefMeta) capability.Ref {
	tb.Helper()
	ref := testAddress.New(target)
	if err := b.PutRef(context.Background(), ref, meta); err != nil {
		tb.Fatal(err)
	}
	return ref
}

// awayFor is a server that one session cannot reach while it is down.
type awayFor struct {
	*fakeServer
	session string
	down    atomic.Bool
	tries   atomic.Int64 // of opening its stream, while it was down
}

func (s *fakeServer) awayFor(session string) *awayFor {
	a := &awayFor{fakeServer: s, session: session}
	a.down.Store(true)
	return a
}

func (a *awayFor) OpenStream(ctx context.Context, req StreamRequest) (Stream, error) {
	if req.Session == a.session && a.down.Load() {
		a.tries.Add(1)
		return nil, fault.Overloaded.With("on request")
	}
	return a.fakeServer.OpenStream(ctx, req)
}
