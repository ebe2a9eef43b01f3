// What hello tells: a version, and limits that Commit keeps to.

package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// helloServer answers hello and nothing else.
type helloServer struct {
	version uint32
	payload uint64
}

func (h *helloServer) Serve(call *rpc.Call) {
	if call.Method().ID != methods.GatewayHello.ID {
		return // never answered
	}
	call.Return(capnp.ObjectSize{DataSize: 16, PointerCount: 2}, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Gateway_hello_Results(s)
		r.SetVersion(h.version)
		l, err := r.NewLimits()
		if err != nil {
			return err
		}
		l.SetPayloadBytes(h.payload)
		return nil
	})
}

func (h *helloServer) dial(ctx context.Context, _ string) (rpc.Transport, error) {
	near, far := rpc.Pipe()
	conn := rpc.NewConn(far, rpc.Config{Bootstrap: h})
	go func() { _ = conn.Run(context.WithoutCancel(ctx)) }() // ends with the client's side
	return near, nil
}

func TestAnotherVersionIsToldAsSuch(t *testing.T) {
	t.Parallel()
	c := linkClient(t, Config{dial: (&helloServer{version: 99}).dial, RetryTimeout: -1})
	s := &Session{client: c, id: testSession, saved: outbox.SavedRef{Ref: testAddress().New(testSession)}}
	if _, err := s.Describe(t.Context()); !errors.Is(err, fault.Incompatible) {
		t.Errorf("a server of another version: %v", err)
	}
}

func TestCommitKeepsToTheServersLimits(t *testing.T) {
	t.Parallel()
	c := linkClient(t, Config{dial: (&helloServer{version: 1, payload: 10}).dial})
	ref := testAddress().New(testSession)
	if got := c.limitsFor(ref).PayloadBytes; got != 4<<20 {
		t.Errorf("before anything is known a payload may have %d bytes", got)
	}
	srv, err := c.serverFor(ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := srv.Peer(t.Context()); err != nil {
		t.Fatal(err)
	}
	lim := c.limitsFor(ref)
	for deadline := time.Now().Add(time.Minute); lim.PayloadBytes != 10 && time.Now().Before(deadline); runtime.Gosched() {
		lim = c.limitsFor(ref) // hello is answered when it is
	}
	if lim.PayloadBytes != 10 || lim.BatchOps != 1000 {
		t.Fatalf("limits %+v", lim)
	}
	s := &Session{client: c, id: testSession, saved: outbox.SavedRef{Ref: ref}}
	b := s.Batch()
	b.Put("session", map[string]string{"title": "too long for it"})
	if _, err := b.Commit(t.Context()); !errors.Is(err, fault.TooLarge) {
		t.Errorf("a payload beyond the server's limit: %v", err)
	}
}
