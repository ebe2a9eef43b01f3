// What a connection's capabilities are kept for, and how many.

package serverconn

import (
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// restoring restores every ref, and counts how often each was.
type restoring map[string]int

func (o restoring) Serve(call *rpc.Call) {
	params, _ := call.Params()
	ref, err := wire.Gateway_restore_Params(params).Ref()
	if err != nil {
		call.Fail(err)
		return
	}
	id, err := ref.Id()
	if err != nil {
		call.Fail(err)
		return
	}
	o[id]++
	call.Return(structSize(0, 1), func(s capnp.Struct, caps *rpc.CapTable) error {
		live := rpc.NewLocal(restoring{})
		defer live.Release()
		return caps.Set(s, 0, live)
	})
}

// TestRefsThatAreNotUsedAreLetGoOf: a program that lasts uses any number of refs over
// one connection. One that is used all the time is restored once.
func TestRefsThatAreNotUsedAreLetGoOf(t *testing.T) {
	t.Parallel()
	restored := restoring{}
	p, server := pairedPeer(t, restored, rpc.Config{})
	often := testAddress().New(testSession)
	for i := range 4 * maxLive {
		if i%(maxLive/2) == 0 {
			live := p.restore(t.Context(), often, "")
			answer := callRestore(t.Context(), live, often, "", capability.Proof{}) // any call will do
			if _, _, err := answer.Wait(t.Context()); err != nil {
				t.Fatalf("a ref in use: %v", err)
			}
			answer.Release()
			live.Release()
		}
		live, err := p.restoreAndWait(t.Context(), testAddress().New(testSession), "")
		if err != nil {
			t.Fatal(err)
		}
		live.Release()
	}
	until.True(t, "what is not used is let go of", func() bool { return server.Stats().Exports <= 2*maxLive+1 })
	p.release()
	until.True(t, "all is let go of", func() bool { return server.Stats().Exports == 0 })
	if n := restored[often.ID]; n != 1 {
		t.Errorf("a ref in use was restored %d times", n)
	}
}
