package ledger

// JSON text is what encoding/json says it is, and so are its members.

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var jsonTexts = []string{
	``, ` `, `{}`, `[]`, ` { } `, ` [ ] `, `{`, `[`, `}`, `]`, `{]`, `[}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`,
	`{"a":1}`, `{"a":{"b":[1,{"c":null}]}}`, `{"a" : 1 , "b" : [ true , false ] }`, "\t\r\n[1]\n", `{"a":1}x`, `[1][2]`, `{1:2}`, `{"a":1 "b":2}`,
	`true`, `false`, `null`, `tru`, `truex`, `nulls`, `nul`, `"`, `"a`, `"a"`, `"\`, `"\"`, `"\""`, `"\u00e9"`, `"\u00g9"`, `"\u00"`, `"\x"`, `"\ud800"`,
	"\"a\nb\"", "\"a\x00b\"", "\"\xff\"", "\"\x7f\"", `"\/\b\f\n\r\t\\"`,
	`0`, `-0`, `-`, `+1`, `01`, `1.`, `.5`, `1.5`, `1e`, `1e+`, `1e5`, `1E-5`, `1.0e+10`, `-1.5`, `1-`, `--1`, `1e5.5`, `0x1`, `1,`,
	"\ufeff{}", "\v{}", `[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]`,
}

func TestIsJSONAsEncodingJSON(t *testing.T) {
	t.Parallel()
	texts := append([]string(nil), jsonTexts...)
	for _, n := range []int{maxNesting - 1, maxNesting, maxNesting + 1} {
		texts = append(texts, strings.Repeat("[", n)+strings.Repeat("]", n), strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n))
	}
	for c := range 256 { // any byte, anywhere in a string, in a short one, and in an escape
		for i := range 20 {
			texts = append(texts, `"`+strings.Repeat("x", i)+string([]byte{byte(c)})+strings.Repeat("x", 19-i)+`"`)
		}
		for i := range 4 {
			texts = append(texts, `"\u`+"0000"[:i]+string([]byte{byte(c)})+"0000"[i+1:]+`"`)
		}
		texts = append(texts, `"`+string([]byte{byte(c)})+`"`)
	}
	for _, text := range texts {
		if got, want := IsJSON([]byte(text)), json.Valid([]byte(text)); got != want {
			t.Errorf("%.60q: %v, encoding/json says %v", text, got, want)
		}
		for i := range min(len(text), 80) { // cut off anywhere
			if got, want := IsJSON([]byte(text[:i])), json.Valid([]byte(text[:i])); got != want {
				t.Errorf("%q: %v, encoding/json says %v", text[:i], got, want)
			}
		}
	}
}

func FuzzIsJSON(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if got, want := IsJSON(text), json.Valid(text); got != want {
			t.Fatalf("%q: %v, encoding/json says %v", text, got, want)
		}
	})
}

var objects = []string{
	`{}`, ` { } `, `[]`, `"text"`, ``, `{"text":1}`, "\n{ \"text\" : 1 , \"a\" : 2 }\t", `{"a":{"text":1},"b":["text",{"text":2}],"text" : [ 3 , "}" ] }`,
	`{"text":"a\"b","text":"second"}`, `{"te\u0078t":"named in another way"}`, `{"te\\xt":1,"text":2}`, `{"tex":1,"texts":2,"ext":3,"":4}`,
	`{"a":"}","b":"\\","c":"\"text\":1","text":null}`, `{"a":-1.5e3,"b":true,"text":{"x":{}}}`, `{"text":""}`, `{"a":"","text":[]}`,
	`{"a":"\\","text":1}`, `{"a":"\\\"","text":1}`, `{"a":"\\\\","text":1}`, `{"a":"\\\\\"","text":1}`,
	`{"text":`, `{"text":"`, `{"text":"\`, `{"text":"cut o`, `{"text":{"a":["`, `{"a":"`, `{"text`, `{"text":1`,
}

// FuzzMember holds what Member finds to what encoding/json does.
func FuzzMember(f *testing.F) {
	for _, text := range append(objects, jsonTexts...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = slices.Clip(b)              // nothing is read behind its end
		got, found := Member(b, "text") // of anything, without a panic
		if !IsJSON(b) || !utf8.Valid(b) {
			return
		}
		var all map[string]json.RawMessage
		_ = json.Unmarshal(b, &all) // of what is no object there are none
		want, there := all["text"]
		if found != there || string(got) != string(want) {
			t.Fatalf("%q: %q, %v; encoding/json finds %q, %v", b, got, found, want, there)
		}
	})
}

// FuzzResolve looks for paths in anything: what is found is JSON text.
func FuzzResolve(f *testing.F) {
	for _, text := range append(objects, jsonTexts...) {
		f.Add([]byte(text), "text")
		f.Add([]byte(text), "a.b.1")
		f.Add([]byte(text), ".")
	}
	f.Fuzz(func(t *testing.T, b []byte, path string) {
		got, found := Resolve(b, path)
		if !IsJSON(b) || !utf8.Valid(b) {
			return
		}
		if found && !IsJSON(got) {
			t.Fatalf("%q at %q is %q", b, path, got)
		}
	})
}

func BenchmarkIsJSON(b *testing.B) {
	text := []byte(`{"id":"prt_00000001","messageID":"msg_00000000","type":"text","text":"` + strings.Repeat("some prose, ", 20) + `"}`)
	b.Run("ours", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if !IsJSON(text) {
				b.Fatal("no")
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if !json.Valid(text) {
				b.Fatal("no")
			}
		}
	})
}
