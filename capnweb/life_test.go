// How connections live and end, and what passes from one to another.

package capnweb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/until"
)

// A stub of one connection is handed to another: calls go through, both ways, and are released on both.
func TestThreeParties(t *testing.T) {
	released := new(atomic.Int32)
	far := serve(t, newTarget(released))
	farMain := far.client.Main()
	near := serve(t, capnweb.NewMethods(map[string]any{
		"far":    func() *capnweb.Stub { return farMain.Dup() },
		"lazily": func() *capnweb.Promise { return farMain.Call(bg, "makeCounter", 5) },
	}))
	m := near.client.Main()
	f := m.Call(bg, "far")
	sq := f.Call(bg, "square", 12)
	if v := await(t, sq); v != 144.0 {
		t.Fatal(v)
	}
	cb := f.Call(bg, "callFunction", func(i float64) float64 { return i * 2 }, 21)
	if v := await(t, cb); v.(map[string]any)["result"] != 42.0 {
		t.Fatal(v)
	}
	c := m.Call(bg, "lazily")
	inc := c.Call(bg, "increment", 2)
	if v := await(t, inc); v != 7.0 {
		t.Fatal(v)
	}
	s := await(t, c).(*capnweb.Stub)
	pass := f.Call(bg, "incrementCounter", s, 3) // back to where it came from
	if v := await(t, pass); v != 10.0 {
		t.Fatal(v)
	}
	bad := f.Call(bg, "fail")
	if err := awaitErr(t, bad); err.Error() != "internal error" {
		t.Fatal(err)
	}
	slow := f.Call(bg, "slow")
	slow.Then(func(any, error) {})
	far.settleAtLeast(1)
	for _, p := range []*capnweb.Promise{f, sq, cb, c, inc, pass, bad, slow} {
		p.Release()
	}
	m.Release()
	near.settle(0, 0)
	far.settle(0, 0)
	farMain.Release()
	until.True(t, "the counter is released", func() bool { return released.Load() > 0 }) // on a goroutine of its own
	if released.Load() != 1 {
		t.Fatal("the counter was released", released.Load(), "times")
	}
}

// settleAtLeast waits until the server has that many exports.
func (p *pair) settleAtLeast(n int) {
	p.t.Helper()
	until.True(p.t, "the server has enough exports", func() bool { return p.server.Stats().Exports >= n })
}

// One connection breaks: what was passed on to another is broken there too, and nothing hangs.
func TestTheMiddleLosesTheFarEnd(t *testing.T) {
	far := serve(t, newTarget(nil))
	farMain := far.client.Main()
	defer farMain.Release()
	near := serve(t, capnweb.NewMethods(map[string]any{"far": func() *capnweb.Stub { return farMain.Dup() }}))
	m := near.client.Main()
	defer m.Release()
	f := m.Call(bg, "far")
	defer f.Release()
	slow := f.Call(bg, "slow")
	defer slow.Release()
	got := make(chan error, 1)
	slow.Then(func(_ any, err error) { got <- err })
	far.settleAtLeast(1)
	far.server.Close("gone")
	if err := <-got; !strings.Contains(err.Error(), "cannot be reached") {
		t.Fatal(err)
	}
}

// Calls on one stub are delivered in order, whether they are pipelined, wait or block.
func TestOrder(t *testing.T) {
	var mu sync.Mutex
	var got []int
	note := func(i int) { mu.Lock(); got = append(got, i); mu.Unlock() }
	p := serve(t, capnweb.NewMethods(map[string]any{
		"log": func() capnweb.Object {
			return capnweb.NewMethods(map[string]any{"add": note})
		},
		"slowLog": func(ctx context.Context) capnweb.Object {
			return capnweb.NewMethods(map[string]any{"add": note})
		},
	}))
	m := p.client.Main()
	defer m.Release()
	for _, method := range []string{"log", "slowLog"} {
		got = nil
		l := m.Call(bg, method)
		var last *capnweb.Promise
		for i := range 500 {
			last.Release()
			last = l.Call(bg, "add", i)
		}
		await(t, last)
		last.Release()
		l.Release()
		if len(got) != 500 || !slices.IsSorted(got) {
			t.Fatalf("%s: %v", method, got)
		}
	}
}

// A handler that waits for the peer on the goroutine that reads does not hold up the answer.
func TestHandlerWaitsForThePeer(t *testing.T) {
	p := serve(t, capnweb.NewMethods(map[string]any{
		"ask": func(f *capnweb.Stub) (any, error) {
			q := f.Call(bg, "", 1)
			defer q.Release()
			return q.Await(bg)
		},
	}))
	m := p.client.Main()
	defer m.Release()
	for range 3 {
		q := m.Call(bg, "ask", func(i int) int { return i + 1 })
		if v := await(t, q); v != 2.0 {
			t.Fatal(v)
		}
		q.Release()
	}
}

// refusing is a transport that may not be read on.
type refusing struct{ capnweb.Transport }

func (refusing) Read(context.Context) ([]byte, error) {
	return nil, peerconn.RefusedRead(errors.New("no more memory"))
}

// Redact is called without the connection's lock, also for the error that ends it.
func TestRedactOfARefusal(t *testing.T) {
	t.Parallel()
	near, far := capnweb.Pipe()
	var c *capnweb.Conn
	var asked atomic.Int64
	c = capnweb.NewConn(refusing{near}, capnweb.Config{Redact: func(error) *capnweb.Error {
		c.Stats()
		asked.Add(1)
		return &capnweb.Error{Message: "refused"}
	}})
	ran := make(chan error, 1)
	go func() { ran <- c.Run(bg) }()
	select {
	case err := <-ran:
		if err == nil || asked.Load() != 1 {
			t.Errorf("ended with %v, Redact was called %d times", err, asked.Load())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not end")
	}
	if m, err := far.Read(bg); string(m) != `["abort",["error","Error","refused"]]` {
		t.Errorf("the peer is sent %s, %v", m, err)
	}
}

func TestRedact(t *testing.T) {
	p := connect(t, capnweb.Config{}, capnweb.Config{Main: newTarget(nil), Redact: func(err error) *capnweb.Error {
		return &capnweb.Error{Name: "Error", Message: "redacted", Props: map[string]any{"n": len(err.Error())}}
	}})
	m := p.client.Main()
	defer m.Release()
	q := m.Call(bg, "fail")
	defer q.Release()
	err, ok := awaitErr(t, q).(*capnweb.Error)
	if !ok || err.Message != "redacted" || err.Props["n"] != 6.0 {
		t.Fatal(err)
	}
}

// An error that is not for the peer goes to the log, a panic with its stack.
func TestLogLines(t *testing.T) {
	p := serve(t, newTarget(nil))
	m := p.client.Main()
	defer m.Release()
	for _, method := range []string{"fail", "panic"} {
		q := m.Call(bg, method)
		awaitErr(t, q)
		q.Release()
	}
	if log := p.log.String(); !strings.Contains(log, "secret") || !strings.Contains(log, "boom") || !strings.Contains(log, "goroutine") {
		t.Fatal(log)
	}
}

// Drain rejects what is new and waits for what runs.
func TestDrain(t *testing.T) {
	release := make(chan struct{})
	p := serve(t, capnweb.NewMethods(map[string]any{
		"wait": func(ctx context.Context) string { <-release; return "done" },
	}))
	m := p.client.Main()
	defer m.Release()
	w := m.Call(bg, "wait")
	defer w.Release()
	got := make(chan any, 1)
	w.Then(func(v any, err error) { got <- fmt.Sprint(v, err) })
	p.settleAtLeast(1)
	drained := make(chan error)
	go func() { drained <- p.server.Drain(bg, "going") }()
	for {
		q := m.Call(bg, "wait")
		ctx, cancel := context.WithTimeout(bg, 5*time.Millisecond)
		_, err := q.Await(ctx)
		cancel()
		q.Release()
		if err != nil && strings.Contains(err.Error(), "going away") {
			break
		}
	}
	close(release)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if v := <-got; v != "done<nil>" && v != "done <nil>" {
		t.Fatal(v)
	}
}

// recorder is a transport that remembers how it was closed.
type recorder struct {
	capnweb.Transport
	code   int
	reason string
}

func (r *recorder) Close(code int, reason string) error {
	if r.code == 0 {
		r.code, r.reason = code, reason
	}
	return r.Transport.Close(code, reason)
}

// A broken rule is told in an abort, and the close has code 3000 and a reason that fits a close frame.
func TestAbortIsTold(t *testing.T) {
	a, b := capnweb.Pipe()
	r := &recorder{Transport: a}
	c := capnweb.NewConn(r, capnweb.Config{})
	ran := make(chan error)
	go func() { ran <- c.Run(bg) }()
	if err := b.Write(bg, [][]byte{[]byte(`["` + strings.Repeat("é", 100) + `"]`)}); err != nil {
		t.Fatal(err)
	}
	msg, err := b.Read(bg)
	if err != nil || !strings.HasPrefix(string(msg), `["abort",["error","TypeError","unknown message`) {
		t.Fatal(string(msg), err)
	}
	if err := <-ran; err == nil || !strings.Contains(err.Error(), "broke the protocol") {
		t.Fatal(err)
	}
	if r.code != 3000 || len(r.reason) > 123 || !strings.HasPrefix(r.reason, "unknown message") {
		t.Fatal(r.code, r.reason)
	}
	if _, err := capnweb.NewConn(a, capnweb.Config{}).Main().Call(bg, "x").Await(canceled()); err == nil {
		t.Fatal("no error")
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(bg)
	cancel()
	return ctx
}

// stuck is a transport whose peer does not read, or answers no ping.
type stuck struct {
	capnweb.Transport
	write, ping bool
	closed      chan struct{}
	once        sync.Once
}

func (s *stuck) Write(ctx context.Context, m [][]byte) error {
	if s.write {
		<-s.closed
		return errors.New("closed")
	}
	return s.Transport.Write(ctx, m)
}

func (s *stuck) Ping(ctx context.Context) error {
	if s.ping {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *stuck) Close(code int, reason string) error {
	s.once.Do(func() { close(s.closed) })
	return s.Transport.Close(code, reason)
}

// Peers that are good for nothing are cut off when Limits says.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		limit       capnweb.Limit
		lim         capnweb.Limits
		write, ping bool
		want        time.Duration
	}{
		{capnweb.LimitHandshakeTimeout, capnweb.Limits{HandshakeTimeout: time.Second}, false, false, time.Second},
		{capnweb.LimitIdleTimeout, capnweb.Limits{IdleTimeout: time.Minute}, false, false, time.Minute},
		{capnweb.LimitPingTimeout, capnweb.Limits{}, false, true, 9 * time.Second},
		{capnweb.LimitWriteTimeout, capnweb.Limits{WriteTimeout: 3 * time.Second, PingInterval: time.Hour}, true, false, 3 * time.Second},
	} {
		t.Run(string(c.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := capnweb.Pipe()
				hits := new(capnweb.LimitHits)
				conn := capnweb.NewConn(&stuck{Transport: a, write: c.write, ping: c.ping, closed: make(chan struct{})},
					capnweb.Config{Limits: c.lim, LimitHits: hits})
				began := time.Now()
				m := conn.Main()
				if c.write {
					p := m.Call(bg, "x")
					defer p.Release()
				}
				m.Release()
				err := conn.Run(bg)
				if took := time.Since(began); took < c.want || took > c.want+c.want/2+3*time.Second {
					t.Errorf("it took %v", took)
				}
				if _, ok := errors.AsType[*capnweb.BrokenError](err); !ok || hits.Of(c.limit) != 1 {
					t.Errorf("%v, %d hits", err, hits.Of(c.limit))
				}
			})
		})
	}
}

// A caller that goes too fast for its peer waits, as long as its context lets it.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := capnweb.Pipe()
		hits := new(capnweb.LimitHits)
		conn := capnweb.NewConn(&stuck{Transport: a, write: true, closed: make(chan struct{})},
			capnweb.Config{Limits: capnweb.Limits{QueuedBytes: 1000, PingInterval: time.Hour, WriteTimeout: time.Hour, CloseTimeout: time.Second}, LimitHits: hits})
		ran := make(chan error)
		go func() { ran <- conn.Run(bg) }()
		m := conn.Main()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		var err error
		n := 0
		for err == nil && n < 1000 {
			p := m.Call(ctx, "x", strings.Repeat("x", 50))
			select {
			case <-ctx.Done():
				_, err = p.Await(bg)
			default:
			}
			p.Release()
			n++
		}
		if !errors.Is(err, context.DeadlineExceeded) || n > 30 || hits.Of(capnweb.LimitQueuedBytes) == 0 {
			t.Error(n, err)
		}
		m.Release()
		conn.Close("over")
		<-ran
	})
}

// An object is one however often it is handed out, and told once that nobody holds it: not before both connections gave
// it back.
func TestReleaserIsToldOnce(t *testing.T) {
	released := new(atomic.Int32)
	c := &counter{released: released}
	give := capnweb.NewMethods(map[string]any{"give": func() *counter { return c }})
	one, two := serve(t, give), serve(t, give)
	var stubs []*capnweb.Promise
	for _, p := range []*pair{one, two} {
		m := p.client.Main()
		for range 2 {
			q := m.Call(bg, "give")
			await(t, q)
			stubs = append(stubs, q)
		}
		m.Release()
	}
	for i, q := range stubs {
		if released.Load() != 0 {
			t.Fatal("released with", i, "given back")
		}
		q.Release()
	}
	one.settle(0, 0)
	two.settle(0, 0)
	until.True(t, "it is released", func() bool { return released.Load() > 0 })
	if released.Load() != 1 {
		t.Fatal(released.Load())
	}
	s := capnweb.NewStub(c)
	if s.Object() != capnweb.Object(c) {
		t.Fatal("another object")
	}
	s.Release()
	s.Release()
	until.True(t, "it is released again", func() bool { return released.Load() > 1 })
	if released.Load() != 2 {
		t.Fatal(released.Load())
	}
}

// Calls within the process work like others.
func TestCallsWithinTheProcess(t *testing.T) {
	s := capnweb.NewStub(newTarget(nil))
	c := s.Call(bg, "makeCounter", 1)
	inc := c.Call(bg, "increment", 2)
	if v := await(t, inc); v != 3.0 {
		t.Fatal(v)
	}
	sq := s.Call(bg, "array").Map(func(in *capnweb.Promise) any { return s.Call(bg, "square", in) })
	if v := await(t, sq); fmt.Sprint(v) != "[1 4 9]" {
		t.Fatal(v)
	}
	p, resolve := capnweb.NewPromise()
	e := s.Call(bg, "echo", []any{p})
	resolve("late", nil)
	if v := await(t, e); fmt.Sprint(v) != "[late]" {
		t.Fatal(v)
	}
	for _, q := range []*capnweb.Promise{c, inc, sq, e} {
		q.Release()
	}
	s.Release()
	gone := s.Call(bg, "square", 1)
	if err := awaitErr(t, gone); !strings.Contains(err.Error(), "released") {
		t.Fatal(err)
	}
}

// Who writes to a peer that has closed its end is told by reading alone: first what the peer said before.
func TestWritingToAClosedPipe(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	a, b := capnweb.Pipe()
	if err := b.Write(ctx, [][]byte{[]byte("why")}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(1000, ""); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(ctx, [][]byte{[]byte("something")}); err != nil {
		t.Error(err)
	}
	if said, err := a.Read(ctx); string(said) != "why" || err != nil {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := a.Read(ctx); err != io.EOF {
		t.Error(err)
	}
}
