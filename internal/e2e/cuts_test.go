package e2e

// Links that are cut while something goes over them, and what a client is told
// of what it sent again.

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// handshake is more bytes than the server's answer to a WebSocket handshake has.
const handshake = 400

// newRand is a random source whose seed is printed at once, whatever becomes of the test.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(seed.Of(t), 5))
}

// cutting breaks a link again and again, in the background.
type cutting struct {
	stop  context.CancelFunc
	ended chan struct{}

	// Set before ended is closed.
	cuts      int // open links that were cut
	swallowed int // rounds in which answers that were no handshakes were swallowed
}

// cutAtRandom cuts a server's link until it is told to end: after a random number
// of bytes to the server, after some of what it answers, or after its answers
// were swallowed, so that it has committed what nobody knows of. bytes is how many
// may go to the server between two cuts; it answers with fewer.
func cutAtRandom(t testing.TB, r *rand.Rand, proxy *faultproxy.Proxy, bytes int64) *cutting {
	ctx, stop := context.WithCancel(t.Context())
	c := &cutting{stop: stop, ended: make(chan struct{})}
	before := proxy.Stats().Cuts
	go func() {
		defer close(c.ended)
		for round := 0; ctx.Err() == nil; round++ {
			switch round % 3 {
			case 0:
				if swallowAnswers(ctx, r, proxy) {
					c.swallowed++
				}
			case 1:
				cutIn(ctx, proxy, toServer, 1+r.Int64N(bytes))
			default:
				cutIn(ctx, proxy, toClient, 1+r.Int64N(bytes/10))
			}
		}
		c.cuts = proxy.Stats().Cuts - before
		proxy.Cut() // ends the last round's fault
	}()
	return c
}

// end stops it and waits for it.
func (c *cutting) end() {
	c.stop()
	<-c.ended
}

// cutIn cuts the link when so many bytes more have gone in a direction.
func cutIn(ctx context.Context, proxy *faultproxy.Proxy, d faultproxy.Direction, bytes int64) {
	select {
	case <-proxy.CutAfter(d, bytes):
	case <-ctx.Done():
	}
}

// swallowAnswers lets every link hand on its handshake and a little more, swallows
// what the server sends after it, and cuts a moment after something was lost. It
// says whether that was more than control frames.
func swallowAnswers(ctx context.Context, r *rand.Rand, proxy *faultproxy.Proxy) bool {
	before := proxy.Stats().Swallowed[toClient]
	lost := func() bool { return proxy.Stats().Swallowed[toClient]-before > 100 }
	proxy.BlackholeAfter(toClient, handshake+r.Int64N(2000))
	until(ctx, 2*time.Second, lost) // once the last answer has passed, none comes any more
	within(time.Duration(r.IntN(50))*time.Millisecond, ctx.Done())
	proxy.Cut()
	return lost()
}

// until polls until cond holds, for so long at most, and says whether it did.
func until(ctx context.Context, atMost time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// acks counts what a client is told by its servers, from the messages themselves.
type acks struct {
	mu       sync.Mutex
	applies  map[uint32]bool // the questions, of the connection at hand, that sent batches
	all      int
	repeated int // that told of ops which had been committed before: duplicates
}

// see is a client's Trace.
func (a *acks) see(dir string, m rpccp.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case dir == "out" && m.Which() == rpccp.Message_Which_bootstrap: // a new connection
		a.applies = map[uint32]bool{}
	case dir == "out" && m.Which() == rpccp.Message_Which_call:
		if call, err := m.Call(); err == nil && call.InterfaceId() == wire.Stream_TypeID && call.MethodId() == 0 {
			a.applies[call.QuestionId()] = true
		}
	case dir == "in" && m.Which() == rpccp.Message_Which_return:
		ret, err := m.Return()
		if err != nil || !a.applies[ret.AnswerId()] {
			return
		}
		delete(a.applies, ret.AnswerId())
		if duplicates, ok := duplicatesOf(ret); ok {
			a.all++
			if duplicates > 0 {
				a.repeated++
			}
		}
	}
}

// duplicatesOf reads how many duplicates the answer to a batch tells of.
func duplicatesOf(ret rpccp.Return) (n uint32, ok bool) {
	if ret.Which() != rpccp.Return_Which_results {
		return 0, false
	}
	payload, err := ret.Results()
	if err != nil {
		return 0, false
	}
	content, err := payload.Content()
	if err != nil {
		return 0, false
	}
	reply, err := wire.Stream_apply_Results(content.Struct()).Reply()
	if err != nil || reply.Which() != wire.ApplyReply_Which_ack {
		return 0, false
	}
	ack, err := reply.Ack()
	return ack.Duplicates(), err == nil
}

// counts gives how many acknowledgements came, and how many of them told of duplicates.
func (a *acks) counts() (all, repeated int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all, a.repeated
}
