// What is audited is stored by number: the numbers stay.

package capability_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

func TestAuditActsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"unknown", "redeem", "share", "save", "revoke", "bump", "denial", "stranger",
		"use", "expiry", "rotate", "delete", "purge", "unknown"} {
		if got := capability.AuditAct(i).String(); got != want {
			t.Errorf("act %d is %s, it was %s", i, got, want)
		}
	}
}
