package client_test

import (
	"bytes"
	"sync"
	"testing"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/client"
)

// TestAServerIsShownNothingOfUseElsewhere: the secret that an outbox shows a server for
// one session is good for no other session, there or at another server, and stays the
// same over connections.
func TestAServerIsShownNothingOfUseElsewhere(t *testing.T) {
	t.Parallel()
	one, two := testRig(t), testRig(t)
	var mu sync.Mutex
	var shown [][]byte
	c := one.open(t, "a", func(cfg *client.Config) {
		cfg.SetTrace(func(dir string, msg rpccp.Message) {
			if dir != "out" || msg.Which() != rpccp.Message_Which_call {
				return
			}
			call, _ := msg.Call()
			if call.InterfaceId() != wire.Session_TypeID || call.MethodId() != 1 {
				return
			}
			p, _ := call.Params()
			content, _ := p.Content()
			secret, _ := wire.Session_openStream_Params(content.Struct()).Secret()
			mu.Lock()
			defer mu.Unlock()
			shown = append(shown, bytes.Clone(secret))
		})
	})
	first := one.newSession(t, c)
	one.newSession(t, c)
	two.newSession(t, c)
	mu.Lock()
	n := len(shown)
	mu.Unlock()
	one.proxy.Cut()
	b := first.Batch()
	b.Put(message(1), object{})
	applied(t, b)

	mu.Lock()
	defer mu.Unlock()
	if n < 3 || len(shown) <= n {
		t.Fatalf("%d streams were opened, and %d after the link was cut", n, len(shown)-n)
	}
	for i := range 3 {
		for j := range i {
			if len(shown[i]) != capability.SecretBytes || bytes.Equal(shown[i], shown[j]) {
				t.Errorf("streams %d and %d are opened with the same secret", j+1, i+1)
			}
		}
	}
	if last := shown[len(shown)-1]; !bytes.Equal(last, shown[0]) && !bytes.Equal(last, shown[1]) {
		t.Error("after the link was cut a stream is opened with another secret")
	}
}
