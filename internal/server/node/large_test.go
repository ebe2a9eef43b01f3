//go:build unix && !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package node

import (
	"fmt"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/oklog/ulid/v2"
)

func TestForkTakesALiveSourceAndIsDeliveredWhole(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), func(c *Config) { c.Session.Limits.ForkBytes = 0 }) // an event of any size
	p := r.dial()
	m := r.create(p)
	filler := strings.Repeat("x", 3<<20)
	for n := range 6 {
		ack := p.must(m.stream, m.batch(op("put", "key", fmt.Sprintf("message/msg_%d", n), "payload", map[string]string{"x": filler})))
		if ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
	}
	fork := &made{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
	fork.owner = r.owner.New(fork.id)
	fork.sess = p.restore(r.owner).Call(within(t), methods.SpaceCreate.Method, methods.SpaceCreate.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Space_create_Params(s)
		if err := params.SetSession(fork.id); err != nil {
			return err
		}
		return params.SetOwner(fork.owner.ID)
	}).Cap(0)
	fork.stream = p.open(fork.sess, fork.box)
	forking := func() ledger.Intent {
		return op("fork", "source", m.id, "via", m.owner.ID, "ref", fork.owner.ID, "hash", hashText(fork.owner.Secret))
	}
	ack := p.must(fork.stream, fork.batch(forking()))
	wantRecorded(t, "naming a source without holding it", ack.outcomes[0], ledger.Denied, ack.outcomes[0].Reason)
	ack = p.must(fork.stream, fork.batch(forking()), m.sess)
	wantRecorded(t, "an object of create stands on no secret", ack.outcomes[0], ledger.Denied, ack.outcomes[0].Reason)
	if ack = p.must(fork.stream, fork.batch(forking()), p.restore(m.owner)); ack.applied != 1 {
		t.Fatalf("fork: %+v", ack.outcomes)
	}
	k := newRecorder()
	defer p.subscribe(fork.sess, k, 0).Release()
	k.untilCursor(t, 1)
	if k.bytes < 6*len(filler) {
		t.Errorf("the fork's event came with %d bytes", k.bytes)
	}
}
