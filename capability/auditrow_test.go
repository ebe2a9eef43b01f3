// What is audited is stored by number: the numbers stay.

package capability_test

import (
	"encoding/hex"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

func TestAuditActsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"unknown", "redeem", "share", "save", "revoke", "bump", "denial", "stranger",
		"use", "expiry", "rotate", "delete", "purge", "manage", "webhook", "unhook", "unknown"} {
		if got := capability.AuditAct(i).String(); got != want {
			t.Errorf("act %d is %s, it was %s", i, got, want)
		}
	}
}

// Chains that are stored must verify for ever: every field, in this order.
func TestAuditChainStaysWhatItWas(t *testing.T) {
	t.Parallel()
	row := &capability.AuditRow{Target: "ses_x", Seq: 2, At: 99, Act: capability.AuditUse, Ref: "r", Actor: "ann", Subject: "put",
		Reason: 41, Op: "o", Cursor: 7, Count: 3, Peer: "::1"}
	sum := capability.HashAuditRow([32]byte{1}, row)
	const want = "882cea466a9618edadec3666fae562b4d1da0f9a11cd40c4dacd129b6409ab48"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the hash is %s, it was %s", got, want)
	}
}
