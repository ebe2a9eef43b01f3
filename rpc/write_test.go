package rpc

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/until"
)

// tap is a transport that counts writes and can hold them up.
type tap struct {
	Transport
	writes atomic.Int64
	hold   atomic.Pointer[chan struct{}] // writes wait for it to be closed
}

func (t *tap) WriteBatch(ctx context.Context, messages []byte) error {
	t.writes.Add(1)
	if hold := t.hold.Load(); hold != nil {
		<-*hold
	}
	return t.Transport.WriteBatch(ctx, messages)
}

// One call after the other costs one write each: a Finish, if it needs one, leaves with the next call. Left alone it leaves too.
func TestFinishLeavesWithTheNextCall(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	a, b := &tap{Transport: near}, &tap{Transport: far}
	v := startVats(t, a, b, Limits{})
	boot := v.a.Bootstrap(testContext(t))
	defer boot.Release()
	const calls = 500
	call := func(i uint64) {
		_, p, err := ask(t, boot, mMake, i, "", nil) // results with a capability need a Finish
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	leisure := func(d time.Duration) {
		until.True(t, "no timer runs and all is written", func() bool {
			v.a.mu.Lock()
			defer v.a.mu.Unlock()
			v.a.loop.SetFlushDelay(d)
			is := v.a.loop.State()
			return !is.FlushPending && len(v.a.out.Bytes) == 0 && !is.Writing
		})
	}
	call(0)
	leisure(time.Hour) // as if time stood still: nothing leaves for having waited
	wrote, answered := a.writes.Load(), b.writes.Load()
	for i := range uint64(calls) {
		call(i)
	}
	if n := a.writes.Load() - wrote; n > calls {
		t.Errorf("the caller wrote %d times for %d calls", n, calls)
	}
	if n := b.writes.Load() - answered; n > calls {
		t.Errorf("the callee wrote %d times for %d calls", n, calls)
	}
	v.a.mu.Lock()
	v.a.loop.Flush()
	v.a.mu.Unlock()
	leisure(0)
	call(calls)
	until.True(t, "the last Finish arrives", func() bool { return v.b.Stats().Answers == 0 })
}

// Who writes an answer where a call was read, and finds that the peer does not take it, keeps nobody from reading on.
func TestReaderThatWritesIsRelieved(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	b := &tap{Transport: far}
	v := startVats(t, near, b, Limits{PingInterval: time.Hour}) // the watch would relieve it too, late
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	if _, p, err := ask(t, boot, mEcho, 0, "", nil); err != nil {
		t.Fatal(err)
	} else {
		p.Release()
	}
	stuck := make(chan struct{})
	b.hold.Store(&stuck)
	before := b.writes.Load()
	first := boot.Call(ctx, mEcho, testSize, fill(1, "", nil))
	until.True(t, "the answer is being written", func() bool { return b.writes.Load() > before })
	second := boot.Call(ctx, mHold, testSize, fill(2, "", nil))
	select {
	case call := <-v.bObj.holding:
		call.Return(testSize, nil)
	case <-ctx.Done():
		t.Fatal("nobody reads while an answer is being written")
	}
	b.hold.Store(nil)
	close(stuck)
	for _, p := range []*Promise{first, second} {
		if _, _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.Release()
	}
}

// Of many calls that come together, the first are answered while the others are delivered; and whoever delivers the last
// can still be relieved of reading. In a bubble no time goes by meanwhile, so that nobody takes over before.
func TestAnswersLeaveInPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, answersInPieces)
}

func answersInPieces(t *testing.T) {
	near, far := Pipe()
	a, b := &tap{Transport: near}, &tap{Transport: far}
	v := startVats(t, a, b, Limits{PingInterval: time.Hour})
	v.bObj.holding = make(chan *Call) // the last handler waits
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	text := strings.Repeat("x", 400)
	echo := func() *Promise { return boot.Call(ctx, mEcho, testSize, fill(1, text, nil)) }
	if _, _, err := echo().Wait(ctx); err != nil {
		t.Fatal(err)
	}
	stuck := make(chan struct{})
	a.hold.Store(&stuck)
	before := a.writes.Load()
	calls := []*Promise{echo()}
	until.True(t, "a call is being written", func() bool { return a.writes.Load() > before })
	for range 80 {
		calls = append(calls, echo())
	}
	answered := b.writes.Load()
	last := boot.Call(ctx, mHold, testSize, nil)
	a.hold.Store(nil)
	close(stuck) // the others leave together
	for _, p := range calls {
		if _, _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.Release()
	}
	if n := b.writes.Load() - answered; n < 5 {
		t.Errorf("%d answers left in %d writes", len(calls), n)
	}
	v.b.mu.Lock()
	if !v.b.loop.State().ReaderBusy {
		t.Error("the reader is in a handler, and nobody knows")
	}
	v.b.mu.Unlock()
	(<-v.bObj.holding).Return(testSize, nil)
	if _, _, err := last.Wait(ctx); err != nil {
		t.Error(err)
	}
	last.Release()
}

// What nobody waits for leaves by itself also if it came up while something else was being written.
func TestReleaseBesideAWriteLeaves(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	a := &tap{Transport: near}
	v := startVats(t, a, far, Limits{PingInterval: time.Hour})
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	_, made, err := ask(t, boot, mMake, 0, "child", nil)
	if err != nil {
		t.Fatal(err)
	}
	child := made.Cap(1)
	made.Release()
	stuck := make(chan struct{})
	a.hold.Store(&stuck)
	before := a.writes.Load()
	v.a.mu.Lock()
	v.a.loop.HoldOutput() // for the writer, which takes over after maxHold
	v.a.mu.Unlock()
	calls := []*Promise{boot.Call(ctx, mHold, testSize, nil), boot.Call(ctx, mHold, testSize, nil)}
	until.True(t, "the writer writes", func() bool { return a.writes.Load() > before })
	child.Release()
	a.hold.Store(nil)
	close(stuck)
	v.bObj.mu.Lock()
	object := v.bObj.made[0]
	v.bObj.mu.Unlock()
	select {
	case <-object.gone:
	case <-ctx.Done():
		t.Fatal("the Release has not left")
	}
	for _, p := range calls {
		(<-v.bObj.holding).Return(testSize, nil)
		if _, _, err := p.Wait(ctx); err != nil {
			t.Error(err)
		}
		p.Release()
	}
}

// A silent connection sends its writer home and gives up what it can have again; the next call finds all in order, and
// so does the end.
func TestIdleConnectionRests(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{PingInterval: 5 * time.Millisecond}, func(t *testing.T, v *vats) {
		boot := v.a.Bootstrap(testContext(t))
		defer boot.Release()
		rested := func() bool {
			for _, c := range []*Conn{v.a, v.b} {
				c.mu.Lock()
				is := c.loop.State()
				away := is.WriterRetired && !is.Buffers
				c.mu.Unlock()
				if !away {
					return false
				}
			}
			return true
		}
		for i := range uint64(5) {
			_, p, err := ask(t, boot, mEcho, i, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
			held := []*Promise{boot.Call(testContext(t), mHold, testSize, nil), boot.Call(testContext(t), mHold, testSize, nil)}
			for _, p := range held { // for the writers
				(<-v.bObj.holding).Return(testSize, nil)
				if _, _, err := p.Wait(testContext(t)); err != nil {
					t.Fatal(err)
				}
				p.Release()
			}
			until.True(t, "both sides rest", rested)
		}
	})
}

// More than is written at once leaves at once, though nobody waits for any of it.
func TestMuchOfNoUrgencyLeaves(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	c := NewConn(near, Config{})
	ran := make(chan error, 1)
	go func() { ran <- c.Run(context.Background()) }()
	c.mu.Lock()
	c.loop.SetFlushDelay(time.Hour)
	for c.out.Size() <= peerconn.ChunkBytes {
		c.emitRelease(1, 1)
	}
	want := c.out.Size()
	c.unlockAndRun()
	for got := 0; got < want; {
		batch, err := far.ReadBatch(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		got += len(batch)
	}
	c.Close("test over")
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// lazyObject answers method 0 lazily and all others at once.
type lazyObject struct{}

func (lazyObject) Serve(c *Call) {
	if c.Method().ID == 0 {
		c.ReturnLazily()
	} else {
		c.Return(capnp.ObjectSize{}, nil)
	}
}

// TestLazyAnswersLeaveTogether: with the next answer that somebody waits for, or a little later.
func TestLazyAnswersLeaveTogether(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	callee := &tap{Transport: far}
	a, b := NewConn(near, Config{}), NewConn(callee, Config{Bootstrap: lazyObject{}})
	ran := make(chan error, 2)
	go func() { ran <- a.Run(context.Background()) }()
	go func() { ran <- b.Run(context.Background()) }()
	defer func() {
		a.Close("test over")
		<-ran
		<-ran
	}()
	boot := a.Bootstrap(testContext(t))
	defer boot.Release()
	call := func(method uint16) *Promise {
		return boot.Call(testContext(t), Method{ID: method}, capnp.ObjectSize{}, nil)
	}
	wait := func(p *Promise) {
		t.Helper()
		if _, _, err := p.Wait(testContext(t)); err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	wait(call(1))
	b.mu.Lock()
	b.loop.SetFlushDelay(time.Hour)
	b.mu.Unlock()
	before := callee.writes.Load()
	const lazy = 20
	var promises []*Promise
	for n := range int64(lazy) {
		promises = append(promises, call(0))
		until.True(t, "the call is answered", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.out.Ends) == int(n)+1
		})
	}
	if n := callee.writes.Load() - before; n != 0 {
		t.Errorf("%d writes for answers that nobody waits for", n)
	}
	wait(call(1))
	for _, p := range promises {
		wait(p)
	}
	if n := callee.writes.Load() - before; n != 1 {
		t.Errorf("%d writes for all answers together", n)
	}
	last := call(0)
	until.True(t, "the last is answered", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.out.Ends) == 1
	})
	b.mu.Lock()
	b.loop.Flush()
	b.unlockAndRun()
	wait(last)
}

// TestNoWriterUntilItIsNeeded: thousands of connections that only listen have no goroutine for it each.
func TestNoWriterUntilItIsNeeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := Pipe()
		c, peer := NewConn(near, Config{}), NewConn(far, Config{Bootstrap: lazyObject{}})
		go func() { _ = c.Run(context.Background()) }()
		go func() { _ = peer.Run(context.Background()) }()
		synctest.Wait()
		retired := func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.loop.State().WriterRetired
		}
		if !retired() {
			t.Error("a writer runs for nothing")
		}
		boot := c.Bootstrap(context.Background())
		p := boot.Call(context.Background(), Method{ID: 1}, capnp.ObjectSize{}, nil)
		if _, _, err := p.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		if retired() {
			t.Error("no writer was needed to call")
		}
		p.Release()
		boot.Release()
		c.Close("test over")
	})
}
