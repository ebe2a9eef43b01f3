// How calls and connections end: cancellation, disconnects, drains, silence.

package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc/internal/transport"
)

func TestReleaseCancels(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		for _, m := range []Method{mHold, mGo} {
			p := boot.Call(ctx, m, testSize, nil)
			call := <-v.bObj.holding
			p.Release()
			select {
			case <-call.Context().Done():
			case <-ctx.Done():
				t.Fatalf("%s: the context is not cancelled", m.Name)
			}
			call.Fail(errors.New("anything"))
		}
		until.True(t, "answers are gone", func() bool { return v.b.Stats().Answers == 0 })
	})
}

// Who lets go of the last reference to a pipelined capability may come to say so only when another has asked for one more
// and let go of that: it is one that is gone then, not two, and a third that is asked for keeps the call going.
func TestLettingGoLateCountsOnce(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	p := boot.Call(testContext(t), mHold, testSize, nil)
	call := <-v.bObj.holding
	x := p.Cap(1)
	late := x.node.(*remoteCap)
	x.Release()
	v.a.mu.Lock()
	v.a.dropRemote(late)
	v.a.unlockAndRun()
	y := p.Cap(1)
	p.Release()
	if _, q, err := ask(t, boot, mEcho, 0, "", nil); err != nil { // it comes behind a Finish, if there is one
		t.Fatal(err)
	} else {
		q.Release()
	}
	if err := call.Context().Err(); err != nil {
		t.Errorf("the call whose result is referenced was given up: %v", err)
	}
	call.Return(testSize, nil)
	y.Release()
}

// Who lets go of the last reference to a promise may likewise come to say so only when another has asked for one more.
func TestLettingGoLateOfAPromise(t *testing.T) {
	t.Parallel()
	o := newTestObject("o")
	to := NewLocal(o)
	r, resolve := NewPromise()
	resolve(to, nil)
	to.Release()
	r.node.(*promiseCap).releaseTarget(nil)
	if _, p, err := ask(t, r, mEcho, 1, "", nil); err != nil {
		t.Errorf("what is referenced was let go of: %v", err)
	} else {
		p.Release()
	}
	r.Release()
	<-o.gone
}

// A notification that panics is logged, and others of the same promise are told nevertheless: of a call to a peer, of one
// within the vat, and of a reference that settles.
func TestNotificationPanics(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, p *Promise, answer func()) {
		p.Notify(func() { panic("of a program") })
		notified := make(chan struct{})
		p.Notify(func() { close(notified) })
		answer()
		select {
		case <-notified:
		case <-time.After(testDeadline):
			t.Error("the other is not told")
		}
		p.Release()
	}
	t.Run("of a peer's answer", func(t *testing.T) {
		v, boot := overPipe(t, Limits{})
		p := boot.Call(testContext(t), mHold, testSize, nil)
		check(t, p, func() { (<-v.bObj.holding).Return(testSize, nil) })
	})
	t.Run("within the vat", func(t *testing.T) {
		o := newTestObject("o")
		r := NewLocal(o)
		defer r.Release()
		p := r.Call(testContext(t), mHold, testSize, nil)
		check(t, p, func() { (<-o.holding).Return(testSize, nil) })
	})
	t.Run("of a promise that settles", func(t *testing.T) {
		o := newTestObject("o")
		r, resolve := NewPromise()
		p := r.Call(testContext(t), mHold, testSize, nil)
		r.WhenResolved(func() { panic("of a program") })
		check(t, p, func() {
			to := NewLocal(o)
			resolve(to, nil)
			to.Release()
			(<-o.holding).Return(testSize, nil)
		})
		r.Release()
		<-o.gone // what comes behind the notification is done too
	})
}

func TestWaitGivesUpWithoutCancelling(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	p := boot.Call(context.Background(), mHold, testSize, nil)
	defer p.Release()
	call := <-v.bObj.holding
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	call.Return(testSize, fill(3, "", nil))
	if s, _, err := p.Wait(testContext(t)); err != nil || s.Uint64(0) != 3 {
		t.Errorf("got %v, %v", s, err)
	}
}

// A lost connection breaks promises at once, cancels what runs, runs nothing that waits, and is waited for.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	for name, connect := range transports {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ta, tb := connect(t)
			v := startVats(t, ta, tb, Limits{})
			ctx := testContext(t)
			boot := v.a.Bootstrap(ctx)
			defer boot.Release()
			running := boot.Call(ctx, mGo, testSize, nil)
			<-v.bObj.holding
			held := boot.Call(ctx, mHold, testSize, nil)
			call := <-v.bObj.holding
			x := held.Cap(1)
			queued := x.Call(ctx, mEcho, testSize, fill(77, "", nil))
			notified := make(chan struct{})
			queued.Notify(func() { close(notified) })
			tb.Close(peerconn.CloseGoingAway, "pulled")
			<-v.a.Done()
			for _, p := range []*Promise{running, held, queued} {
				if _, _, err := p.Wait(ctx); !IsDisconnected(err) {
					t.Errorf("got %v", err)
				}
				p.Release()
			}
			<-notified
			v.wait(t)
			if call.Context().Err() == nil {
				t.Error("the held call's context is not cancelled")
			}
			call.Return(testSize, nil) // too late, harmless
			late, _, err := ask(t, x, mEcho, 1, "", nil)
			if !IsDisconnected(err) {
				t.Errorf("a call after the end: %v, %v", late, err)
			}
			x.Release()
			for _, n := range v.bObj.order() {
				if n == 77 {
					t.Error("a queued call ran after the end")
				}
			}
		})
	}
}

// The calls that wait to be delivered when a connection ends are not run, though it takes a while to cancel thousands.
func TestNothingRunsOnceTheConnectionHasEnded(t *testing.T) {
	boot := newTestObject("boot")
	h := newHostile(t, boot, Limits{})
	h.say("bootstrap q=0")
	h.c.mu.Lock()
	for q := 1; q <= 3; q++ {
		if err := h.c.handle(frameOf(t, "call q="+itoa(q)+" to=answer:0 hold n=1")); err != nil {
			t.Error(err)
		}
	}
	h.c.loop.EndLocked(peerconn.Ending{})
	late := h.c.cancels
	h.c.cancels = nil
	h.c.unlockAndRun()
	h.deliver()
	if n := len(boot.order()); n != 0 {
		t.Errorf("%d calls ran after the end", n)
	}
	for _, call := range late {
		call.cancel()
	}
}

// A call that is given up while the one before it is served is not run, though both have waited for one promise.
func TestGivenUpWhileTheOneBeforeIsServed(t *testing.T) {
	promise, resolve := NewPromise()
	defer promise.Release()
	h := newHostile(t, objectFunc(func(call *Call) { call.Return(testSize, fill(0, "", promise)) }), Limits{})
	served := 0
	object := NewLocal(objectFunc(func(call *Call) {
		served++
		h.c.mu.Lock()
		if err := h.c.handle(frameOf(t, "finish q=3")); err != nil {
			t.Error(err)
		}
		h.c.unlockAndRun()
		call.Return(testSize, nil)
	}))
	defer object.Release()
	h.say("bootstrap q=0")
	h.say("call q=1 to=answer:0 echo")
	h.say("call q=2 to=answer:1.1 echo")
	h.say("call q=3 to=answer:1.1 echo")
	resolve(object, nil)
	h.deliver()
	if served != 1 {
		t.Errorf("%d calls were served", served)
	}
}

// Why a connection was lost is told to others too, such as peers whose calls were passed on over it: without addresses.
func TestLostConnectionNamesNoAddress(t *testing.T) {
	t.Parallel()
	at := func(s string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(s), Port: 4711} }
	err := fmt.Errorf("failed to read: %w", &net.OpError{Op: "read", Net: "tcp", Source: at("10.1.2.3"), Addr: at("10.3.2.1"),
		Err: os.NewSyscallError("read", syscall.ECONNRESET)})
	if e := transportEnding(err).Err; !IsDisconnected(e) || strings.Contains(e.Error(), "10.") || !strings.Contains(e.Error(), "reset") {
		t.Errorf("%v", e)
	}
}

func TestCloseTellsThePeer(t *testing.T) {
	t.Parallel()
	a, b := dialTest(t, nil)
	v := startVats(t, a, b, Limits{})
	v.b.Close("gone fishing")
	v.wait(t)
	if err := <-v.bErr; err != nil {
		t.Errorf("the closing side: %v", err)
	} else {
		v.bErr <- err
	}
	err := <-v.aErr
	v.aErr <- err
	if !IsDisconnected(err) || !strings.Contains(err.Error(), "gone fishing") {
		t.Errorf("the other side: %v", err)
	}
}

// A peer that closes in due form is no news; one that is lost is.
func TestOnlyLostConnectionsAreLogged(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(b *Conn, link Transport){
		"closed": func(b *Conn, _ Transport) { b.Close("gone fishing") },
		"lost":   func(_ *Conn, link Transport) { link.(*transport.WebSocket).Conn.CloseNow() },
	} {
		ta, tb := dialTest(t, nil)
		var log bytes.Buffer
		a := NewConn(ta, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		b := NewConn(tb, Config{})
		ended := make(chan error, 1)
		go func() { ended <- b.Run(context.Background()) }()
		end(b, tb)
		if err := a.Run(testContext(t)); !IsDisconnected(err) {
			t.Errorf("%s: %v", name, err)
		}
		<-ended
		if logged := log.Len() > 0; logged != (name == "lost") {
			t.Errorf("%s: the log has %q", name, log.String())
		}
	}
}

// Who called what panicked is given a name that the log has with the panic.
func TestPanicsHaveAName(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	var log lockbuf.Buffer
	x, y := NewConn(a, Config{}), NewConn(b, Config{Bootstrap: newTestObject("boot"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	errs := make(chan error, 2)
	for _, c := range []*Conn{x, y} {
		go func() { errs <- c.Run(context.Background()) }()
	}
	boot := x.Bootstrap(testContext(t))
	seen := map[string]bool{}
	for range 2 {
		_, _, err := ask(t, boot, mPanic, 0, "", nil)
		if err == nil {
			t.Fatal("a panic is no error")
		}
		_, name, named := strings.Cut(err.Error(), "internal error: the log says why at incident ")
		if !named || seen[name] || strings.Count(log.String(), `msg="handler panicked"`) != len(seen)+1 || !strings.Contains(log.String(), " incident="+name+" ") {
			t.Errorf("the caller has %v, the log %q", err, log.String())
		}
		seen[name] = true
	}
	boot.Release()
	x.Close("test over")
	<-errs
	<-errs
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	x, y := NewConn(a, Config{}), NewConn(b, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	go func() { errs <- x.Run(ctx) }()
	go func() { errs <- y.Run(context.Background()) }()
	cancel()
	got := []error{<-errs, <-errs}
	if !errors.Is(got[0], context.Canceled) && !errors.Is(got[1], context.Canceled) {
		t.Errorf("got %v", got)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.a.Bootstrap(ctx)
		defer boot.Release()
		running := boot.Call(ctx, mHold, testSize, nil)
		defer running.Release()
		call := <-v.bObj.holding
		drained := make(chan error, 1)
		go func() { drained <- v.b.Drain(ctx, "restart") }()
		until.True(t, "new calls are refused", func() bool {
			_, p, err := ask(t, boot, mEcho, 1, "", nil)
			p.Release()
			return IsDisconnected(err)
		})
		select {
		case err := <-drained:
			t.Fatalf("drained with a call running: %v", err)
		default:
		}
		call.Return(testSize, fill(9, "", nil))
		if err := <-drained; err != nil {
			t.Fatal(err)
		}
		if s, _, err := running.Wait(ctx); err != nil || s.Uint64(0) != 9 {
			t.Errorf("the running call: %v, %v", s, err)
		}
	})
}

func TestDrainGivesUp(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	p := boot.Call(context.Background(), mHold, testSize, nil)
	defer p.Release()
	<-v.bObj.holding
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := v.b.Drain(ctx, "now"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, _, err := p.Wait(testContext(t)); !IsDisconnected(err) {
		t.Errorf("got %v", err)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	t.Parallel()
	a, _ := Pipe()
	obj := newTestObject("boot")
	c := NewConn(a, Config{Bootstrap: obj})
	p := c.Bootstrap(context.Background()).Call(context.Background(), mEcho, testSize, nil)
	c.Close("changed my mind")
	if _, _, err := p.Wait(testContext(t)); !IsDisconnected(err) {
		t.Errorf("got %v", err)
	}
	<-obj.gone
	if err := c.Run(context.Background()); err != nil {
		t.Errorf("Run after Close: %v", err)
	}
}

// A handler that blocks, against the rules, stops its own deliveries and nothing else: what is read goes on being
// read, and pings are answered.
func TestBlockingHandler(t *testing.T) {
	t.Parallel()
	a, b := dialTest(t, nil)
	lim := Limits{PingInterval: 50 * time.Millisecond, PingTimeout: testDeadline}
	stuck := &stuckObject{enter: make(chan struct{}), leave: make(chan struct{})}
	x, y := NewConn(a, Config{Limits: lim}), NewConn(b, Config{Bootstrap: stuck, Limits: lim})
	errs := make(chan error, 2)
	go func() { errs <- x.Run(context.Background()) }()
	go func() { errs <- y.Run(context.Background()) }()
	boot := x.Bootstrap(context.Background())
	first := boot.Call(context.Background(), mEcho, testSize, nil)
	<-stuck.enter
	pings := testContext(t)
	for range 3 {
		if err := x.transport.Ping(pings); err != nil {
			t.Fatalf("ping: %v", err)
		}
	}
	close(stuck.leave)
	if _, _, err := first.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
	boot.Release()
	x.Close("done")
	<-errs
	<-errs
}

type stuckObject struct{ enter, leave chan struct{} }

func (o *stuckObject) Serve(call *Call) {
	close(o.enter)
	<-o.leave
	call.Return(testSize, nil)
}
