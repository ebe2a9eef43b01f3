package fault_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// A reason comes from a peer. What can be read of one is what Reason writes, so
// that an error goes through any number of hands as it is.
func FuzzParseReason(f *testing.F) {
	for _, code := range []fault.Code{fault.Revoked, fault.Internal, fault.WrongOffset} {
		f.Add(code.With("the ref was revoked at cursor %d: ask", 7).Reason())
		f.Add(code.With("").Pos(7).Reason())
	}
	for _, text := range []string{"", ": ", "@", "revoked", "revoked@", "revoked@-1", "revoked@99999999999999999999: x", "none: x", "no_such_code: x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, ok := fault.ParseReason(text)
		if !ok {
			if e != nil {
				t.Errorf("%q is no reason, and gave %+v", text, e)
			}
			return
		}
		if e.Code == fault.None {
			t.Errorf("%q gave an error of no code", text)
		}
		again, ok := fault.ParseReason(e.Reason())
		if !ok || again.Code != e.Code || again.At != e.At || again.Message != e.Message {
			t.Errorf("%q gave %+v, and by its own reason %+v", text, e, again)
		}
	})
}
