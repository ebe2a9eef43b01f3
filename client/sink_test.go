package client

import (
	"context"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/rpc"
)

func TestASinkThatWasDroppedAnswersAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	sink := newEventSink(testSession)
	ref := rpc.NewLocal(sink)
	defer ref.Release()
	deliver := func(method uint16) *rpc.Promise {
		return ref.Call(ctx, rpc.Method{Interface: wire.EventSink_TypeID, ID: method}, words(0, 1), nil)
	}
	calls := []*rpc.Promise{deliver(sinkEvents), deliver(sinkEvents)}
	d, err := sink.next(ctx, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.done()
	sink.drop()
	calls = append(calls, deliver(sinkEvents), deliver(sinkEnded))
	for i, call := range calls {
		select {
		case <-call.Done():
		case <-ctx.Done():
			t.Errorf("call %d is not answered", i+1)
		}
		call.Release()
	}
}
