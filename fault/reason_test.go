package fault

import "testing"

func TestReasonReadsBack(t *testing.T) {
	for _, e := range []*Error{
		Revoked.With("the ref was revoked: ask its owner for another"),
		CursorExpired.With("the log starts at 42").Pos(42),
		{Code: Draining},
		{Code: Gap, At: 7},
		{Code: Denied, Message: "no", Batch: "01B"},
	} {
		got, ok := ParseReason(e.Reason())
		if !ok || got.Code != e.Code || got.Message != e.Message || got.At != e.At {
			t.Errorf("%q reads back as %+v, %v", e.Reason(), got, ok)
		}
		if e.Batch != "" && (got.Batch != "" || e.Error() != "denied: no (batch 01B)") {
			t.Errorf("%v is sent as %q", e, e.Reason())
		}
	}
}

func TestOtherTextIsNoReason(t *testing.T) {
	for _, text := range []string{"", "none", "internal error", "internal error: the log says why at incident 4QZ7XWJ2M6KD", "method 7 is unknown", "gap@x: y", "gap@-1", ": x"} {
		if e, ok := ParseReason(text); ok {
			t.Errorf("%q reads as %+v", text, e)
		}
	}
}
