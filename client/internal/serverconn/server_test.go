package serverconn

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// A call on a peer whose connection has ended fails with the error of a lost connection, which is transient, and not with that of a
// released capability.
func TestALostConnectionIsSaidToBeLost(t *testing.T) {
	for name, key := range map[string]ed25519.PrivateKey{"plain": nil, "sealed": ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))} {
		synctest.Test(t, func(t *testing.T) {
			ref := testAddress().New(testSession)
			if key != nil {
				ref = testAddress().NewSealed(testSession)
			}
			p, err := runServer(t, ref, Config{SealKey: key, Dial: dialGreeting("127.0.0.1:1")}).Peer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := p.awaitHello(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.conn.Close("over")
			synctest.Wait()
			live := p.restore(t.Context(), ref, "")
			defer live.Release()
			answer := calls.Make(t.Context(), live, methods.SessionDescribe, nil)
			defer answer.Release()
			if _, _, err := answer.Wait(t.Context()); fault.CodeOf(p.Fail(err)) != fault.Disconnected {
				t.Errorf("%s: %v", name, err)
			}
			if key == nil {
				return
			}
			late, resolve := rpc.NewPromise() // who had begun to prove the key
			defer late.Release()
			r := &restoredRef{cap: late, resolved: make(chan struct{})}
			p.challenges.start(func() { p.challenge(ref, "", r, resolve) })
			after := calls.Make(t.Context(), late, methods.SessionDescribe, nil)
			defer after.Release()
			if _, _, err := after.Wait(t.Context()); fault.CodeOf(p.Fail(err)) != fault.Disconnected {
				t.Errorf("%s, under way: %v", name, err)
			}
		})
	}
}

func TestAllHostsAreTriedInTurn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var dialed []string
	second := dialGreeting("127.0.0.2")
	ref := capability.Ref{Hosts: []string{"127.0.0.1:1", "127.0.0.2:2"}, Prefix: "agents"}.New(testSession)
	srv := runServer(t, ref, Config{Dial: func(ctx context.Context, url string) (rpc.Transport, error) {
		mu.Lock()
		dialed = append(dialed, url)
		mu.Unlock()
		return second(ctx, url)
	}})
	if _, err := srv.Peer(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := "ws://127.0.0.1:1/agents/capnp ws://127.0.0.2:2/agents/capnp"
	if got := strings.Join(dialed, " "); got != want {
		t.Errorf("dialed %s, want %s", got, want)
	}
}
