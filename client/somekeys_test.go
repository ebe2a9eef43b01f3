// Keys against servers of earlier versions, which do not know them.

package client

import (
	"context"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// allKeys is a server that sends todo/1 and then message/a, whatever keys are asked for.
type allKeys struct{}

func (o allKeys) Serve(call *rpc.Call) {
	params, caps := call.Params()
	is := func(m methods.Method) bool { return m.Interface == call.Method().Interface && m.ID == call.Method().ID }
	keys := []string{"todo/1", "message/a"}
	events := func(list wire.Event_List, err error) error {
		for i := 0; err == nil && i < len(keys); i++ {
			list.At(i).SetCursor(uint64(i + 1))
			err = list.At(i).SetKey(keys[i])
		}
		return err
	}
	send := func(m methods.Method, pointer uint16, fill func(capnp.Struct) error, taken func()) {
		ptr, _ := params.Ptr(pointer)
		answer := caps.Get(ptr).Call(context.Background(), m.Method, m.Params, func(s capnp.Struct, _ *rpc.CapTable) error { return fill(s) })
		answer.Notify(func() {
			answer.Release()
			taken()
		})
	}
	reply := func() {
		call.Return(structSize(2, 2), func(s capnp.Struct, caps *rpc.CapTable) error {
			switch {
			case is(methods.GatewayHello):
				wire.Gateway_hello_Results(s).SetVersion(1)
				return nil
			case is(methods.SessionEvents):
				return events(wire.Session_events_Results(s).NewEvents(2))
			case is(methods.SessionSnapshot):
				wire.Session_snapshot_Results(s).SetCursor(2)
				return nil
			}
			live := rpc.NewLocal(o) // restore, subscribe
			defer live.Release()
			return caps.Set(s, 0, live)
		})
	}
	switch {
	case is(methods.SessionSubscribe):
		send(methods.EventSinkEvents, 1, func(s capnp.Struct) error { return events(wire.EventSink_events_Params(s).NewEvents(2)) }, func() {})
	case is(methods.SessionSnapshot): // is answered when the state has been taken
		send(methods.EventSinkState, 0, func(s capnp.Struct) error {
			to := wire.EventSink_state_Params(s)
			to.SetCursor(2)
			to.SetLast(true)
			list, err := to.NewEntries(2)
			for i := 0; err == nil && i < len(keys); i++ {
				err = list.At(i).SetKey(keys[i])
			}
			return err
		}, reply)
		return
	}
	reply()
}

// What an old server sends besides is never taken for what was asked for.
func TestSomeKeysOfAnOldServer(t *testing.T) {
	t.Parallel()
	c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": allKeys{}}.dial, RetryTimeout: -1})
	s := sessionAt(c, testAddress().Hosts...)
	for _, both := range []bool{true, false} {
		keys, want := []string{"todo/", "message/a"}, fault.None
		if !both {
			keys, want = keys[:1], fault.Incompatible
		}
		if page, err := s.EventsOf(t.Context(), Position{}, keys, 0); fault.CodeOf(err) != want || err == nil && len(page.Events) != 2 {
			t.Errorf("a page of %q: %v, %v", keys, page, err)
		}
		if state, err := s.SnapshotOfKeys(t.Context(), Position{}, keys); fault.CodeOf(err) != want || err == nil && len(state.Entries) != 2 {
			t.Errorf("the state of %q: %v, %v", keys, state, err)
		}
		seen := 0
		err := s.Subscribe(t.Context(), SubscribeOptions{Keys: keys}, func(Event) error {
			if seen++; seen == 2 {
				return fault.Usage // enough
			}
			return nil
		})
		if code := fault.CodeOf(err); both && (code != fault.Usage || seen != 2) || !both && (code != want || seen != 0) {
			t.Errorf("following %q: %d events, %v", keys, seen, err)
		}
	}
	_ = c.Close()
}

// Limits to keys come with a bit that an old server refuses, which has 8 of them.
func TestKeyLimitsAreRefusedByOldServers(t *testing.T) {
	t.Parallel()
	for _, o := range []AttenuateOptions{{}, {Message: "m"}, {ReadKeys: []string{"todo/"}}, {WriteKeys: []string{"todo/"}}} {
		o.Rights = capability.Read | capability.Append
		_, seg := capnp.NewSingleSegmentMessage(nil)
		to, err := wire.NewRootAttenuation(seg)
		if err == nil {
			err = encodeAttenuation(to, o)
		}
		if refused := to.Rights() > 0xff; err != nil || refused != (o.ReadKeys != nil || o.WriteKeys != nil) || to.Rights()&^wire.KeyLimits != uint16(o.Rights) {
			t.Errorf("%+v: rights %#x, %v", o, to.Rights(), err)
		}
	}
}
