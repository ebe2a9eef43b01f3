package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/until"
)

// strangerRig is a vat that takes its peer for a stranger, and the peer, which is another.
type strangerRig struct {
	*vats
	t                testing.TB
	in               *intake.Peer
	strangers, known *membudget.Budget
	boot             *Ref
}

// newStrangerRig starts them over a transport, with limits on what is kept of a stranger and how long it waits.
func newStrangerRig(t testing.TB, dial func(testing.TB) (a, b Transport), message int, patience time.Duration) *strangerRig {
	s := &strangerRig{t: t, strangers: membudget.New(membudget.Config{Total: 4 << 20}), known: membudget.New(membudget.Config{Total: 64 << 20})}
	cfg := &intake.Config{Strangers: s.strangers, Known: s.known, MaxStrangerBytes: message, MaxWait: patience,
		TooLarge: Failedf("too large"), Overloaded: Overloadedf("no memory")}
	s.in = cfg.Open("address")
	ta, tb := dial(t)
	v := &vats{aObj: newTestObject("a"), bObj: newTestObject("b"), aErr: make(chan error, 1), bErr: make(chan error, 1)}
	v.a = NewConn(ta, Config{Bootstrap: v.aObj})
	v.b = NewConn(tb, Config{Bootstrap: v.bObj, Intake: s.in})
	go func() { v.aErr <- v.a.Run(context.Background()) }()
	go func() { v.bErr <- v.b.Run(context.Background()) }()
	s.vats, s.boot = v, v.a.Bootstrap(testContext(t))
	t.Cleanup(func() {
		s.boot.Release()
		v.a.Close("test over")
		v.wait(t)
		s.in.Close()
		if n := s.strangers.Stats().Held + s.known.Stats().Held; n != 0 {
			t.Errorf("%d bytes are held for nobody", n)
		}
	})
	return s
}

func byPipe(testing.TB) (a, b Transport)     { return Pipe() }
func bySocket(t testing.TB) (a, b Transport) { return dialTest(t, nil) }

// show makes a call that the vat answers when it is told to: a restore, say.
func (s *strangerRig) show(n uint64) *Promise {
	return s.boot.Call(testContext(s.t), mHold, testSize, fill(n, "", nil))
}

// echo calls what a call will give.
func (s *strangerRig) echo(on *Promise, n uint64, size int) *Promise {
	r := on.Cap(1)
	defer r.Release()
	return r.Call(testContext(s.t), mEcho, testSize, fill(n, strings.Repeat("x", size), nil))
}

func await(t testing.TB, p *Promise) error {
	t.Helper()
	defer p.Release()
	_, _, err := p.Wait(testContext(t))
	return err
}

// What a first flight has behind its restore is kept as it came, or waits to be read, until the restore is answered.
func TestAFirstFlight(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(testing.TB) (a, b Transport){"pipe": byPipe, "WebSocket": bySocket} {
		for _, size := range []int{10, 700 << 10, 3 << 20} {
			t.Run(fmt.Sprint(name, " ", size), func(t *testing.T) {
				t.Parallel()
				message := 1 << 20
				if name == "pipe" { // which has read all before anybody is asked
					message = 4 << 20
				}
				s := newStrangerRig(t, dial, message, time.Minute)
				shown := s.show(1)
				defer shown.Release()
				calls := []*Promise{s.echo(shown, 1, 10), s.echo(shown, 2, size), s.echo(shown, 3, 10)}
				call := <-s.bObj.holding
				// A WebSocket's buffer is doubled from whatever a pooled one begins with: the last step within 1 MiB
				// is anywhere above half of that.
				until.True(t, "the rest of it is held", func() bool {
					held := s.strangers.Stats().Held
					return held >= int64(min(size, 1<<19)) && held < 4<<20
				})
				child := newTestObject("child")
				r := NewLocal(child)
				defer r.Release()
				s.in.Trust("ref")
				if len(child.order()) != 0 {
					t.Error("a call came before what it was made on")
				}
				call.Return(testSize, fill(0, "", r))
				for i, c := range calls {
					if err := await(t, c); err != nil {
						t.Errorf("call %d: %v", i+1, err)
					}
				}
				if got := fmt.Sprint(child.order()); got != "[1 2 3]" {
					t.Errorf("they came as %s", got)
				}
				if s.strangers.Stats().Held != 0 {
					t.Errorf("%+v is held of strangers", s.strangers.Stats())
				}
			})
		}
	}
}

// Where no restore is pending, or it came to nothing, a small call is answered and a large one ends the connection, behind
// what was answered before.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, bySocket, 1<<20, time.Minute)
		if err := await(t, s.boot.Call(testContext(t), mEcho, testSize, fill(1, "small", nil))); err != nil {
			t.Error(err)
		}
		err := await(t, s.boot.Call(testContext(t), mEcho, testSize, fill(2, strings.Repeat("x", 100<<10), nil)))
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("the caller is told %v", err)
		}
	})
	t.Run("behind what failed", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, bySocket, 1<<20, time.Minute)
		shown := s.show(1)
		small, large := s.echo(shown, 1, 10), s.echo(shown, 2, 2<<20)
		(<-s.bObj.holding).Fail(Failedf("no such ref"))
		for what, p := range map[string]*Promise{"the restore": shown, "a small call": small} {
			if err := await(t, p); err == nil || !strings.Contains(err.Error(), "no such ref") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := await(t, large); err == nil || !strings.Contains(err.Error(), "too large") && !strings.Contains(err.Error(), "no such ref") {
			t.Errorf("the large one: %v", err)
		}
		<-s.b.Done()
	})
	t.Run("when it takes too long", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, bySocket, 1<<20, 10*time.Millisecond)
		shown := s.show(1)
		defer shown.Release()
		if err := await(t, s.echo(shown, 1, 2<<20)); err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("%v", err)
		}
	})
	t.Run("when all is held", func(t *testing.T) {
		t.Parallel()
		s := newStrangerRig(t, bySocket, 1<<20, 10*time.Millisecond)
		other := s.strangers.Open("other")
		defer other.Close()
		if !other.TryGrow(4<<20 - 100<<10) {
			t.Fatal("no room")
		}
		shown := s.show(1)
		defer shown.Release()
		if err := await(t, s.echo(shown, 1, 500<<10)); err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("%v", err)
		}
	})
}

// Of a stranger's many calls so many are taken in at once, and all are answered.
func TestStrangersCallsWait(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, byPipe, 1<<20, time.Minute)
	const calls = 4 * intake.PendingCalls
	shown := make([]*Promise, calls)
	for i := range shown {
		shown[i] = s.show(uint64(i))
	}
	for i := range shown {
		call := <-s.bObj.holding
		s.b.mu.Lock()
		if s.b.pendingAuthCalls > intake.PendingCalls {
			t.Errorf("%d calls were taken in", s.b.pendingAuthCalls)
		}
		s.b.mu.Unlock()
		if i%2 == 0 {
			call.Fail(Failedf("no such ref"))
		} else {
			call.Return(testSize, nil)
		}
		if err := await(t, shown[i]); (err != nil) != (i%2 == 0) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// What came before draining began is answered, kept though it was.
func TestDrainingTakesInWhatIsKept(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, byPipe, 1<<20, time.Minute)
	shown := s.show(1)
	defer shown.Release()
	kept := s.echo(shown, 1, 10)
	call := <-s.bObj.holding
	until.True(t, "it is kept", func() bool { return s.b.Stats().QueuedCalls == 1 })
	drained := make(chan error, 1)
	go func() { drained <- s.b.Drain(testContext(t), "bye") }()
	until.True(t, "it drains", func() bool {
		s.b.mu.Lock()
		defer s.b.mu.Unlock()
		return s.b.draining
	})
	r := NewLocal(newTestObject("child"))
	defer r.Release()
	s.in.Trust("ref")
	call.Return(testSize, fill(0, "", r))
	if err := await(t, kept); err != nil {
		t.Error(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
}

// What waits for a restore does not wait for the delayed answers to wrong ones.
func TestDelayedAnswersHoldNobodyUp(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, byPipe, 1<<20, time.Minute)
	wrong := s.show(1)
	late := s.echo(wrong, 1, 10)
	call := <-s.bObj.holding
	s.in.BeginThrottle()
	right := s.show(2)
	defer right.Release()
	(<-s.bObj.holding).Return(testSize, nil)
	if _, _, err := right.Wait(testContext(t)); err != nil {
		t.Error(err)
	}
	call.Fail(Failedf("no such ref"))
	s.in.EndThrottle()
	for _, p := range []*Promise{wrong, late} {
		if err := await(t, p); err == nil {
			t.Error("what was made on a wrong ref succeeds")
		}
	}
}

// Calls of who is no stranger are charged to its budget while they are unanswered; without room they are overloaded.
func TestCallsAreCharged(t *testing.T) {
	t.Parallel()
	s := newStrangerRig(t, bySocket, 1<<20, time.Minute)
	s.in.Trust("ref")
	hold := func(size int) *Promise {
		return s.boot.Call(testContext(t), mHold, testSize, fill(1, strings.Repeat("x", size), nil))
	}
	held := hold(7 << 20)
	call := <-s.bObj.holding
	// The buffer in which it came is let go of a moment after it was delivered.
	until.True(t, "the arguments alone are charged", func() bool { n := s.known.Stats().Held; return 7<<20 <= n && n < 8<<20 })
	full := s.known.Open("other")
	defer full.Close()
	until.True(t, "all the rest is taken", func() bool { return full.TryGrow(s.known.Stats().Total - s.known.Stats().Held) })
	// A little was charged ahead, for some calls. They are small, so that no buffer is charged for reading one that comes in
	// pieces: where there is no memory for that, the connection ends.
	for err := error(nil); err == nil; {
		p := hold(1 << 10)
		select {
		case c := <-s.bObj.holding:
			defer c.Return(testSize, nil)
			defer p.Release()
		case <-p.Done():
			if err = await(t, p); !IsOverloaded(err) {
				t.Errorf("without room: %v", err)
			}
		}
	}
	full.Close()
	call.Return(testSize, nil)
	if err := await(t, held); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	until.True(t, "it is given back", func() bool { return s.known.Stats().Held < 1<<20 })
}
