package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/ledger"
)

// FuzzTextLen holds how long a text is found to be to what is there once it is
// read, which is what deltas are appended to.
func FuzzTextLen(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"text":""}`, `{"text":"plain"}`, `{"text":"a\nb\t\"c\"\\"}`, `{"text":"\\u0041"}`, `{"text":"\u0041\n"}`, `{"text":"\ud83d\ude00"}`,
		`{"text":"\ud83d"}`, `{"text":"\ud83d\u0041"}`, `{"text":"\ud800\ud800"}`, `{"text":"\ud800\u0001b"}`, `{"text":"é"}`, `{"text":null}`, `{"text":1}`, `{"text":{"text":"a"}}`, `{"text":["a"]}`,
		` { "a" : "text" , "text" : "b" } `, `{"a":{"text":"no"}}`, `{"\u0074ext":"b"}`, `{"text":`, `{"text":"`, `{"text":"\`, `{"text":"\\`, ``, `[]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = slices.Clip(payload) // nothing is read behind its end
		got := textLen(payload)        // of anything, without a panic
		if !ledger.IsJSON(payload) || !utf8.Valid(payload) || !isObject(payload) {
			return
		}
		want := NoText
		switch v := gjson.GetBytes(payload, "text"); {
		case !v.Exists():
			want = 0
		case v.Type == gjson.String:
			var text string
			if err := json.Unmarshal([]byte(v.Raw), &text); err != nil {
				t.Fatal(err)
			}
			want = uint64(len(text))
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
				textLen(payload)
			}
		})
	}
}
