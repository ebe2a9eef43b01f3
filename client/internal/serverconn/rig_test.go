package serverconn

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/cenkalti/backoff/v4"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// structSize returns the size of a struct, in words of data and pointers.
func structSize(data capnp.Size, pointers uint16) capnp.ObjectSize {
	return capnp.ObjectSize{DataSize: data * 8, PointerCount: pointers}
}

const testSession = "ses_01JABCDEFGHJKMNPQRSTVWXYZ0"

func testAddress() capability.Ref { return capability.Ref{Hosts: []string{"127.0.0.1:1"}} }

// greeting answers hello, and fails every other call.
type greeting struct{}

func (greeting) Serve(call *rpc.Call) {
	if call.Method().ID != methods.GatewayHello.ID {
		call.Fail(rpc.Failedf("not in this test"))
		return
	}
	call.Return(structSize(2, 2), func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Gateway_hello_Results(s).SetVersion(wire.ProtocolVersion)
		return nil
	})
}

// dialGreeting dials a greeting if the URL contains at; nothing is anywhere else.
func dialGreeting(at string) func(context.Context, string) (rpc.Transport, error) {
	return func(ctx context.Context, url string) (rpc.Transport, error) {
		if !strings.Contains(url, at) {
			return nil, errors.New("connection refused")
		}
		near, far := rpc.Pipe()
		conn := rpc.NewConn(far, rpc.Config{Bootstrap: greeting{}})
		go func() { _ = conn.Run(context.WithoutCancel(ctx)) }() // ends with the other side
		return near, nil
	}
}

// runServer runs the server of a ref until the test ends.
func runServer(t *testing.T, ref capability.Ref, cfg Config) *Server {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.NewBackOff = func() backoff.BackOff { return backoff.NewConstantBackOff(10 * time.Millisecond) }
	cfg.OnConnect = func() {}
	cfg.Retire = func(*Server) bool { return false }
	s := New(ref, cfg)
	ctx, stop := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { s.Run(ctx) })
	t.Cleanup(func() { stop(); loop.Wait() })
	return s
}
