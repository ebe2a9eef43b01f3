package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/ledger"
)

// FuzzTextLen holds how long a text is found to be to what is there once it is
// read, which is what deltas are appended to.
func FuzzTextLen(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"text":""}`, `{"text":"plain"}`, `{"text":"a\nb\t\"c\"\\"}`, `{"text":"\\u0041"}`, `{"text":"\u0041\n"}`, `{"text":"\ud83d\ude00"}`,
		`{"text":"\ud83d"}`, `{"text":"\ud83d\u0041"}`, `{"text":"\ud800\ud800"}`, `{"text":"\ud800\u0001b"}`, `{"text":"é"}`, `{"text":null}`, `{"text":1}`, `{"text":{"text":"a"}}`, `{"text":["a"]}`,
		` { "a" : "text" , "text" : "b" } `, `{"text":"first","text":"2nd"}`, `{"text":"a","text":1}`, `{"a":{"text":"no"}}`, `{"\u0074ext":"b"}`, `{"text":`, `{"text":"`, `{"text":"\`, `{"text":"\\`, ``, `[]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = slices.Clip(payload) // nothing is read behind its end
		got := TextLen(payload)        // of anything, without a panic
		if !ledger.IsJSON(payload) || !utf8.Valid(payload) || !rawjson.IsObject(payload) {
			return
		}
		var text any = ""
		var members map[string]json.RawMessage
		if err := json.Unmarshal(payload, &members); err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		if raw, found := members["text"]; found {
			if err := json.Unmarshal(raw, &text); err != nil {
				t.Fatal(err)
			}
		}
		want := NoText
		if s, ok := text.(string); ok {
			want = uint64(len(s))
		}
		if got != want {
			t.Fatalf("%q: %d, not %d", payload, got, want)
		}
	})
}

func BenchmarkTextLen(b *testing.B) {
	for name, prose := range map[string]string{"plain": "some prose, ", "lines": `some prose\n`} {
		payload := []byte(`{"id":"prt_00000001","messageID":"msg_00000000","type":"text","text":"` + strings.Repeat(prose, 20) + `"}`)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				TextLen(payload)
			}
		})
	}
}
