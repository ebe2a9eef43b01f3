// Outcomes that no op of a present server has.

package client_test

import (
	"errors"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

func TestOutcomesOfUnknownStatus(t *testing.T) {
	t.Parallel()
	for _, status := range []client.OutcomeStatus{"", "unknown", "of_a_later_version"} {
		err := (&client.Outcome{OpID: "op", Status: status}).Err()
		if fault.CodeOf(err) != fault.Incompatible || errors.Is(err, fault.None) {
			t.Errorf("status %q is the error %v", status, err)
		}
		if got := (&client.Outcome{Status: status, Reason: fault.TooLarge}).Err(); !errors.Is(got, fault.TooLarge) {
			t.Errorf("status %q with a reason is the error %v", status, got)
		}
	}
}
