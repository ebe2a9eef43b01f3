package session_test

import (
	"encoding/hex"
	"testing"

	"github.com/mooring-rpc/mooring/session"
)

// Chains that are stored must verify for ever: every field, in this order.
func TestChainStaysWhatItWas(t *testing.T) {
	t.Parallel()
	e := &session.Event{Session: "ses_x", Cursor: 7, Method: "put", Key: "message/a", Schema: 3, Sum: session.SumOf([]byte("x")), Ref: "r",
		Actor: "ann", Outbox: "o", Op: "p", Batch: "b", At: 99}
	sum := session.Chain(session.SumOf([]byte("before")), e)
	const want = "c33e8739b3719218b4af075f979528de524fa9da22451fc90b08e327c93e92a3"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the hash is %s, it was %s", got, want)
	}
}
