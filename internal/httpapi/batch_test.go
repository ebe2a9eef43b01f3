//go:build unix

package httpapi

import (
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// What is read has the digests of what was written, however its arguments are spelt.
func TestDigestsAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b, session := newBox(), capability.SessionPrefix+ulid.Make().String()
		want := anyBatch(rt, b, session, []string{ulid.Make().String()})
		text := b.jsonWith(want, func(ledger.Arg) bool { return rapid.Bool().Draw(rt, "inline") })
		var got sentBatch
		if !ledger.IsJSON(text) {
			rt.Fatalf("no JSON: %s", text)
		}
		if refused := parseBatch(nil, gjson.ParseBytes(text), &got); refused != nil {
			rt.Fatalf("%v: %s", refused, text)
		}
		for i := range want.Ops {
			g, w := got.batch.Ops[i], want.Ops[i]
			g.Session, w.Session, g.BatchID, w.BatchID = "", "", "", ""
			if g.Digest() != w.Digest() {
				rt.Fatalf("%+v\nwas\n%+v\nin %s", g, w, text)
			}
		}
	})
}
