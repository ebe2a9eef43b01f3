// The bounds, driven from outside: backpressure for our calls, refusals and cut-offs for a peer's.

package rpc

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
)

// At Limits.Questions a call waits for an answer, as long as its context allows.
func TestBackpressureByQuestions(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{Questions: 4})
	ctx := testContext(t)
	if _, p, err := ask(t, boot, mEcho, 0, "", nil); err != nil {
		t.Fatal(err)
	} else {
		p.Release()
	}
	var held []*Promise
	for range 4 {
		held = append(held, boot.Call(ctx, mHold, testSize, nil))
	}
	short, cancel := context.WithCancel(ctx)
	refused := make(chan error, 1)
	go func() {
		_, _, err := boot.Call(short, mEcho, testSize, nil).Wait(ctx)
		refused <- err
	}()
	select {
	case err := <-refused:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	cancel()
	if err := <-refused; !IsOverloaded(err) {
		t.Errorf("gave up with %v", err)
	}
	go func() {
		_, _, err := boot.Call(ctx, mEcho, testSize, nil).Wait(ctx)
		refused <- err
	}()
	(<-v.bObj.holding).Return(testSize, nil)
	if err := <-refused; err != nil {
		t.Errorf("after an answer: %v", err)
	}
	for range 3 {
		(<-v.bObj.holding).Return(testSize, nil)
	}
	for _, p := range held {
		if _, _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.Release()
	}
}

// A call that waits goes on when a number is free again, whatever has freed it.
func TestEveryEndMakesRoom(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]struct {
		giveUp bool
		says   []string
	}{
		"an answer":                                {false, []string{"return a=1 results"}},
		"an answer to what was given up":           {true, []string{"return a=1 canceled"}},
		"a call that is not implemented":           {false, []string{"unimplemented call q=1 hold"}},
		"one that was given up":                    {true, []string{"unimplemented call q=1 hold"}},
		"an answer that is taken from another":     {false, []string{"return a=1 take=1", "call q=2 to=answer:0 go"}},
		"the same, of what was given up meanwhile": {true, []string{"return a=1 take=1", "call q=2 to=answer:0 go"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var kept *Call
				h := newHostile(t, objectFunc(func(call *Call) {
					if call.Method().ID == mHold.ID {
						kept = call
					} else {
						kept.Return(testSize, nil)
					}
				}), Limits{Questions: 2})
				h.say("bootstrap q=0")
				h.say("call q=1 to=answer:0 hold yourself")
				boot := h.c.Bootstrap(t.Context())
				defer boot.Release()
				first := boot.Call(t.Context(), mHold, testSize, nil)
				called := make(chan *Promise, 1)
				go func() { called <- boot.Call(t.Context(), mEcho, testSize, nil) }()
				synctest.Wait()
				for i, line := range story.says {
					if last := i == len(story.says)-1; last && story.giveUp {
						first.Release()
					}
					select {
					case <-called:
						t.Fatal("there was no room yet")
					default:
					}
					h.say("%s", line)
				}
				synctest.Wait()
				select {
				case p := <-called:
					p.Release()
				default:
					t.Error("a call waits still")
				}
				first.Release()
			})
		})
	}
}

// callingObject makes calls from Serve, more than may be unanswered, against the advice not to block there.
type callingObject struct {
	n     int
	calls atomic.Int64
}

func (o *callingObject) Serve(call *Call) {
	p, caps := call.Params()
	ptr, _ := p.Ptr(1)
	r := caps.Get(ptr)
	defer r.Release()
	for i := range o.n {
		q := r.Call(call.Context(), mEcho, testSize, fill(uint64(i), "", nil))
		q.Notify(func() { o.calls.Add(1); q.Release() })
	}
	call.Return(testSize, nil)
}

// A handler that waits at a limit does not keep the answers that make room from being read.
func TestBackpressureInHandler(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{Questions: 3}, func(t *testing.T, v *vats) {
		ctx := testContext(t)
		boot := v.b.Bootstrap(ctx)
		defer boot.Release()
		o := &callingObject{n: 100}
		caller := NewLocal(o)
		defer caller.Release()
		// v.a gets the object passed, and calls it back: so o runs on v.b's delivery goroutine.
		sink := newTestObject("sink")
		sinkRef := NewLocal(sink)
		defer sinkRef.Release()
		aBoot := v.a.Bootstrap(ctx)
		defer aBoot.Release()
		if _, p, err := ask(t, boot, mKeep, 0, "", caller); err != nil {
			t.Fatal(err)
		} else {
			p.Release()
		}
		v.aObj.mu.Lock()
		kept := v.aObj.kept.AddRef()
		v.aObj.mu.Unlock()
		defer kept.Release()
		if _, p, err := ask(t, kept, mEcho, 0, "", sinkRef); err != nil {
			t.Fatal(err)
		} else {
			p.Release()
		}
		until.True(t, "all calls are answered", func() bool { return o.calls.Load() == 100 })
		inOrder(t, sink.order(), 100)
	})
}

// stalledPeer is a byte stream peer that sends what it is told and reads nothing.
func stalledPeer(t *testing.T, lim Limits) (*Conn, net.Conn, chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{peer, ours} {
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	t.Cleanup(func() { peer.Close() })
	c := NewConn(NewStreamTransport(ours), Config{Bootstrap: newTestObject("boot"), Limits: lim})
	errs := make(chan error, 1)
	go func() { errs <- c.Run(context.Background()) }()
	return c, peer, errs
}

func frameOf(t testing.TB, command string) []byte {
	t.Helper()
	words, err := splitWords(command)
	if err != nil {
		t.Fatal(err)
	}
	b, err := buildMessage(parseArgs(words))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A peer that sends calls and never reads is bounded, and cut off by the write deadline or the flood limit.
func TestPeerThatNeverReads(t *testing.T) {
	t.Parallel()
	lim := Limits{QueuedBytes: 64 << 10, WriteTimeout: 300 * time.Millisecond}
	c, peer, errs := stalledPeer(t, lim)
	var high atomic.Int64
	stop := make(chan struct{})
	go func() {
		batch := frameOf(t, "bootstrap q=0")
		text := strings.Repeat("x", 1000)
		for q := 1; ; q++ {
			batch = append(batch, frameOf(t, "call q="+itoa(q)+" to=answer:0 echo text="+text)...)
			if q%50 == 0 {
				if _, err := peer.Write(batch); err != nil {
					close(stop)
					return
				}
				batch = batch[:0]
			}
		}
	}()
	deadline := time.After(testDeadline)
	for {
		if n := int64(c.Stats().QueuedBytes); n > high.Load() {
			high.Store(n)
		}
		select {
		case err := <-errs:
			if !IsDisconnected(err) && !IsFailed(err) {
				t.Errorf("ended with %v", err)
			}
			if high.Load() > 5*int64(lim.QueuedBytes) {
				t.Errorf("%d bytes were queued, the limit is %d", high.Load(), lim.QueuedBytes)
			}
			<-stop
			return
		case <-deadline:
			t.Fatal("never cut off")
		case <-time.After(time.Millisecond):
		}
	}
}

// Our calls to a peer that does not read wait at Limits.QueuedBytes, and fail when it is cut off.
func TestBackpressureByBytes(t *testing.T) {
	t.Parallel()
	c, _, errs := stalledPeer(t, Limits{QueuedBytes: 256 << 10, WriteTimeout: 300 * time.Millisecond})
	ctx := testContext(t)
	boot := c.Bootstrap(ctx)
	defer boot.Release()
	text := strings.Repeat("x", 10000)
	var last error
	for range 10000 {
		p := boot.Call(ctx, mEcho, testSize, fill(0, text, nil))
		select {
		case <-p.Done():
			_, _, last = p.Wait(ctx)
		default:
		}
		if n := c.Stats().QueuedBytes; n > 300<<10 {
			t.Fatalf("%d bytes are queued", n)
		}
		if last != nil {
			break
		}
	}
	if !IsDisconnected(last) {
		t.Errorf("ended with %v", last)
	}
	<-errs
}

// A limit is counted when the serialization library has met it, and not when a program's error says something like it.
func TestLimitsAreNotReadOutOfErrors(t *testing.T) {
	t.Parallel()
	var hits LimitHits
	c := NewConn(quiet{}, Config{LimitHits: &hits})
	defer c.Close("over")
	for _, err := range []error{nil, errors.New("the tree's depth limit reached"), Failedf("x: read traversal limit reached")} {
		c.countHitOf(err)
	}
	if n := hits.Of(LimitNesting) + hits.Of(LimitTraversal); n != 0 {
		t.Errorf("counted %d times", n)
	}
}

func itoa(n int) string {
	var b [20]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return string(b[i:])
		}
	}
}

// 20,000 unfinished calls of one peer cost little memory and no goroutine each.
func TestManyUnfinishedCalls(t *testing.T) {
	// Not parallel: it measures the process.
	obj := &holdingObject{}
	c := NewConn(quiet{}, Config{Bootstrap: obj, Limits: Limits{Answers: 20001}})
	c.loop.Manual = true
	take := func(b []byte) {
		c.mu.Lock()
		err := c.handle(b)
		c.out.TakeMessages()
		c.unlockAndRun()
		if err != nil {
			t.Fatal(err)
		}
		c.loop.Deliver()
	}
	take(frameOf(t, "bootstrap q=0"))
	frames := make([][]byte, 20000)
	for i := range frames {
		frames[i] = frameOf(t, "call q="+itoa(i+1)+" to=answer:0 hold n=1")
	}
	obj.calls = make([]*Call, 0, len(frames))
	before, routines := heap(), runtime.NumGoroutine()
	for _, f := range frames {
		take(f)
	}
	used, more := int64(heap())-int64(before), runtime.NumGoroutine()-routines
	t.Logf("20,000 unfinished calls: %d bytes, %d a call", used, used/20000)
	if used > 20<<20 {
		t.Errorf("they hold %d bytes", used)
	}
	if more > 5 {
		t.Errorf("they run %d goroutines", more)
	}
	if n := c.Stats().Answers; n != 20001 {
		t.Errorf("%d answers", n)
	}
	for _, call := range obj.calls {
		call.Fail(errCanceled)
	}
	c.Close("done")
	c.failOrphans()
	c.loop.Deliver()
}

type holdingObject struct{ calls []*Call }

func (o *holdingObject) Serve(call *Call) { o.calls = append(o.calls, call) }

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Long pipelines of valid calls leave nothing behind.
func TestPipelinesDoNotLeak(t *testing.T) {
	t.Parallel()
	a, b := dialTest(t, nil)
	v := startVats(t, a, b, Limits{})
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	const chains = 1000
	for i := range chains {
		p := boot.Call(ctx, mMake, testSize, fill(0, "x", nil))
		x := p.Cap(1)
		q := x.Call(ctx, mMake, testSize, fill(0, "y", nil))
		y := q.Cap(1)
		r := y.Call(ctx, mMake, testSize, fill(0, "z", nil))
		z := r.Cap(1)
		s := z.Call(ctx, mEcho, testSize, fill(uint64(i), "", nil))
		p.Release()
		x.Release()
		q.Release()
		y.Release()
		r.Release()
		z.Release()
		if i%100 == 99 {
			if _, _, err := s.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		s.Release()
	}
	until.True(t, "all is released", func() bool {
		x, y := v.a.Stats(), v.b.Stats()
		return x.Questions+x.Imports == 0+1 && y.Answers == 0 && y.Exports == 1
	})
}
