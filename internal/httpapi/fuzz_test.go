//go:build unix

package httpapi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// FuzzBatchJSON reads any body as a batch. What is taken stands in the body, and
// reads the same when it is written again; what is refused is said briefly, in UTF-8.
func FuzzBatchJSON(f *testing.F) {
	b := newBox()
	in := op("put", "key", "message/m", "payload", obj{"a": []any{1, nil, "é"}})
	in.Expected, in.DependsOn = ledger.Expect{Set: true, Cursor: 3}, []string{ulid.Make().String()}
	in.Args = append(in.Args, ledger.Arg{Name: "x", Ref: &ledger.Ref{Op: in.DependsOn[0], Path: "cursor"}})
	good := b.json(b.batch(capability.SessionPrefix+ulid.Make().String(), in, op("remove", "key", "message/m")))
	f.Add([]byte(good))
	f.Add([]byte(strings.Replace(string(good), `"args":[`, `"args":{"a":{"b": 1e5 }},"x":[`, 1)))
	f.Add([]byte(`{"secret":"` + strings.Repeat("A", 43) + `","ops":[{"args":{"a":"\ud800","":null},"seq":"18446744073709551615","expected_cursor":{"op":"x"}}]}`))
	f.Add([]byte(b.jsonAll(asValues, b.batch("", in), b.batch("", op("remove", "key", "message/m")))))
	f.Fuzz(func(t *testing.T, body []byte) {
		if !utf8.Valid(body) || !ledger.IsJSON(body) {
			return
		}
		sent, list, several, refused := parseBatches(gjson.ParseBytes(body))
		if refused != nil && (refused.Code != fault.Malformed && refused.Code != fault.TooLarge || len(refused.Message) > 1000 || !utf8.ValidString(refused.Message)) {
			t.Fatalf("%v", refused)
		}
		var got sentBatch
		if refused := parseBatch(nil, gjson.ParseBytes(body), &got); refused != nil {
			if refused.Code != fault.Malformed && refused.Code != fault.TooLarge || len(refused.Message) > 1000 || !utf8.ValidString(refused.Message) {
				t.Fatalf("%v", refused)
			}
			return
		}
		if refused != nil || several || len(list) != 1 || sent.outbox != got.outbox || len(list[0].batch.Ops) != len(got.batch.Ops) {
			t.Fatalf("a batch is read as %d, %v", len(list), refused)
		}
		sender := &box{id: got.outbox, secret: got.secret}
		for i := range got.batch.Ops {
			op := &got.batch.Ops[i]
			if op.Expected.Ref != nil { // the writer has numbers alone
				return
			}
			for _, a := range op.Args {
				if a.Ref == nil && a.JSON == nil {
					t.Fatalf("argument %q has no value", a.Name)
				}
			}
		}
		for _, inline := range []bool{true, false} {
			text := sender.jsonWith(&got.batch, func(ledger.Arg) bool { return inline })
			var again sentBatch
			if refused := parseBatch(nil, gjson.ParseBytes(text), &again); refused != nil {
				t.Fatalf("%v: %s", refused, text)
			}
			for i := range got.batch.Ops {
				if again.batch.Ops[i].Digest() != got.batch.Ops[i].Digest() {
					t.Fatalf("%+v\nwas\n%+v", again.batch.Ops[i], got.batch.Ops[i])
				}
			}
		}
	})
}
