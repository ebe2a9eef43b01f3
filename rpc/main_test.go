// Test set-up, and the objects the tests call.

package rpc

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/rpc/internal/wire"
)

// Memory that is used again is poisoned in all tests and fuzzers, but not where time is measured.
func TestMain(m *testing.M) {
	flag.Parse()
	wire.PoisonFreed = flag.Lookup("test.bench").Value.String() == ""
	slog.SetDefault(slog.New(slog.DiscardHandler)) // it would be told of every panic that tests have within the vat
	goleak.VerifyTestMain(m)
}

// Methods of the test objects. Parameters and results are one struct shape: a number, a text, a capability.
const testInterface = 0xdecade0000000001

var (
	mEcho   = Method{testInterface, 0, "echo"}     // returns its parameters, capability included
	mMake   = Method{testInterface, 1, "make"}     // returns a new object
	mHold   = Method{testInterface, 2, "hold"}     // is answered by the test
	mFail   = Method{testInterface, 3, "fail"}     // fails with the type in the number and the reason in the text
	mPanic  = Method{testInterface, 4, "panic"}    // panics
	mCall   = Method{testInterface, 5, "call"}     // calls echo on the capability and returns what comes back
	mKeep   = Method{testInterface, 6, "keep"}     // keeps the capability
	mKept   = Method{testInterface, 7, "kept"}     // returns the kept capability
	mSelf   = Method{testInterface, 8, "self"}     // number 1 if the capability is the object itself
	mGo     = Method{testInterface, 9, "go"}       // waits in Call.Go for its context
	mPromis = Method{testInterface, 10, "promise"} // returns a promise that the test resolves
)

var testSize = capnp.ObjectSize{DataSize: 8, PointerCount: 2}

// testObject serves the test methods and records the calls it got.
type testObject struct {
	name string

	mu       sync.Mutex
	calls    []uint64 // the numbers of echo and hold, in order of arrival
	held     []*Call
	kept     *Ref
	made     []*testObject
	resolve  []func(*Ref, error)
	released int
	gone     chan struct{}      // closed by Release
	holding  chan *Call         // gets held calls
	start    func(drain func()) // for the loops of objects made
}

func newTestObject(name string) *testObject {
	return &testObject{name: name, gone: make(chan struct{}), holding: make(chan *Call, 1024)}
}

func (o *testObject) Release() {
	o.mu.Lock()
	o.released++
	kept := o.kept
	o.kept = nil
	first := o.released == 1
	o.mu.Unlock()
	kept.Release()
	if first {
		close(o.gone)
	}
}

func (o *testObject) order() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]uint64(nil), o.calls...)
}

func (o *testObject) Serve(call *Call) {
	p, caps := call.Params()
	number := p.Uint64(0)
	text := textOf(p, 0)
	ptr, err := p.Ptr(1)
	if err != nil {
		call.Fail(err)
		return
	}
	if call.Method().Interface != testInterface {
		call.Fail(Unimplementedf("interface %x", call.Method().Interface))
		return
	}
	switch call.Method().ID {
	case mEcho.ID:
		o.mu.Lock()
		o.calls = append(o.calls, number)
		o.mu.Unlock()
		r := caps.Get(ptr)
		call.Return(testSize, fill(number, text, r))
		r.Release()
	case mMake.ID:
		child := newTestObject(text)
		o.mu.Lock()
		o.made = append(o.made, child)
		o.mu.Unlock()
		r := NewLocal(child)
		child.start = o.start
		r.node.(*localCap).deliveries.Start = o.start
		call.Return(testSize, fill(number, text, r))
		r.Release()
	case mHold.ID:
		o.mu.Lock()
		o.calls = append(o.calls, number)
		o.held = append(o.held, call)
		o.mu.Unlock()
		o.holding <- call
	case mFail.ID:
		call.Fail(&Exception{Type: ExceptionType(number), Reason: text})
	case mPanic.ID:
		panic("as the test asked")
	case mCall.ID:
		r := caps.Get(ptr)
		back := r.Call(context.Background(), mEcho, testSize, fill(number, text, nil))
		r.Release()
		back.Notify(func() {
			defer back.Release()
			res, _, err := back.Wait(context.Background())
			if err != nil {
				call.Fail(err)
				return
			}
			call.Return(testSize, fill(res.Uint64(0), textOf(res, 0), nil))
		})
	case mKeep.ID:
		r := caps.Get(ptr)
		o.mu.Lock()
		old := o.kept
		o.kept = r
		o.mu.Unlock()
		old.Release()
		call.Return(capnp.ObjectSize{}, nil)
	case mKept.ID:
		o.mu.Lock()
		r := o.kept.AddRef()
		o.mu.Unlock()
		call.Return(testSize, fill(number, text, r))
		r.Release()
	case mSelf.ID:
		r := caps.Get(ptr)
		var same uint64
		if got, ok := r.Object().(*testObject); ok && got == o {
			same = 1
		}
		r.Release()
		call.Return(testSize, fill(same, "", nil))
	case mGo.ID:
		call.Go(func(ctx context.Context) {
			o.holding <- call
			<-ctx.Done()
			call.Fail(ctx.Err())
		})
	case mPromis.ID:
		r, resolve := NewPromise()
		o.mu.Lock()
		o.resolve = append(o.resolve, resolve)
		o.mu.Unlock()
		call.Return(testSize, fill(number, text, r))
		r.Release()
	default:
		call.Fail(Unimplementedf("method %d", call.Method().ID))
	}
}

// fill writes the test struct.
func fill(number uint64, text string, r *Ref) func(capnp.Struct, *CapTable) error {
	return func(s capnp.Struct, caps *CapTable) error {
		s.SetUint64(0, number)
		if err := s.SetText(0, text); err != nil {
			return err
		}
		return caps.Set(s, 1, r)
	}
}

func textOf(s capnp.Struct, i uint16) string {
	p, err := s.Ptr(i)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return p.Text()
}

// testDeadline is how long tests wait for what must come.
const testDeadline = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testDeadline)
	t.Cleanup(cancel)
	return ctx
}

// vats runs two connected vats, each with a testObject as bootstrap, and checks at the end that nothing is left.
type vats struct {
	a, b       *Conn
	aObj, bObj *testObject
	aErr, bErr chan error
}

func startVats(t testing.TB, ta, tb Transport, lim Limits) *vats {
	v := &vats{aObj: newTestObject("a"), bObj: newTestObject("b"), aErr: make(chan error, 1), bErr: make(chan error, 1)}
	v.a = NewConn(ta, Config{Bootstrap: v.aObj, Limits: lim})
	v.b = NewConn(tb, Config{Bootstrap: v.bObj, Limits: lim})
	go func() { v.aErr <- v.a.Run(context.Background()) }()
	go func() { v.bErr <- v.b.Run(context.Background()) }()
	t.Cleanup(func() {
		v.a.Close("test over")
		v.wait(t)
		for _, c := range []*Conn{v.a, v.b} {
			if s := c.Stats(); s.Questions+s.Answers+s.Exports+s.Imports+s.Embargoes+s.QueuedCalls+s.QueuedBytes != 0 {
				t.Errorf("tables are not empty after Run: %+v", s)
			}
		}
		for _, o := range []*testObject{v.aObj, v.bObj} {
			o.checkReleased(t)
		}
	})
	return v
}

// overPipe starts vats over a pipe, and gives what b offers as a has it.
func overPipe(t testing.TB, lim Limits) (v *vats, boot *Ref) {
	a, b := Pipe()
	v = startVats(t, a, b, lim)
	boot = v.a.Bootstrap(testContext(t))
	t.Cleanup(boot.Release)
	return v, boot
}

func (o *testObject) checkReleased(t testing.TB) {
	t.Helper()
	o.mu.Lock()
	released, made := o.released, o.made
	o.mu.Unlock()
	if released != 1 {
		t.Errorf("object %s was released %d times", o.name, released)
	}
	for _, m := range made {
		m.checkReleased(t)
	}
}

// wait waits for both ends.
func (v *vats) wait(t testing.TB) {
	t.Helper()
	for _, ch := range []chan error{v.aErr, v.bErr} {
		select {
		case err := <-ch:
			ch <- err
		case <-time.After(testDeadline):
			t.Fatal("Run does not return")
		}
	}
}

// ask calls and waits.
func ask(t testing.TB, r *Ref, m Method, number uint64, text string, arg *Ref) (capnp.Struct, *Promise, error) {
	t.Helper()
	p := r.Call(testContext(t), m, testSize, fill(number, text, arg))
	s, _, err := p.Wait(testContext(t))
	if errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%s: no answer", m.Name)
	}
	return s, p, err
}
