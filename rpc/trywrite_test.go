package rpc

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// fakeTryWriter is a transport that can write without waiting, when it likes to.
type fakeTryWriter struct {
	Transport
	wrote     atomic.Int64 // by those who may wait,
	tried     atomic.Int64 // and by those who may not
	outcome   func() tryOutcome
	unwritten []byte
}

type tryOutcome int

const (
	takesAll  tryOutcome = iota
	takesPart            // keeps it all until the next write
	isTaken              // by somebody else
	breaks
)

func (t *fakeTryWriter) TryWriteBatch(messages []byte) (tried, done bool, err error) {
	t.tried.Add(1)
	switch t.outcome() {
	case takesPart:
		t.unwritten = append(t.unwritten, messages...)
		return true, false, nil
	case isTaken:
		return false, false, nil
	case breaks:
		return true, false, errBroken
	}
	if len(t.unwritten) > 0 {
		panic("a message within another")
	}
	return true, true, t.Transport.WriteBatch(context.Background(), messages)
}

var errBroken = errors.New("broken")

func (t *fakeTryWriter) WriteBatch(ctx context.Context, messages []byte) error {
	t.wrote.Add(1)
	batch := append(t.unwritten, messages...)
	t.unwritten = nil
	if len(batch) == 0 {
		return nil
	}
	return t.Transport.WriteBatch(ctx, batch)
}

func inMood(m tryOutcome) func() tryOutcome { return func() tryOutcome { return m } }

// Of calls by turns each is written by its caller, and answers by who gives them, unless the reader is about to write.
func TestCallersWriteWhatIsAlone(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	a, b := &fakeTryWriter{Transport: near, outcome: inMood(takesAll)}, &fakeTryWriter{Transport: far, outcome: inMood(takesAll)}
	v := startVats(t, a, b, Limits{PingInterval: time.Hour})
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	for i := range 100 {
		p := boot.Call(ctx, mHold, testSize, nil)
		(<-v.bObj.holding).Return(testSize, nil)
		if _, _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		p.Release()
		if i == 0 { // the bootstrap and what was pipelined on it left in other ways
			until.True(t, "the writer rests", func() bool {
				v.a.mu.Lock()
				defer v.a.mu.Unlock()
				is := v.a.loop.State()
				return is.WriterIdle && !is.Writing && !is.FlushPending && len(v.a.out.Bytes) == 0
			})
			a.wrote.Store(0)
		}
	}
	if n := a.wrote.Load(); n > 0 {
		t.Errorf("the writer wrote %d calls", n)
	}
	if b.tried.Load() == 0 {
		t.Error("no answer was written by who gave it")
	}
}

// Whatever becomes of an attempt to write, all arrives, once and in order, by turns and at the same time.
func TestPartialWrites(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed.Of(t), 0))
	moody := func() tryOutcome {
		mu.Lock()
		defer mu.Unlock()
		return tryOutcome(rnd.IntN(int(breaks)))
	}
	near, far := Pipe()
	v := startVats(t, &fakeTryWriter{Transport: near, outcome: moody}, &fakeTryWriter{Transport: far, outcome: moody}, Limits{PingInterval: time.Hour})
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	for range 200 {
		for n := range uint64(3) {
			got, p, err := ask(t, boot, mEcho, n, "", nil)
			if err != nil || got.Uint64(0) != n {
				t.Fatalf("echo of %d: %d, %v", n, got.Uint64(0), err)
			}
			p.Release()
		}
		var all []*Promise
		for range 5 {
			all = append(all, boot.Call(ctx, mHold, testSize, nil))
		}
		for range all {
			(<-v.bObj.holding).Return(testSize, nil)
		}
		for _, p := range all {
			if _, _, err := p.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
	}
}

// An error of an attempt ends the connection as one of a write does; what is said last still leaves after an attempt.
func TestAttemptsAndTheEnd(t *testing.T) {
	t.Parallel()
	for _, m := range []tryOutcome{breaks, takesPart} {
		near, far := Pipe()
		var now atomic.Int32
		changing := func() tryOutcome { return tryOutcome(now.Load()) }
		v := startVats(t, near, &fakeTryWriter{Transport: far, outcome: changing}, Limits{PingInterval: time.Hour})
		boot := v.a.Bootstrap(testContext(t))
		defer boot.Release()
		p := boot.Call(testContext(t), mHold, testSize, nil)
		call := <-v.bObj.holding
		until.True(t, "nothing else is under way", func() bool { s := v.b.Stats(); return s.Answers == 1 && s.QueuedBytes == 0 })
		now.Store(int32(m))
		call.Return(testSize, nil)
		v.b.Close("enough")
		_, _, err := p.Wait(testContext(t))
		if ex, lost := errors.AsType[*Exception](err); lost != (m == breaks) || lost && ex.Type != Disconnected {
			t.Errorf("mood %d: the answer before the end: %v", m, err)
		}
		p.Release()
		if err := v.b.Err(); (err != nil) != (m == breaks) {
			t.Errorf("mood %d: the connection ended with %v", m, err)
		}
	}
}

// A call that is made while another could not be written without waiting leaves behind it.
func TestACallDuringAnAttempt(t *testing.T) {
	t.Parallel()
	near, far := Pipe()
	var during atomic.Pointer[func()]
	outcome := func() tryOutcome {
		if f := during.Swap(nil); f != nil {
			(*f)()
		}
		return isTaken
	}
	v := startVats(t, &fakeTryWriter{Transport: near, outcome: outcome}, far, Limits{PingInterval: time.Hour})
	ctx := testContext(t)
	boot := v.a.Bootstrap(ctx)
	defer boot.Release()
	p := boot.Call(ctx, mEcho, testSize, fill(0, "", nil))
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	p.Release()
	for range 20 {
		until.True(t, "nothing else is under way", func() bool {
			v.a.mu.Lock()
			defer v.a.mu.Unlock()
			is := v.a.loop.State()
			return (is.WriterIdle || is.WriterRetired) && !is.Writing && v.a.questions.Len() == 0 && len(v.a.out.Bytes) == 0
		})
		var second *Promise
		call := func() { second = boot.Call(ctx, mHold, testSize, fill(2, "", nil)) }
		during.Store(&call)
		first := boot.Call(ctx, mHold, testSize, fill(1, "", nil))
		if second == nil {
			t.Fatal("the first call was not tried")
		}
		for range 2 {
			(<-v.bObj.holding).Return(testSize, nil)
		}
		for _, p := range []*Promise{first, second} {
			if _, _, err := p.Wait(ctx); err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
	}
	v.bObj.mu.Lock()
	defer v.bObj.mu.Unlock()
	for i, n := range v.bObj.calls[1:] {
		if n != uint64(i%2)+1 {
			t.Fatalf("calls in the order %d", v.bObj.calls)
		}
	}
}

// The next write may have nothing to add to what an attempt left behind: then it says nothing.
func TestNothingIsNoMessage(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{SubprotocolMerged, SubprotocolPlain} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			client, server := dialTest(t, []string{protocol})
			message := make([]byte, 2*framing.WordBytes)
			message[4] = 1 // a segment of one word
			for _, b := range [][]byte{nil, message} {
				if err := client.WriteBatch(context.Background(), b); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := server.ReadBatch(context.Background()); !bytes.Equal(got, message) {
				t.Errorf("the first message has %d bytes, %v", len(got), err)
			}
			client.Close(peerconn.CloseNormal, "")
			server.Close(peerconn.CloseNormal, "")
		})
	}
}
