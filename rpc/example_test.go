// What using the package looks like.

package rpc_test

import (
	"context"
	"fmt"

	"github.com/mooring-rpc/mooring/rpc"

	"capnproto.org/go/capnp/v3"
)

// The methods of the example's interface: greet takes a name and returns a text; friend returns another greeter.
var (
	greet  = rpc.Method{Interface: 0xa5f8f6ad9f7ec0de, ID: 0, Name: "greet"}
	friend = rpc.Method{Interface: 0xa5f8f6ad9f7ec0de, ID: 1, Name: "friend"}
	one    = capnp.ObjectSize{PointerCount: 1}
)

// greeter is an object that answers at once.
type greeter struct{ word string }

func (g greeter) Serve(call *rpc.Call) {
	switch call.Method().ID {
	case greet.ID:
		params, _ := call.Params()
		name, err := params.Ptr(0)
		if err != nil {
			call.Fail(err)
			return
		}
		call.Return(one, func(results capnp.Struct, _ *rpc.CapTable) error {
			return results.SetText(0, g.word+", "+name.Text())
		})
	case friend.ID:
		other := rpc.NewLocal(greeter{"Salut"})
		defer other.Release() // the answer keeps a reference of its own
		call.Return(one, func(results capnp.Struct, caps *rpc.CapTable) error { return caps.Set(results, 0, other) })
	default:
		call.Fail(rpc.Unimplementedf("greeter has no method %d", call.Method().ID))
	}
}

// A server and a client; the second call is made on the answer to the first before that is there.
func Example() {
	ctx := context.Background()
	a, b := rpc.Pipe()
	server := rpc.NewConn(a, rpc.Config{Bootstrap: greeter{"Hello"}})
	client := rpc.NewConn(b, rpc.Config{})
	ended := make(chan error, 2)
	go func() { ended <- server.Run(ctx) }()
	go func() { ended <- client.Run(ctx) }()

	boot := client.Bootstrap(ctx)
	asked := boot.Call(ctx, friend, one, nil)
	other := asked.Cap(0)
	asked.Release()
	answer := other.Call(ctx, greet, one, func(params capnp.Struct, _ *rpc.CapTable) error {
		return params.SetText(0, "Ada")
	})
	results, _, err := answer.Wait(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := results.Ptr(0)
	fmt.Println(text.Text(), err)
	answer.Release()
	other.Release()
	boot.Release()

	client.Close("done")
	<-ended
	<-ended
	// Output: Salut, Ada <nil>
}
