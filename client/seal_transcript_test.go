// What a sealed ref costs: one round trip, for it alone.

package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// challenger is a Gateway that answers challenges when it is let, and nothing else.
type challenger struct{ let chan struct{} }

func (g *challenger) Serve(c *rpc.Call) {
	if c.Method().ID != methods.GatewayChallenge.ID || c.Method().Interface != methods.GatewayChallenge.Interface {
		return
	}
	c.Go(func(ctx context.Context) {
		select {
		case <-g.let:
		case <-ctx.Done():
		}
		c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
			return s.SetData(0, bytes.Repeat([]byte{1}, capability.NonceBytes))
		})
	})
}

func TestASealedRefCostsOneRoundTripAndOnlyItself(t *testing.T) {
	t.Parallel()
	gateway := &challenger{let: make(chan struct{})}
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	var mu sync.Mutex
	var calls []string
	more := make(chan struct{}, 100)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := linkClient(t, Config{SealKey: key, trace: func(dir string, m rpccp.Message) {
		if dir == "out" && m.Which() == rpccp.Message_Which_call {
			mu.Lock()
			calls = append(calls, strings.Fields(describe(m))[2]) // how they hang together depends on when the bootstrap is answered
			mu.Unlock()
			more <- struct{}{}
		}
	}, dial: func(context.Context, string) (rpc.Transport, error) {
		near, far := rpc.Pipe()
		served.Go(func() { _ = rpc.NewConn(far, rpc.Config{Bootstrap: gateway}).Run(context.Background()) })
		return near, nil
	}})
	sent := func(n int) string {
		t.Helper()
		for {
			mu.Lock()
			said, have := strings.Join(calls, "\n"), len(calls)
			mu.Unlock()
			if have >= n {
				return said
			}
			select {
			case <-more:
			case <-time.After(time.Minute):
				t.Fatalf("only this was sent:\n%s", said)
			}
		}
	}
	sealed, plain, space := testAddress().NewSealed(testSession), testAddress().New(testSession), testAddress().NewSealed(testSpace)
	replies := make(chan outbox.Reply, 3)
	for _, req := range []outbox.StreamRequest{{Ref: sealed}, {Ref: plain, SpaceRef: &space, OwnerRef: plain.ID}, {Ref: plain}} {
		req.Session, req.Outbox, req.Secret, req.Incarnation = testSession, "obx_1", capability.NewSecret(), 1
		st, err := link{c}.OpenStream(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		st.Apply(testBatch(1), func(r outbox.Reply) { replies <- r })
		defer st.Close()
	}
	want := "Gateway.hello\nGateway.challenge\nGateway.challenge\nGateway.restore\nSession.openStream\nStream.apply"
	if got := sent(6); got != want {
		t.Errorf("before any reply the client sent\n%s\nwant\n%s", got, want)
	}
	close(gateway.let)
	// The two are answered in whatever order, and their calls keep theirs.
	got := strings.Split(sent(13), "\n")[6:]
	slices.Sort(got)
	want = "Gateway.restore Gateway.restore Session.openStream Session.openStream Space.create Stream.apply Stream.apply"
	if strings.Join(got, " ") != want {
		t.Errorf("with the challenges the client sent %s, want %s", got, want)
	}
}
