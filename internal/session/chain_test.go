package session_test

// The hashes that are kept or compared far away: they stay what they were.

import (
	"encoding/hex"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Chains that are stored must verify for ever: every field, in this order.
func TestChainStaysWhatItWas(t *testing.T) {
	t.Parallel()
	e := &session.Event{Session: "ses_x", Cursor: 7, Method: "put", Key: "message/a", Schema: 3, Sum: session.SumOf([]byte("x")), Ref: "r",
		Actor: "ann", Outbox: "o", Op: "p", Batch: "b", At: 99}
	sum := session.HashEvent(session.SumOf([]byte("before")), e)
	const want = "c33e8739b3719218b4af075f979528de524fa9da22451fc90b08e327c93e92a3"
	if got := hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the hash is %s, it was %s", got, want)
	}
}

// Clients compare it with what another version of the server says: every field, in
// this order. It was computed by another program from the description alone.
func TestStateHashStaysWhatItWas(t *testing.T) {
	t.Parallel()
	const want = "220052f291ba37e1250ea8000dc285601e88e52af6e1805d8cdcaae71a77f955"
	state := func(change func(f *session.Fold, e *session.Entry, turn *session.Turn)) string {
		f := &session.Fold{Cursor: 41, Epoch: 3, Life: session.Live}
		entries := []*session.Entry{{Key: "message/m", Cursor: 7, Schema: 2, Payload: []byte(`{"a":1}`)}, {Key: "part/m/p", Cursor: 9, Schema: 1, Payload: []byte(`{"text":"é"}`)}}
		turns := []*session.Turn{{Message: "m", Status: session.Completed, Begun: 7, Ended: 40}}
		change(f, entries[1], turns[0])
		return session.StateHash(f.Cursor, f.Epoch, f.Life, entries, turns).String()
	}
	for name, change := range map[string]func(f *session.Fold, e *session.Entry, turn *session.Turn){
		"as it is": func(*session.Fold, *session.Entry, *session.Turn) {},
		"what is not in it": func(f *session.Fold, e *session.Entry, turn *session.Turn) {
			f.Session, e.Session, turn.Session, turn.Outbox, turn.Lease, e.Sum, e.TextLen, e.LastAppend = "x", "x", "x", "x", 1, session.Hash{1}, 1, 1
		},
		"cursor":  func(f *session.Fold, _ *session.Entry, _ *session.Turn) { f.Cursor++ },
		"epoch":   func(f *session.Fold, _ *session.Entry, _ *session.Turn) { f.Epoch++ },
		"life":    func(f *session.Fold, _ *session.Entry, _ *session.Turn) { f.Life++ },
		"key":     func(_ *session.Fold, e *session.Entry, _ *session.Turn) { e.Key += "x" },
		"payload": func(_ *session.Fold, e *session.Entry, _ *session.Turn) { e.Payload = nil },
		"turn":    func(_ *session.Fold, _ *session.Entry, turn *session.Turn) { turn.Status = session.Failed },
	} {
		if got := state(change); (got == want) != (name == "as it is" || name == "what is not in it") {
			t.Errorf("%s: the hash is %s, it was %s", name, got, want)
		}
	}
}
