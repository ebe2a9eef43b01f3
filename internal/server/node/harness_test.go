//go:build unix

// What the server's tests share: a running server on a real database, and peers
// that call it over the vat, as any client would.

package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(seed.Cases(100))); err != nil { // the command line is parsed later and wins
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"),
		goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait")) // half a second
}

// patience is how long a test waits for what must come: also where a database's disk stands still for a while.
const patience = time.Minute

// Stores that last until the test ends.
var sqliteStore, postgresStore = teststore.SQLite, teststore.Postgres

// onBoth is teststore.OnBoth for tests of what any Store may stand behind.
func onBoth(t *testing.T, f func(t *testing.T, st Store)) {
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) { f(t, st) })
}

// rig is a running server and its owner's ref.
type rig struct {
	t      testing.TB
	server *Server
	owner  capability.Ref
	stop   func() // drains; further calls do nothing
}

// start runs a server until the test ends. change may be nil.
func start(t testing.TB, st Store, change func(*Config)) *rig {
	t.Helper()
	return startOn(t, st, change)
}

// startOn is start with listeners for byte streams.
func startOn(t testing.TB, st Store, change func(*Config), streams ...net.Listener) *rig {
	t.Helper()
	dir := t.TempDir()
	address := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	if _, err := operator.Bootstrap(t.Context(), st, dir, address, false); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	if text, err := os.ReadFile(dir + "/" + operator.OwnerFile); err == nil { // otherwise another server was first
		if r.owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	cfg := DefaultConfig()
	cfg.Store, cfg.PollInterval = st, 0
	if change != nil {
		change(&cfg)
	}
	r.server = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx, nil, streams...) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("the server ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("the server does not end")
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// stopping has the server stop, and gives what is closed when it has.
func (r *rig) stopping() (stopped <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.stop()
	}()
	return done
}

// peer is a connection to a server.
type peer struct {
	t       testing.TB
	conn    *rpc.Conn
	gateway *rpc.Ref
}

// dial connects a peer; it leaves when the rig's test ends, or by leave.
func (r *rig) dial() *peer { return r.dialIn(r.t) }

// dialIn is dial for a subtest.
func (r *rig) dialIn(t testing.TB) *peer {
	near, far := rpc.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.ServeConn(far)
	}()
	p := newPeer(t, near)
	t.Cleanup(func() {
		p.leave()
		<-served
	})
	return p
}

func newPeer(t testing.TB, transport rpc.Transport) *peer {
	p := &peer{t: t, conn: rpc.NewConn(transport, rpc.Config{Limits: rpc.Limits{MessageBytes: 64 << 20}})}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = p.conn.Run(context.Background())
	}()
	t.Cleanup(func() {
		p.leave()
		<-ran
	})
	p.gateway = p.conn.Bootstrap(t.Context())
	return p
}

func (p *peer) leave() { p.conn.Close("test") }

// within gives a context that ends when the test's patience does.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// call makes a call and waits. The error is the server's fault where it is one.
func call(t testing.TB, to *rpc.Ref, m rpc.Method, sz capnp.ObjectSize, place func(capnp.Struct, *rpc.CapTable) error) (capnp.Struct, *rpc.Promise, error) {
	t.Helper()
	p := to.Call(within(t), m, sz, place)
	res, _, err := p.Wait(within(t))
	var ex *rpc.Exception
	if errors.As(err, &ex) {
		if f, ok := fault.ParseReason(ex.Reason); ok {
			err = f
		}
	}
	return res, p, err
}

// restoring pipelines on restoring a ref; nothing is waited for.
func (p *peer) restoring(ref capability.Ref, redemption string) *rpc.Promise {
	return p.gateway.Call(within(p.t), methods.GatewayRestore.Method, methods.GatewayRestore.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Gateway_restore_Params(s)
		w, err := params.NewRef()
		if err != nil {
			return err
		}
		if err := w.SetId(ref.ID); err != nil {
			return err
		}
		if err := w.SetSecret(ref.Secret.Reveal()); err != nil {
			return err
		}
		return params.SetRedemption(redemption)
	})
}

// restore gives the live object of a ref.
func (p *peer) restore(ref capability.Ref) *rpc.Ref {
	return p.restoring(ref, "redemption of "+p.t.Name()[:min(len(p.t.Name()), 30)]).Cap(0)
}

// restoreErr is what restoring ends with.
func (p *peer) restoreErr(ref capability.Ref, redemption string) error {
	_, _, err := p.restoring(ref, redemption).Wait(within(p.t))
	var ex *rpc.Exception
	if errors.As(err, &ex) {
		if f, ok := fault.ParseReason(ex.Reason); ok {
			return f
		}
	}
	return err
}

// box is an outbox's identity and, for one stream, its next seq.
type box struct {
	id          string
	secret      []byte
	incarnation uint64
	seq         uint64
}

func newBox() *box {
	secret := sha256.Sum256([]byte(ulid.Make().String()))
	return &box{id: "obx_" + ulid.Make().String(), secret: secret[:], incarnation: 1}
}

func (p *peer) opening(sess *rpc.Ref, b *box) *rpc.Promise {
	return sess.Call(within(p.t), methods.SessionOpenStream.Method, methods.SessionOpenStream.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Session_openStream_Params(s)
		params.SetIncarnation(b.incarnation)
		if err := params.SetOutbox(b.id); err != nil {
			return err
		}
		return params.SetSecret(b.secret)
	})
}

func (p *peer) open(sess *rpc.Ref, b *box) *rpc.Ref { return p.opening(sess, b).Cap(0) }

// made is a session and how to speak to it.
type made struct {
	id     string
	owner  capability.Ref
	sess   *rpc.Ref
	stream *rpc.Ref
	box    *box
}

// create makes a session with one batch: its create op.
func (r *rig) create(p *peer) *made {
	r.t.Helper()
	m := r.unmade(p)
	ack := p.must(m.stream, m.batch(op("create", "ref", m.owner.ID, "hash", hashText(m.owner.Secret))))
	if ack.outcomes[0].Status != ledger.Applied {
		r.t.Fatalf("create: %+v", ack.outcomes[0])
	}
	return m
}

// unmade is create without the op.
func (r *rig) unmade(p *peer) *made {
	m := &made{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
	m.owner = r.owner.New(m.id)
	space := p.restore(r.owner)
	m.sess = space.Call(within(p.t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Space_create_Params(s)
		if err := params.SetSession(m.id); err != nil {
			return err
		}
		return params.SetOwner(m.owner.ID)
	}).Cap(0)
	m.stream = p.open(m.sess, m.box)
	return m
}

// apply sends a batch and waits for the reply.
func (p *peer) apply(stream *rpc.Ref, b *ledger.Batch, with ...*rpc.Ref) *reply {
	p.t.Helper()
	return readReply(p.t, applying(p.t, stream, b, with...))
}

// must is apply, which is not refused.
func (p *peer) must(stream *rpc.Ref, b *ledger.Batch, with ...*rpc.Ref) *reply {
	p.t.Helper()
	r := p.apply(stream, b, with...)
	if r.refusal != nil {
		p.t.Fatalf("apply was refused: %v", r.refusal)
	}
	return r
}

// share mints a ref with an op of m's stream.
func (p *peer) share(m *made, args ...any) capability.Ref {
	p.t.Helper()
	ref := m.owner.New(m.id)
	args = append([]any{"ref", ref.ID, "hash", hashText(ref.Secret)}, args...)
	r := p.must(m.stream, m.batch(op("share", args...)))
	if r.outcomes[0].Status != ledger.Applied {
		p.t.Fatalf("share: %+v", r.outcomes[0])
	}
	return ref
}

// recorder is an EventSink that keeps what it gets.
type recorder struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	cursors []uint64
	shown   []string // the events as text: "5 put message/m1", or "7 hidden"
	bytes   int
	keys    map[string]string // of state
	turns   []string          // of state: their messages
	turnsOf []string          // of state: their outboxes
	pieces  []int             // of state: what each has of both
	stateAt uint64
	last    bool
	ended   *fault.Error

	hold  bool // keep calls unanswered
	held  []*rpc.Call
	fails error // answer events with this
}

func newRecorder() *recorder {
	return &recorder{changed: make(chan struct{}), keys: map[string]string{}}
}

func (k *recorder) Serve(c *rpc.Call) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, _ := c.Params()
	switch c.Method().ID {
	case methods.EventSinkEvents.ID:
		list, _ := wire.EventSink_events_Params(s).Events()
		k.shown = append(k.shown, shownAs(list)...)
		for i := range list.Len() {
			k.cursors = append(k.cursors, list.At(i).Cursor())
			payload, _ := list.At(i).PayloadBytes()
			k.bytes += len(payload)
		}
	case methods.EventSinkState.ID:
		p := wire.EventSink_state_Params(s)
		list, _ := p.Entries()
		for i := range list.Len() {
			key, _ := list.At(i).Key()
			k.keys[key], _ = list.At(i).Payload()
		}
		turns, _ := p.Turns()
		for i := range turns.Len() {
			message, _ := turns.At(i).Message_()
			outbox, _ := turns.At(i).Outbox()
			k.turns, k.turnsOf = append(k.turns, message), append(k.turnsOf, outbox)
		}
		k.pieces = append(k.pieces, list.Len()+turns.Len())
		k.stateAt, k.last = p.Cursor(), p.Last()
	case methods.EventSinkEnded.ID:
		r, _ := wire.EventSink_ended_Params(s).Refusal()
		k.ended = readRefusal(r)
	}
	close(k.changed)
	k.changed = make(chan struct{})
	switch {
	case k.hold:
		k.held = append(k.held, c)
	case k.fails != nil:
		c.Fail(k.fails)
	default:
		c.Return(batchtest.StructSize(0, 0), nil)
	}
}

// shownAs is events as text. A mark has a cursor and nothing else.
func shownAs(list wire.Event_List) (shown []string) {
	for i := range list.Len() {
		e := list.At(i)
		method, _ := e.Method()
		key, _ := e.Key()
		text := fmt.Sprintf("%d %s %s", e.Cursor(), method, key)
		if e.Hidden() {
			text = fmt.Sprintf("%d hidden%s%s", e.Cursor(), method, key)
		}
		shown = append(shown, text)
	}
	return shown
}

// until waits until ok, which is called with the recorder locked.
func (k *recorder) until(t testing.TB, label string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		k.mu.Lock()
		good, changed := ok(), k.changed
		k.mu.Unlock()
		if good {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			k.mu.Lock()
			defer k.mu.Unlock()
			t.Fatalf("waited in vain for %s: %d events, ended %v", label, len(k.cursors), k.ended)
		}
	}
}

// untilCursor waits for the event at cursor.
func (k *recorder) untilCursor(t testing.TB, cursor uint64) {
	t.Helper()
	k.until(t, fmt.Sprintf("cursor %d", cursor), func() bool {
		return len(k.cursors) > 0 && k.cursors[len(k.cursors)-1] >= cursor
	})
}

// untilDraining waits until it is told that the server stops.
func (k *recorder) untilDraining(t testing.TB) {
	t.Helper()
	k.until(t, "word of the end", func() bool { return k.ended != nil })
	if k.ended.Code != fault.Draining {
		t.Errorf("the subscriber was told %v", k.ended)
	}
}

// consecutive checks that what came is from+1, from+2, … without a gap or repeat.
func (k *recorder) consecutive(t testing.TB, from uint64) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, c := range k.cursors {
		if c != from+uint64(i)+1 {
			t.Fatalf("event %d has cursor %d, want %d", i, c, from+uint64(i)+1)
		}
	}
}

// free answers what is held and holds nothing more.
func (k *recorder) free() {
	k.mu.Lock()
	held := k.held
	k.hold, k.held = false, nil
	k.mu.Unlock()
	for _, c := range held {
		c.Return(batchtest.StructSize(0, 0), nil)
	}
}

// subscribing has a session's events sent to k; the promise's capability is the
// subscription, which lasts as long as it is held.
func (p *peer) subscribing(sess *rpc.Ref, k *recorder, from uint64, window uint32, snapshot bool) *rpc.Promise {
	sink := rpc.NewLocal(k)
	defer sink.Release()
	return sess.Call(within(p.t), methods.SessionSubscribe.Method, methods.SessionSubscribe.Params, func(s capnp.Struct, caps *rpc.CapTable) error {
		o, err := wire.Session_subscribe_Params(s).NewOptions()
		if err != nil {
			return err
		}
		o.SetFrom(from)
		o.SetWindowBytes(window)
		o.SetSnapshot(snapshot)
		return caps.Set(s, 1, sink)
	})
}

// subscribe is subscribing, which is not refused.
func (p *peer) subscribe(sess *rpc.Ref, k *recorder, from uint64) *rpc.Ref {
	p.t.Helper()
	promise := p.subscribing(sess, k, from, 0, false)
	defer promise.Release()
	if _, _, err := promise.Wait(within(p.t)); err != nil {
		p.t.Fatalf("subscribe: %v", err)
	}
	return promise.Cap(0)
}

func wantCode(t testing.TB, label string, err error, want fault.Code) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %s", label, err, want)
	}
}

// rowOf is a session's row, by the store.
func rowOf(t testing.TB, st Store, id string) *session.Row {
	t.Helper()
	rows, err := st.ReadRows(t.Context(), []string{id})
	if err != nil || rows[id] == nil {
		t.Fatalf("row of %s: %v", id, err)
	}
	return rows[id]
}
