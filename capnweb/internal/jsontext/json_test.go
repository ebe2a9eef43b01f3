// JSON text, held against encoding/json.

package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// oracle reads data with encoding/json.
func oracle(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // its own numbers are errors beyond float64
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() || len(bytes.Trim(data[d.InputOffset():], " \t\r\n")) > 0 {
		return nil, errors.New("more than one value")
	}
	return floats(v), nil
}

func floats(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = floats(v[k])
		}
	}
	return v
}

var jsonTexts = []string{
	`null`, `true`, `false`, ` true `, `tru`, `trues`, `nul`, `True`, ``, ` `, "\ufeff1", "\v1", "1\v",
	`0`, `-0`, `1`, `-1`, `01`, `-01`, `-`, `+1`, `.5`, `5.`, `5.e1`, `1.5`, `-1.25e-3`, `1e5`, `1E+5`, `1e`, `1e+`, `1e05`,
	`1023`, `1024`, `123456789012345`, `1234567890123456`, `9007199254740993`, `1e400`, `-1e400`, `1e-400`, `0x10`, `1_000`,
	`NaN`, `Infinity`, `-Infinity`, `--1`, `1 2`, `1,2`,
	`""`, `"a"`, `"a`, `"`, `'a'`, `"é€😀"`, `"\u00e9\u20AC\ud83d\ude00"`, `"\"\\\/\b\f\n\r\t"`, `"\a"`, `"\`, `"\u"`,
	`"\u12"`, `"\u12g4"`, `"\ud83d"`, `"\ude00"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\ud83d\ud83d\ude00"`,
	`"\ud83d\u"`, `"\ud83d\u12"`, "\"\x00\"", "\"\x1f\"", "\"\n\"", "\"\x7f\"", "\"\u2028\"", `"12345678901234567890123456789"`,
	`"1234567\n8901234567890123456789012345"`, `"12345678"`, `"1234567"`, `"123456789`, "\"1234567\x00\"",
	`[]`, `[ ]`, `[1]`, `[1,2]`, `[1,]`, `[,1]`, `[1 2]`, `[`, `[1`, `[1,`, `]`, `[[]]`, `[[],[[]],{}]`, `[1]]`, ` [ 1 , [ 2 ] ] `,
	`[1,2,3,4,5,6,7,8,9,10,11,12]`,
	`{}`, `{ }`, `{"a":1}`, `{"a":1,"b":[2]}`, `{"a":1,"a":2}`, `{"a":{"a":1},"a":{"b":2}}`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a":}`,
	`{a:1}`, `{"a":1`, `{"a" : 1 , "b" : 2}`, `{1:2}`, `{"":0}`, `{"a":1}}`, `{"\u0061":1,"a":2}`, `{"__proto__":1}`,
	`["push",["pipeline",0,["square"],[7]]]`, `["resolve",1,{"a":[[1,2,3]],"b":"text"}]`, "[1,\n2]\r\n", `[1]//`, `/**/1`,
}

func checkParse(t *testing.T, data []byte) {
	t.Helper()
	before := bytes.Clone(data)
	v, err := Parse(data, 9000) // encoding/json goes 10,000 deep
	if !utf8.Valid(data) {
		if err == nil {
			t.Fatalf("took %q, which is no UTF-8", data)
		}
		return
	}
	want, wantErr := oracle(data)
	if (err == nil) != (wantErr == nil) && !errors.Is(err, ErrTooDeep) {
		t.Fatalf("%q: %v; encoding/json says: %v", data, err, wantErr)
	}
	if err != nil {
		return
	}
	for i := range data {
		data[i] = 'x' // nothing may refer to it
	}
	if !reflect.DeepEqual(v, want) {
		t.Fatalf("%q: got %#v; encoding/json says %#v", before, v, want)
	}
	again, err := Parse(Append(nil, v), 9000)
	if err == nil && !hasInf(v) && !reflect.DeepEqual(again, v) {
		t.Fatalf("%q: written and read again it is %#v", before, again)
	}
	if err != nil {
		t.Fatalf("%q: written it cannot be read: %v", before, err)
	}
}

func hasInf(v any) bool {
	switch v := v.(type) {
	case float64:
		return math.IsInf(v, 0)
	case []any:
		for _, e := range v {
			if hasInf(e) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if hasInf(e) {
				return true
			}
		}
	}
	return false
}

func TestParse(t *testing.T) {
	for _, text := range jsonTexts {
		checkParse(t, []byte(text))
	}
	for _, text := range []string{"\"\xff\"", "\"\xed\xa0\x80\"", "\xff", "\"\xc3\""} {
		if _, err := Parse([]byte(text), 8); err == nil || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParseValues(t *testing.T) {
	for text, want := range map[string]any{
		`"\ud83d"`: "\ufffd", `"\ude00\ud83dx"`: "\ufffd\ufffdx", `"\ud83d\ud83d\ude00"`: "\ufffd😀",
		`1e400`: math.Inf(1), `-1e400`: math.Inf(-1), `{"a":1,"a":2}`: map[string]any{"a": 2.0},
		`{"a":{"b":1},"a":{"c":1}}`: map[string]any{"a": map[string]any{"c": 1.0}},
	} {
		if v, err := Parse([]byte(text), 8); err != nil || !reflect.DeepEqual(v, want) {
			t.Errorf("%s: %#v, %v", text, v, err)
		}
	}
	if v, _ := Parse([]byte("-0"), 8); !math.Signbit(v.(float64)) {
		t.Error("-0 lost its sign")
	}
}

func TestParseDepth(t *testing.T) {
	for text, depth := range map[string]int{`1`: 0, `[]`: 1, `{}`: 1, `[[1],[[2]]]`: 3, `{"a":[{"b":[]}]}`: 4, `[[],[],[]]`: 2} {
		if _, err := Parse([]byte(text), depth); err != nil {
			t.Errorf("%s at %d: %v", text, depth, err)
		}
		if _, err := Parse([]byte(text), depth-1); depth > 0 && !errors.Is(err, ErrTooDeep) {
			t.Errorf("%s at %d: %v", text, depth-1, err)
		}
	}
	for _, open := range []string{"[", `{"a":`} {
		if _, err := Parse(bytes.Repeat([]byte(open), 1<<20), 256); !errors.Is(err, ErrTooDeep) {
			t.Errorf("a million of %s: %v", open, err)
		}
	}
}

func TestParseErrorsTellNothing(t *testing.T) {
	for _, text := range []string{`["secret"`, `["secret" secret]`, `{"secret":secret}`, `"secret` + "\x00", `"\secret"`} {
		if _, err := Parse([]byte(text), 8); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What parsers remember of one message must not show in the next.
func TestParseAgain(t *testing.T) {
	for range 3 {
		for _, text := range jsonTexts {
			checkParse(t, []byte(text))
			checkParse(t, []byte("["+text+`,"push",`+text+"]"))
		}
	}
}

func TestAppendString(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "a/b<&>": `"a/b<&>"`, "\"\\\b\f\n\r\t": `"\"\\\b\f\n\r\t"`, "\x00\x1f\x7f": `"\u0000\u001f` + "\x7f\"",
		"é€😀\u2028": "\"é€😀\u2028\"", "a\xffb\xed\xa0\x80": "\"a\ufffdb\ufffd\ufffd\ufffd\"", "\ufffd": "\"\ufffd\"",
	} {
		if got := string(AppendString(nil, in)); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestAppendNumber(t *testing.T) {
	for want, f := range map[string]float64{
		"0": math.Copysign(0, -1), "1": 1, "-1": -1, "1.5": 1.5, "100000000000000000000": 1e20, "1e+21": 1e21, "-1e+21": -1e21,
		"1.5e+300": 1.5e300, "0.000001": 1e-6, "1e-7": 1e-7, "1.25e-10": 1.25e-10, "5e-324": 5e-324, "1e-100": 1e-100,
		"1.7976931348623157e+308": math.MaxFloat64, "9007199254740993000": 9007199254740993e3, "0.1": 0.1,
		"1000000000000000": 1e15, "-999999999999999": -999999999999999, "123456789.125": 123456789.125, "null": math.NaN(),
		"9007199254740992": 1 << 53,
	} {
		if got := string(AppendNumber([]byte("e-07"), f)); got != "e-07"+want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data) })
}

// FuzzAppend writes any text and number and reads them with encoding/json.
func FuzzAppend(f *testing.F) {
	f.Add("a\"\\\n\x00é\xff", 1.5)
	f.Add("", 1e21)
	f.Fuzz(func(t *testing.T, s string, n float64) {
		var text string
		if err := json.Unmarshal(AppendString(nil, s), &text); err != nil || text != strings.ToValidUTF8(text, "") {
			t.Fatalf("%q: %q, %v", s, text, err)
		}
		if utf8.ValidString(s) && text != s {
			t.Fatalf("%q came as %q", s, text)
		}
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return
		}
		got, want := string(AppendNumber(nil, n)), "0"
		if n != 0 {
			b, _ := json.Marshal(n)
			want = string(b)
		}
		if got != want {
			t.Fatalf("%v: %s, want %s", n, got, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, text := range map[string]string{
		"push":    `["push",["pipeline",0,["square"],[71234]]]`,
		"resolve": `["resolve",1,{"session":"ses_01JDAAAAAAAAAAAAAAAAAAAAAA","cursor":41,"events":[[{"kind":"put","payload":"{\"a\":1}"}]]}]`,
		"large":   `["resolve",1,"` + strings.Repeat("lorem ipsum ", 8<<10) + `"]`,
	} {
		data := []byte(text)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encoding", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				var v any
				if err := json.Unmarshal(data, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A string of escapes is read once: it once took time in proportion to its square.
func TestDecodedBytesOfEscapes(t *testing.T) {
	for _, msg := range []string{
		`["` + strings.Repeat(`\n`, 2<<20) + `",[]]`, `["` + strings.Repeat(`\"`, 2<<20) + `",[]]`, `["` + strings.Repeat(`\\`, 2<<20) + `",[]]`,
		`["` + strings.Repeat(`\n`, 2<<20),
	} {
		from := time.Now()
		n := DecodedBytes([]byte(msg))
		if took := time.Since(from); took > 2*time.Second {
			t.Errorf("%.20s… of %d bytes took %v", msg, len(msg), took)
		}
		if strings.HasSuffix(msg, `",[]]`) && n != len(msg)+3*valueBytes {
			t.Errorf("%.20s… of %d bytes: %d", msg, len(msg), n)
		}
	}
}
