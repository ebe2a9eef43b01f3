// What a stream is opened with: the refs, and what is asked of the server for them.

package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// recording serves streams and what leads to them, and writes down what it is asked for.
// A restore of the ref with the id held waits for wait.
type recording struct {
	held string
	wait chan struct{}

	mu       sync.Mutex
	lines    []string
	features []string // that hello names
}

func (o *recording) Serve(call *rpc.Call) {
	for _, m := range []methods.Method{methods.GatewayHello, methods.GatewayRestore, methods.SpaceCreate, methods.SessionOpenStream, methods.StreamApply} {
		if got := call.Method(); m.Interface == got.Interface && m.ID == got.ID {
			o.serve(call, m.Name)
			return
		}
	}
	call.Fail(rpc.Unimplementedf("not in this test"))
}

func (o *recording) serve(call *rpc.Call, line string) {
	give := func(context.Context) {
		call.Return(structSize(2, 4), func(s capnp.Struct, caps *rpc.CapTable) error {
			if line == methods.GatewayHello.Name {
				wire.Gateway_hello_Results(s).SetVersion(1)
				o.mu.Lock()
				defer o.mu.Unlock()
				return calls.SetTexts(wire.Gateway_hello_Results(s).NewFeatures, o.features)
			}
			live := rpc.NewLocal(o)
			defer live.Release()
			return caps.Set(s, 0, live)
		})
	}
	params, _ := call.Params()
	id := ""
	if line == methods.GatewayRestore.Name {
		p := wire.Gateway_restore_Params(params)
		ref, _ := p.Ref()
		id, _ = ref.Id()
		redemption, _ := p.Redemption()
		line += " of " + redemption
	}
	o.mu.Lock()
	o.lines = append(o.lines, line)
	o.mu.Unlock()
	if id != "" && id == o.held {
		call.Go(func(ctx context.Context) { <-o.wait; give(ctx) })
	} else {
		give(nil)
	}
}

// TestOpeningRequest: each ref is redeemed as what it is. Those that batches
// refer to are there before the stream is, and no server is shown another one's. When the
// stream is over, nothing is held for it.
func TestOpeningRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, owner, source := testAddress().New(testSpace), testAddress().New(testSession), testAddress().New(testSession)
		elsewhere := capability.Ref{Hosts: []string{"127.0.0.2:2"}}.New(testSession)
		record := &recording{held: source.ID, wait: make(chan struct{})}
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": record}.dial})
		opened := make(chan outbox.Stream, 1)
		go func() {
			s, err := link{c}.OpenStream(t.Context(), outbox.StreamRequest{
				Session: testSession, Ref: owner, SpaceRef: &space, OwnerRef: owner.ID, LiveRefs: []capability.Ref{elsewhere, source},
				Redemptions: map[string]string{space.ID: "the space", owner.ID: "the owner", source.ID: "the source", elsewhere.ID: "another's"},
				Outbox:      "obx_1", Secret: capability.NewSecret(), Incarnation: 1,
			})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
		check := func(want ...string) {
			t.Helper()
			synctest.Wait()
			record.mu.Lock()
			defer record.mu.Unlock()
			slices.Sort(record.lines) // what does not wait for another may come before it
			if !slices.Equal(record.lines, want) {
				t.Errorf("the server was asked for %q", record.lines)
			}
		}
		check("Gateway.hello", "Gateway.restore of the source", "Gateway.restore of the space", "Space.create")
		close(record.wait)
		check("Gateway.hello", "Gateway.restore of the source", "Gateway.restore of the space", "Session.openStream", "Space.create")
		s := <-opened
		s.Close()
		<-s.Done()
		c.ReleaseCached()
		synctest.Wait()
		if st := c.ConnStats()[0]; st.Imports != 1 || st.Questions != 0 { // the bootstrap object stays
			t.Errorf("%d capabilities of the server are held, and %d questions", st.Imports, st.Questions)
		}
		_ = c.Close()
	})
}
