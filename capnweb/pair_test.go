// Two connections in one process, and what tests do with them.

package capnweb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/until"
)

// pair is a client and a server, connected.
type pair struct {
	t              *testing.T
	client, server *capnweb.Conn
	errs           [2]error
	wg             sync.WaitGroup
	log            lockbuf.Buffer
}

// connect runs two connections over a pipe until the test ends. Their tables must be empty then.
func connect(t *testing.T, clientCfg, serverCfg capnweb.Config) *pair {
	t.Helper()
	a, b := capnweb.Pipe()
	p := &pair{t: t}
	log := slog.New(slog.NewTextHandler(&p.log, nil))
	clientCfg.Logger, serverCfg.Logger = log, log
	p.client, p.server = capnweb.NewConn(a, clientCfg), capnweb.NewConn(b, serverCfg)
	for i, c := range []*capnweb.Conn{p.client, p.server} {
		p.wg.Go(func() { p.errs[i] = c.Run(context.Background()) })
	}
	t.Cleanup(func() {
		p.client.Close("the test is over")
		p.wg.Wait()
		for _, c := range []*capnweb.Conn{p.client, p.server} {
			if s := c.Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 {
				t.Errorf("after the end a connection holds %+v", s)
			}
		}
	})
	return p
}

func serve(t *testing.T, main any) *pair {
	return connect(t, capnweb.Config{}, capnweb.Config{Main: main})
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// settle waits until neither side has more than what is given.
func (p *pair) settle(exports, imports int) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		c, s := p.client.Stats(), p.server.Stats()
		if s.Exports == exports && c.Imports == exports && c.Exports == imports && s.Imports == imports {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("the client holds %+v and the server %+v; wanted %d and %d", c, s, exports, imports)
		}
		runtime.Gosched()
	}
}

var bg = context.Background()

func await(t *testing.T, p *capnweb.Promise) any {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	v, err := p.Await(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func awaitErr(t *testing.T, p *capnweb.Promise) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, patience)
	defer cancel()
	v, err := p.Await(ctx)
	if err == nil {
		t.Fatalf("got %v, wanted an error", v)
	}
	return err
}

// counter is an object with state, and one that tells when it is released.
type counter struct {
	n        int
	released *atomic.Int32
}

func (c *counter) Serve(call *capnweb.Call) {
	switch call.Method() {
	case "increment":
		by := 1
		if err := call.Scan(&by); err != nil && len(call.Args()) > 0 {
			call.Fail(err)
			return
		}
		c.n += by
		call.Return(c.n)
	case "fail":
		call.Fail(errors.New("secret"))
	default:
		call.Fail(capnweb.TypeErrorf("'%s' is not a function.", call.Method()))
	}
}

func (c *counter) Get(name string) (any, bool) {
	if name == "value" {
		return c.n, true
	}
	return nil, false
}

func (c *counter) Release() {
	if c.released != nil {
		c.released.Add(1)
	}
}

func newTarget(released *atomic.Int32) *capnweb.Methods {
	return capnweb.NewMethods(map[string]any{
		"square":      func(i float64) float64 { return i * i },
		"makeCounter": func(i int) *counter { return &counter{n: i, released: released} },
		"incrementCounter": func(c *capnweb.Call, counter *capnweb.Stub, by int) {
			p := counter.Call(bg, "increment", by)
			c.Return(p)
		},
		"callFunction": func(ctx context.Context, f *capnweb.Stub, i float64) (map[string]any, error) {
			p := f.Call(ctx, "", i)
			defer p.Release()
			v, err := p.Await(ctx)
			return map[string]any{"result": v}, err
		},
		"echo":  func(v any) any { return v },
		"slow":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"panic": func() { panic("boom") },
		"fail":  func() error { return errors.New("secret") },
		"array": func() []any { return []any{1, 2, 3} },
		"same": func(c *capnweb.Call, s *capnweb.Stub) {
			c.Return(fmt.Sprintf("%T", s.Object()))
		},
	})
}

func TestCalls(t *testing.T) {
	released := new(atomic.Int32)
	p := serve(t, newTarget(released))
	m := p.client.Main()
	defer m.Release()

	sq := m.Call(bg, "square", 7)
	if v := await(t, sq); v != 49.0 {
		t.Fatalf("square: %v", v)
	}
	sq.Release()

	c := m.Call(bg, "makeCounter", 3)
	inc := c.Call(bg, "increment", 4) // pipelined
	if v := await(t, inc); v != 7.0 {
		t.Fatalf("increment: %v", v)
	}
	inc.Release()
	val := c.Get("value")
	if v := await(t, val); v != 7.0 {
		t.Fatalf("value: %v", v)
	}
	val.Release()
	// A promise as an argument is resolved before delivery.
	via := m.Call(bg, "incrementCounter", c, 10)
	if v := await(t, via); v != 17.0 {
		t.Fatalf("incrementCounter: %v", v)
	}
	via.Release()
	stub, ok := await(t, c).(*capnweb.Stub)
	if !ok {
		t.Fatal("no stub")
	}
	same := m.Call(bg, "same", stub)
	if v := await(t, same); v != "*capnweb_test.counter" {
		t.Fatalf("same: %v", v)
	}
	same.Release()
	c.Release()

	cb := m.Call(bg, "callFunction", func(i float64) float64 { return i + 1 }, 5)
	if v := await(t, cb); v.(map[string]any)["result"] != 6.0 {
		t.Fatalf("callFunction: %v", v)
	}
	cb.Release()

	echo := m.Call(bg, "echo", map[string]any{"a": []any{1, nil, "x"}, "u": capnweb.Undefined{}})
	v := await(t, echo).(map[string]any)
	if fmt.Sprint(v) != "map[a:[1 <nil> x] u:{}]" {
		t.Fatalf("echo: %v", v)
	}
	echo.Release()

	for _, bad := range []struct{ method, want string }{
		{"panic", "internal error"}, {"fail", "internal error"}, {"nothing", "nothing is not a method"},
		{"toString", "is not a function"}, {"square", "TypeError"},
	} {
		pr := m.Call(bg, bad.method)
		err := awaitErr(t, pr)
		if !strings.Contains(err.Error(), bad.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", bad.method, err)
		}
		_, name, named := strings.Cut(err.Error(), " at incident ")
		if named != (bad.method == "panic") || named && !strings.Contains(p.log.String(), " incident="+name+" ") {
			t.Errorf("%s: the caller has %v, the log %q", bad.method, err, p.log.String())
		}
		pr.Release()
	}
	p.settle(0, 0)
	until.True(t, "the counter is released", func() bool { return released.Load() > 0 }) // on a goroutine of its own
	if released.Load() != 1 {
		t.Fatalf("released %d times", released.Load())
	}
}

func TestGivingUpACallEndsItsContext(t *testing.T) {
	p := serve(t, newTarget(nil))
	m := p.client.Main()
	defer m.Release()
	pr := m.Call(bg, "slow")
	pr.Then(func(any, error) {})
	p.settle(1, 0)
	pr.Release()
	p.settle(0, 0)
	if err := awaitErr(t, pr); !strings.Contains(err.Error(), "released") {
		t.Fatal(err)
	}
}

func TestTheEndBreaksEverything(t *testing.T) {
	p := serve(t, newTarget(nil))
	m := p.client.Main()
	defer m.Release()
	broken := make(chan error, 1)
	m.OnBroken(func(err error) { broken <- err })
	pr := m.Call(bg, "slow")
	defer pr.Release()
	got := make(chan error, 1)
	pr.Then(func(_ any, err error) { got <- err })
	p.settle(1, 0)
	p.server.Abort(errors.New("secret"))
	for _, ch := range []chan error{broken, got} {
		err := <-ch
		if _, ok := errors.AsType[*capnweb.BrokenError](err); !ok || strings.Contains(err.Error(), "secret") {
			t.Fatal(err)
		}
	}
}
