// Package rpctrace lets a test in another package see the messages of a client's connections: internal/e2e, which kills processes
// at chosen messages. Package client looks for the function in the context that it is opened with.
package rpctrace

import (
	"context"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// Func is called with every message, as rpc.Config.Trace is.
type Func = func(dir string, msg rpccp.Message)

type key struct{}

// With returns a context with which a client is opened whose messages f sees.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// From returns the function in ctx; nil for none.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(key{}).(Func)
	return f
}
