// Calls within a vat, promises made by hand, and things passed between two connections.

package rpc

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/until"
)

func TestLocalCalls(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	o := newTestObject("o")
	r := NewLocal(o)
	var last *Promise
	for i := range uint64(500) {
		last.releaseIf()
		last = r.Call(ctx, mEcho, testSize, fill(i, "here", nil))
	}
	s, _, err := last.Wait(ctx)
	if err != nil || s.Uint64(0) != 499 || textOf(s, 0) != "here" {
		t.Fatalf("got %v, %v", s, err)
	}
	last.Release()
	got := o.order()
	for i := 1; i < len(got); i++ {
		if got[i] <= got[i-1] {
			t.Fatalf("call %d came before %d", got[i-1], got[i])
		}
	}
	if r.Object() != Object(o) {
		t.Error("not recognised")
	}
	// Pipelining on an unresolved local answer.
	p := r.Call(ctx, mHold, testSize, nil)
	x := p.Cap(1)
	q := x.Call(ctx, mEcho, testSize, fill(7, "", nil))
	y := q.Cap(1)
	call := <-o.holding
	child := newTestObject("child")
	cr := NewLocal(child)
	call.Return(testSize, fill(0, "", cr))
	cr.Release()
	if s, _, err := q.Wait(ctx); err != nil || s.Uint64(0) != 7 {
		t.Fatalf("pipelined: %v, %v", s, err)
	}
	if _, _, err := ask(t, y, mEcho, 1, "", nil); !IsFailed(err) {
		t.Errorf("a null pipelined: %v", err)
	}
	if x.Object() != Object(child) {
		t.Error("the resolved promise is not recognised")
	}
	p.Release()
	q.Release()
	y.Release()
	x.Release()
	<-child.gone
	// Panics, unknown methods, cancellation.
	if _, _, err := ask(t, r, mPanic, 0, "", nil); !IsFailed(err) {
		t.Errorf("panic: %v", err)
	}
	p = r.Call(ctx, mGo, testSize, nil)
	<-o.holding
	p.Release()
	p = r.Call(ctx, mHold, testSize, nil)
	call = <-o.holding
	p.Release()
	<-call.Context().Done()
	call.Fail(errors.New("x"))
	r.Release()
	r.Release()
	<-o.gone
	if _, _, err := ask(t, r, mEcho, 0, "", nil); !IsFailed(err) {
		t.Errorf("released: %v", err)
	}
	if _, _, err := ask(t, nil, mEcho, 0, "", nil); !IsFailed(err) {
		t.Errorf("null: %v", err)
	}
}

func (p *Promise) releaseIf() {
	if p != nil {
		p.Release()
	}
}

// A Promise of a call that waits on a promise, whose results are asked for before it is known where they come from.
func TestPromiseTurnsRemote(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	v := startVats(t, a, b, Limits{})
	ctx := testContext(t)
	r, resolve := NewPromise()
	p := r.Call(ctx, mMake, testSize, fill(1, "child", nil))
	x := p.Cap(1)
	q := x.Call(ctx, mEcho, testSize, fill(2, "", nil))
	dropped := r.Call(ctx, mHold, testSize, nil)
	dropped.Release()
	boot := v.a.Bootstrap(ctx)
	resolve(boot, nil)
	boot.Release()
	if s, _, err := q.Wait(ctx); err != nil || s.Uint64(0) != 2 {
		t.Fatalf("got %v, %v", s, err)
	}
	y := p.Cap(1)
	if s, again, err := ask(t, y, mEcho, 3, "", nil); err != nil || s.Uint64(0) != 3 {
		t.Fatalf("got %v, %v", s, err)
	} else {
		again.Release()
	}
	for _, r := range []*Ref{r, x, y} {
		r.Release()
	}
	p.Release()
	q.Release()
	resolve(nil, errors.New("too late"))
}

// A path that was asked for and let go of before the answer can be asked for again after it.
func TestPathIsAskedForAgain(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, p *Promise, answer func()) {
		x := p.Cap(1)
		x.Release()
		notified := make(chan struct{})
		p.Notify(func() { close(notified) }) // also what the answer resolves is resolved then
		answer()
		<-notified
		y := p.Cap(1)
		if _, q, err := ask(t, y, mEcho, 1, "", nil); err != nil {
			t.Error(err)
		} else {
			q.Release()
		}
		y.Release()
		p.Release()
	}
	t.Run("within the vat", func(t *testing.T) {
		o := newTestObject("o")
		r, child := NewLocal(o), NewLocal(newTestObject("child"))
		p := r.Call(testContext(t), mHold, testSize, nil)
		check(t, p, func() { (<-o.holding).Return(testSize, fill(0, "", child)) })
		child.Release()
		r.Release()
	})
	t.Run("of a call that goes to a peer", func(t *testing.T) {
		a, b := Pipe()
		boot := startVats(t, a, b, Limits{}).a.Bootstrap(testContext(t))
		r, resolve := NewPromise()
		p := r.Call(testContext(t), mMake, testSize, fill(1, "child", nil))
		check(t, p, func() { resolve(boot, nil) })
		boot.Release()
		r.Release()
	})
}

// The promise of a path lives on for who asks again while calls on it are still being sent on: else the next call could
// overtake them.
func TestPathIsAskedForAgainBehindItsCalls(t *testing.T) {
	t.Parallel()
	o := newTestObject("o")
	r, resolve := NewPromise()
	p := r.Call(testContext(t), mHold, testSize, nil)
	x := p.Cap(1)
	first := x.Call(testContext(t), mEcho, testSize, nil)
	pipe := x.node.(*promiseCap)
	x.Release()
	to := NewLocal(o)
	pipe.mu.Lock()
	pipe.target.Store(to) // as resolve does it; the lane is not flushed yet
	pipe.mu.Unlock()
	y := p.Cap(1)
	if y.node != node(pipe) {
		t.Errorf("asked for again it is %T, and the first call still waits", y.node)
	}
	pipe.flush(pipe.lanes[nil], nil, false)
	if _, _, err := first.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
	first.Release()
	y.Release()
	<-o.gone
	p.Release()
	resolve(nil, errCanceled)
	r.Release()
}

// Who waits for an answer may release it at once: what was pipelined on it lives on.
func TestReleaseRightAfterTheAnswer(t *testing.T) {
	t.Parallel()
	r, child := NewLocal(newTestObject("o")), NewLocal(newTestObject("child"))
	for range 1000 {
		p := r.Call(testContext(t), mEcho, testSize, fill(0, "", child))
		x := p.Cap(1)
		for done, waits := p.Done(), true; waits; { // so as to be as quick as can be
			select {
			case <-done:
				waits = false
			default:
				runtime.Gosched()
			}
		}
		p.Release()
		if _, q, err := ask(t, x, mEcho, 1, "", nil); err != nil {
			t.Fatal(err)
		} else {
			q.Release()
		}
		x.Release()
	}
	r.Release()
	child.Release()
}

func TestPromiseCycles(t *testing.T) {
	t.Parallel()
	x, rx := NewPromise()
	y, ry := NewPromise()
	rx(x, nil)
	if _, _, err := ask(t, x, mEcho, 0, "", nil); !IsFailed(err) {
		t.Errorf("itself: %v", err)
	}
	z, rz := NewPromise()
	ry(z, nil)
	rz(y, nil)
	if _, _, err := ask(t, y, mEcho, 0, "", nil); !IsFailed(err) {
		t.Errorf("each other: %v", err)
	}
	// A chain that is too long fails its calls.
	o := newTestObject("end")
	next := NewLocal(o)
	for range maxHops + 2 {
		p, resolve := NewPromise()
		resolve(next, nil)
		next.Release()
		next = p
	}
	if _, _, err := ask(t, next, mEcho, 0, "", nil); !IsFailed(err) {
		t.Errorf("long chain: %v", err)
	}
	for _, r := range []*Ref{x, y, z, next} {
		r.Release()
	}
	<-o.gone
}

// Calls that wait for their own results, or for one another's, fail: else nobody would ever hear of them, and what they
// carry would be held for ever.
func TestCallsThatWaitForThemselves(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{1, 2, 5} {
		o := newTestObject("carried")
		carried := NewLocal(o)
		var asked []*Promise
		var promised, results []*Ref
		var resolves []func(*Ref, error)
		for i := range calls {
			r, resolve := NewPromise()
			p := r.Call(t.Context(), mEcho, testSize, fill(uint64(i), "", carried))
			asked, promised, results, resolves = append(asked, p), append(promised, r), append(results, p.Cap(1)), append(resolves, resolve)
		}
		carried.Release()
		for i := range calls { // each waits for the result of the next
			resolves[i](results[(i+1)%calls], nil)
		}
		for i, p := range asked {
			if _, _, err := p.Wait(testContext(t)); !IsFailed(err) || !strings.Contains(err.Error(), "its own result") {
				t.Errorf("call %d of %d: %v", i, calls, err)
			}
			p.Release()
			results[i].Release()
			promised[i].Release()
		}
		select {
		case <-o.gone:
		case <-time.After(testDeadline):
			t.Errorf("%d calls that wait for one another are held for ever", calls)
		}
	}
}

// A call that waits for a promise is answered when it is given up, whatever becomes of the promise.
func TestGivingUpWhatWaits(t *testing.T) {
	t.Parallel()
	o := newTestObject("carried")
	carried := NewLocal(o)
	r, resolve := NewPromise()
	p := r.Call(t.Context(), mEcho, testSize, fill(1, "", carried))
	next := r.Call(t.Context(), mEcho, testSize, fill(2, "", nil))
	carried.Release()
	p.Release()
	select {
	case <-o.gone:
	case <-time.After(testDeadline):
		t.Error("a call that was given up keeps what it carries")
	}
	to := NewLocal(newTestObject("to"))
	resolve(to, nil)
	to.Release()
	if s, _, err := next.Wait(testContext(t)); err != nil || s.Uint64(0) != 2 {
		t.Errorf("the call behind it: %v, %v", s, err)
	}
	next.Release()
	r.Release()
}

// An object of one peer is handed to another: this vat stands in between.
func TestProxyBetweenConnections(t *testing.T) {
	t.Parallel()
	a, b := Pipe()
	c, d := dialTest(t, nil)
	left, right := startVats(t, a, b, Limits{}), startVats(t, c, d, Limits{})
	ctx := testContext(t)
	lboot, rboot := left.a.Bootstrap(ctx), right.a.Bootstrap(ctx)
	defer lboot.Release()
	defer rboot.Release()
	// right keeps an object of left, made through a promise that is not resolved when it is passed.
	made := lboot.Call(ctx, mMake, testSize, fill(0, "there", nil))
	x := made.Cap(1)
	made.Release()
	if _, p, err := ask(t, rboot, mKeep, 0, "", x); err != nil {
		t.Fatal(err)
	} else {
		p.Release()
	}
	x.Release()
	kept := rboot.Call(ctx, mKept, testSize, nil)
	k := kept.Cap(1)
	kept.Release()
	// Called by us, it goes to right, back to us, and to left.
	s, p, err := ask(t, k, mEcho, 42, "around", nil)
	if err != nil || s.Uint64(0) != 42 || textOf(s, 0) != "around" {
		t.Fatalf("got %v, %v", s, err)
	}
	p.Release()
	// With capabilities in parameters and results, and errors.
	own := newTestObject("own")
	ref := NewLocal(own)
	p = k.Call(ctx, mEcho, testSize, fill(1, "", ref))
	back := p.Cap(1)
	if _, q, err := ask(t, back, mEcho, 5, "", nil); err != nil {
		t.Fatal(err)
	} else {
		q.Release()
	}
	p.Release()
	if got := own.order(); len(got) != 1 || got[0] != 5 {
		t.Errorf("own object got %v", got)
	}
	back.Release()
	ref.Release()
	select {
	case <-own.gone:
	case <-time.After(time.Minute):
		t.Error("what was passed on is held still by those who did so")
	}
	if _, p, err = ask(t, k, mFail, uint64(Overloaded), "busy", nil); !IsOverloaded(err) {
		t.Errorf("got %v", err)
	}
	p.Release()
	// Cancelled through both.
	p = k.Call(ctx, mHold, testSize, nil)
	until.True(t, "the child holds the call", func() bool { return len(left.bObj.madeHolding()) > 0 })
	call := <-left.bObj.made[0].holding
	p.Release()
	<-call.Context().Done()
	call.Fail(context.Canceled)
	// The middle's other side goes away.
	p = k.Call(ctx, mHold, testSize, nil)
	<-left.bObj.made[0].holding
	left.b.Close("away")
	if _, _, err := p.Wait(ctx); !IsDisconnected(err) {
		t.Errorf("got %v", err)
	}
	p.Release()
	k.Release()
}

func (o *testObject) madeHolding() []*testObject {
	o.mu.Lock()
	defer o.mu.Unlock()
	var busy []*testObject
	for _, m := range o.made {
		if len(m.holding) > 0 {
			busy = append(busy, m)
		}
	}
	return busy
}

func TestOwnCapabilityIsRecognised(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		boot := v.a.Bootstrap(testContext(t))
		defer boot.Release()
		s, p, err := ask(t, boot, mSelf, 0, "", boot)
		if err != nil || s.Uint64(0) != 1 {
			t.Errorf("its own bootstrap: %v, %v", s, err)
		}
		p.Release()
		other := NewLocal(newTestObject("other"))
		defer other.Release()
		if s, p, err = ask(t, boot, mSelf, 0, "", other); err != nil || s.Uint64(0) != 0 {
			t.Errorf("another: %v, %v", s, err)
		}
		p.Release()
	})
}

func TestPlaceErrors(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	ctx := testContext(t)
	_, _, err := boot.Call(ctx, mEcho, testSize, func(capnp.Struct, *CapTable) error { return io.ErrShortWrite }).Wait(ctx)
	if !IsFailed(err) {
		t.Errorf("parameters: %v", err)
	}
	// Whatever the caller's place has put in is let go of, also if it panics, as the caller finds out itself.
	for _, place := range []func() error{func() error { return io.ErrShortWrite }, func() error { panic("the caller's own") }} {
		o := newTestObject("put in")
		r := NewLocal(o)
		func() {
			defer func() { _ = recover() }()
			boot.Call(ctx, mEcho, testSize, func(s capnp.Struct, caps *CapTable) error {
				if err := caps.Set(s, 1, r); err != nil {
					return err
				}
				return place()
			})
		}()
		r.Release()
		select {
		case <-o.gone:
		default:
			t.Error("what was put into a call that was not made is referenced still")
		}
	}
	// The handler's place fails, or panics: the caller learns no more than that.
	for i, place := range []func(capnp.Struct, *CapTable) error{
		func(capnp.Struct, *CapTable) error { return errors.New("secret") },
		func(capnp.Struct, *CapTable) error { panic("secret") },
		func(s capnp.Struct, c *CapTable) error { return c.Set(s, 9, nil) },
	} {
		p := boot.Call(ctx, mHold, testSize, nil)
		call := <-v.bObj.holding
		call.Return(testSize, place)
		call.Return(testSize, nil)
		call.Fail(errors.New("second"))
		_, _, err = p.Wait(ctx)
		ex, ok := errors.AsType[*Exception](err)
		if !ok || ex.Type != Failed || i < 2 && !strings.HasPrefix(ex.Reason, "internal error") || strings.Contains(ex.Reason, "secret") {
			t.Errorf("results %d: %v", i, err)
		}
		p.Release()
	}
}

type codedError struct{}

func (codedError) Error() string                         { return "a coded error with a secret" }
func (codedError) RPCException() (ExceptionType, string) { return Overloaded, "code 7" }

func TestFailHidesForeignErrors(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	ctx := testContext(t)
	for want, err := range map[string]error{
		"rpc: remote: failed: internal error":                  errors.New("open /etc/secret"),
		"rpc: remote: overloaded: code 7":                      codedError{},
		"rpc: remote: unimplemented: no":                       Unimplementedf("no"),
		"rpc: remote: failed: the call was cancelled":          context.Canceled,
		"rpc: remote: overloaded: the operation took too long": context.DeadlineExceeded,
	} {
		p := boot.Call(ctx, mHold, testSize, nil)
		(<-v.bObj.holding).Fail(err)
		if _, _, got := p.Wait(ctx); got == nil || got.Error() != want {
			t.Errorf("got %v, want %s", got, want)
		}
		p.Release()
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	v, boot := overPipe(t, Limits{})
	ctx := testContext(t)
	got := make(chan int, 10)
	p := boot.Call(ctx, mHold, testSize, nil)
	for i := range 3 {
		p.Notify(func() { got <- i })
	}
	p.Notify(func() { panic("in a notification") })
	(<-v.bObj.holding).Return(testSize, nil)
	for i := range 3 {
		if n := <-got; n != i {
			t.Errorf("notification %d came as %d", n, i)
		}
	}
	p.Notify(func() { got <- 9 })
	if <-got != 9 {
		t.Error("not at once")
	}
	p.Release()
	if _, q, err := ask(t, boot, mEcho, 0, "", nil); err != nil {
		t.Errorf("after a panic: %v", err)
	} else {
		q.Release()
	}
}
