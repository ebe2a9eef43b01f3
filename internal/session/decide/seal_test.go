package decide_test

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// A sealed ref is bound to its key by the share op; what it shares is sealed as
// well, to whatever key; and an id never says otherwise than the row.
func TestShareSealed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	key := bytes.Repeat([]byte{9}, 32)
	text := capability.SealKeyText(key)
	newSealed := func() string { return capability.DeriveSealedID(o.session, capability.NewSecret()) }
	share := func(id string, args ...any) anOp {
		return op("share", append([]any{"ref", id, "hash", hashText(sha256.Sum256([]byte(id))), "rights", []string{"read", "share"}}, args...)...)
	}
	plain, _ := newRef(o.session)
	o.refuse(ledger.Rejected, fault.BadArgument, share(plain, "seal", text))
	o.refuse(ledger.Rejected, fault.BadArgument, share(newSealed()))
	o.refuse(ledger.Rejected, fault.BadArgument, share(newSealed(), "seal", text[1:]))
	o.refuse(ledger.Rejected, fault.BadArgument, share(newSealed(), "seal", ""))
	o.refuse(ledger.Rejected, fault.BadArgument, share(newSealed(), "seal", 7))

	id := newSealed()
	o.apply(share(id, "seal", text))
	if g := w.store.Grant(id); !bytes.Equal(g.Seal, key) {
		t.Errorf("bound to %x", g.Seal)
	}
	if ev := o.last(); !strings.Contains(string(ev.Payload), `"seal":"`+text+`"`) {
		t.Errorf("event %s", ev.Payload)
	}
	o.apply(share(plain))
	if ev := o.last(); strings.Contains(string(ev.Payload), "seal") {
		t.Errorf("event of an unsealed ref: %s", ev.Payload)
	}

	s := o.under(id)
	below, _ := newRef(o.session)
	s.refuse(ledger.Rejected, fault.Widening, share(below))
	s.apply(share(newSealed(), "seal", capability.SealKeyText(bytes.Repeat([]byte{8}, 32))))
}
