package bridge

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/testschema/kinds"
	"github.com/mooring-rpc/mooring/rpc"
)

// TestParametersForManyPeers: what CallEncoded encodes once is converted once, for all peers of a bridge, and each answers for itself.
func TestParametersForManyPeers(t *testing.T) {
	t.Parallel()
	var conversions atomic.Int64
	cfg := kindsConfig()
	cfg.Rules.Fields = map[FieldKey]FieldRule{{Struct: kinds.Listener_counted_Params_TypeID, Field: "a"}: {Out: func(v any) (any, error) {
		conversions.Add(1)
		return v, nil
	}}}
	b := compiled(t, cfg)
	listener := b.interfaces[kinds.Server_TypeID].methods["listen"].params.fields[0].typ.iface
	counted := rpc.Method{Interface: kinds.Listener_TypeID, ID: 1}
	heard := make(chan any, 100)
	var running sync.WaitGroup
	defer running.Wait()
	var listeners []*rpc.Ref
	add := func(side *Conn, to caller) {
		listeners = append(listeners, rpc.NewLocal(newCallback(side, listener, to)))
	}
	for i := range 5 {
		near, far := capnweb.Pipe()
		client := capnweb.NewConn(near, capnweb.Config{Main: capnweb.Func(func(arg any) float64 { heard <- arg; return float64(i) })})
		server := capnweb.NewConn(far, capnweb.Config{})
		for _, c := range []*capnweb.Conn{client, server} {
			running.Go(func() { _ = c.Run(context.Background()) })
			defer c.Close("test over")
		}
		add(b.Conn(1<<20), stubCaller{server.Main()})
	}
	add(b.Conn(1<<20), Func(func(arg any) (any, error) { heard <- arg; return 5.0, nil }))
	for round := range uint32(3) {
		params, err := rpc.EncodeParams(capnp.ObjectSize{DataSize: 8}, func(s capnp.Struct) error {
			kinds.Listener_counted_Params(s).SetA(round)
			kinds.Listener_counted_Params(s).SetB(100)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		conversions.Store(0)
		answers := make([]*rpc.Promise, len(listeners))
		var calling sync.WaitGroup
		for i, ref := range listeners {
			calling.Go(func() { answers[i] = ref.CallEncoded(t.Context(), counted, params) })
		}
		calling.Wait()
		for i, answer := range answers {
			res, _, err := answer.Wait(t.Context())
			if err != nil || kinds.Listener_counted_Results(res).Sum() != uint64(i) {
				t.Errorf("listener %d answered %d, %v", i, kinds.Listener_counted_Results(res).Sum(), err)
			}
			answer.Release()
			want := map[string]any{"counted": map[string]any{"a": float64(round), "b": 100.0}}
			if got := <-heard; !reflect.DeepEqual(asNumbers(got), want) {
				t.Errorf("a listener was called with %#v, want %#v", got, want)
			}
		}
		if n := conversions.Load(); n != 2 { // for the peers, and for the function of this process
			t.Errorf("the parameters were converted %d times, want 2", n)
		}
	}
	for _, ref := range listeners {
		ref.Release()
	}
}

// asNumbers returns an argument of counted with the numbers that a peer is sent.
func asNumbers(arg any) any {
	of, ok := arg.(map[string]any)["counted"].(map[string]any)
	if !ok {
		return arg
	}
	numbers := make(map[string]any, len(of))
	for name, v := range of {
		if n, whole := v.(uint64); whole {
			v = float64(n)
		}
		numbers[name] = v
	}
	return map[string]any{"counted": numbers}
}
