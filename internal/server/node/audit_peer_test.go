//go:build unix

// Whence audited acts came.

package node

import (
	"fmt"
	"net"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// Strangers are counted by the address they come from.
func TestStrangersAreCountedByAddress(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	m := r.create(r.dial())
	for i, address := range []string{"192.0.2.1:1", "192.0.2.1:2", "[2001:db8::1]:3"} {
		p := r.peerNamed(t, address)
		for range i + 1 {
			wantCode(t, "a stranger", p.restoreErr(m.owner.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
		}
	}
	r.stop()
	counts := map[string]uint32{}
	for _, row := range auditOf(t, st, m.id) {
		if row.Act == capability.AuditStranger {
			counts[row.Peer] += row.Count
		}
	}
	if fmt.Sprint(counts) != "map[192.0.2.1:3 2001:db8::1:3]" {
		t.Errorf("strangers: %v", counts)
	}
}

// Every row says whence it came: over a byte stream on TCP, and over a Unix socket.
func TestRowsHaveTheirPeer(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for want, ln := range map[string]net.Listener{"127.0.0.1": tcp, "unix": unixSocket(t)} {
		st := sqliteStore(t)
		r := startOn(t, st, nil, ln)
		c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, rpc.NewStreamTransport(c))
		m := r.create(p)
		ref := p.share(m, "rights", []string{"read"})
		sess := p.restore(m.owner)
		saved, _, err := call(t, sess, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
		if err != nil || !saved.IsValid() {
			t.Fatal(err)
		}
		for _, epoch := range []bool{false, true} {
			if _, _, err := call(t, sess, methods.SessionRevoke.Method, methods.SessionRevoke.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
				wire.Session_revoke_Params(s).SetEpoch(epoch)
				return wire.Session_revoke_Params(s).SetRef(ref.ID)
			}); err != nil {
				t.Fatal(err)
			}
		}
		_, _, _ = call(t, p.restore(ref), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
		wantCode(t, "a stranger", p.restoreErr(m.owner.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
		r.stop()
		acts := map[capability.AuditAct]bool{}
		for _, row := range auditOf(t, st, m.id) {
			acts[row.Act] = true
			if row.Peer != want {
				t.Errorf("%s from %q, want %q", row.Act, row.Peer, want)
			}
		}
		for act := capability.AuditRedeem; act <= capability.AuditUse; act++ {
			if !acts[act] {
				t.Errorf("over %s no %s is audited", want, act)
			}
		}
	}
}
