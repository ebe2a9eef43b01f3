// Received values into Go types, and Go values for sending.

package capnweb

import (
	"errors"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/convert"
	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
)

type (
	kind   string
	small  int8
	inner  struct{ X, Y int }
	Base   struct{ ID string }
	record struct {
		Base
		*Extra
		Name    string            `json:"name"`
		Count   uint16            `json:"count,omitempty"`
		Note    *string           `json:"note,omitempty"`
		List    []inner           `json:"list,omitempty"`
		Map     map[kind]int      `json:"map,omitempty"`
		When    time.Time         `json:"when,omitzero"`
		Any     any               `json:"any,omitempty"`
		Cb      *Stub             `json:"cb,omitempty"`
		Next    *record           `json:"next,omitempty"`
		Skipped string            `json:"-"`
		Labels  map[string]string `json:"labels"`
		hidden  int
	}
	Extra  struct{ More string }
	strict struct {
		_ struct{} `capnweb:"strict"`
		A int      `json:"a"`
	}
	tree  struct{ Children []tree }
	left  struct{ Same, L string }
	right struct{ Same, R string }
	both  struct {
		left
		right
	}
)

func ptr[T any](v T) *T { return &v }

func obj(kv ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	return m
}

func list(v ...any) []any { return append([]any{}, v...) }

var (
	aDate = time.UnixMilli(1234567890123).UTC()
	aStub = new(Stub)
	huge  = new(big.Int).Lsh(big.NewInt(1), 63)
)

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		v    any
		want any    // of the type to convert into
		err  string // or what is said
	}{
		{1.0, 1, ""}, {-1.0, small(-1), ""}, {127.0, small(127), ""}, {255.0, uint8(255), ""}, {1.5, 1.5, ""},
		{128.0, small(0), "want a whole number from -128 to 127, got another number"},
		{-1.0, uint(0), "want a whole number from 0 to 18446744073709551615, got another number"},
		{256.0, uint8(0), "want a whole number from 0 to 255, got another number"},
		{1.5, 0, "got a fraction"}, {math.NaN(), 0, "got NaN"}, {math.Inf(1), 0, "got another number"},
		{math.Inf(-1), uint64(0), "got another number"},
		{9007199254740992.0, int64(1 << 53), ""}, {math.Ldexp(1, 63), int64(0), "got another number"},
		{-math.Ldexp(1, 63), int64(math.MinInt64), ""}, {math.Ldexp(1, 63), uint64(1 << 63), ""},
		{math.Ldexp(1, 64), uint64(0), "got another number"}, {math.Copysign(0, -1), uint(0), ""},
		{big.NewInt(7), 7, ""}, {big.NewInt(200), small(0), "got another bigint"}, {huge, uint64(1 << 63), ""},
		{huge, int64(0), "got another bigint"}, {big.NewInt(-1), uint8(0), "got another bigint"},
		{big.NewInt(7), 7.0, "want a number, got a bigint"}, {"7", 7, "want a number, got a string"},
		{nil, 7, "want a number, got null"}, {Undefined{}, 7, "want a number, got undefined"},
		{0.1, float32(0.1), ""}, {1e300, float32(0), "want a number that fits 32 bits"}, {math.Inf(1), float32(math.Inf(1)), ""},
		{5.0, time.Duration(5), ""},
		{big.NewInt(7), big.NewInt(7), ""}, {1e20, new(big.Int).Exp(big.NewInt(10), big.NewInt(20), nil), ""},
		{0.5, big.NewInt(0), "got a fraction"}, {math.NaN(), big.NewInt(0), "got NaN"}, {"7", big.NewInt(0), "want a bigint"},
		{true, true, ""}, {1.0, false, "want a boolean, got a number"},
		{"a", "a", ""}, {"a", kind("a"), ""}, {1.0, "", "want a string, got a number"}, {URL("u"), "", "got a URL"},
		{URL("u"), URL("u"), ""}, {"u", URL("u"), ""}, {1.0, URL(""), "want a URL, got a number"},
		{[]byte("ab"), []byte("ab"), ""}, {Bytes{"ArrayBuffer", []byte("ab")}, []byte("ab"), ""},
		{"ab", []byte(nil), "want a Uint8Array, got a string"}, {[]byte("ab"), Bytes{"Uint8Array", []byte("ab")}, ""},
		{list(1.0), []byte(nil), "want a Uint8Array, got an array"},
		{aDate, aDate, ""}, {1.0, aDate, "want a Date, got a number"}, {aDate, "", "want a string, got a Date"},
		{aStub, aStub, ""}, {nil, aStub, "want a function or an object with methods, got null"},
		{aStub, ptr(aStub), ""}, {nil, (**Stub)(nil), ""}, {Undefined{}, (**Stub)(nil), ""},
		{&Error{Message: "m"}, &Error{Message: "m"}, ""}, {"m", &Error{}, "want an Error, got a string"},
		{Headers{{"a", "b"}}, Headers{{"a", "b"}}, ""}, {list(), Headers(nil), "want Headers, got an array"},
		{&Request{URL: "u"}, &Request{URL: "u"}, ""}, {&Blob{Type: "t"}, &Blob{Type: "t"}, ""},
		{Undefined{}, Undefined{}, ""}, {nil, Undefined{}, "want undefined, got null"},
		{nil, (*int)(nil), ""}, {Undefined{}, (*int)(nil), ""}, {3.0, ptr(3), ""}, {"a", (*int)(nil), "want a number, got a string"},
		{list(1.0, 2.0), []int{1, 2}, ""}, {list(), []int{}, ""}, {list(1.0, "x"), []int(nil), "[1]: want a number, got a string"},
		{obj(), []int(nil), "want an array, got an object"}, {nil, []int(nil), "want an array, got null"},
		{list(1.0, 2.0), [2]int{1, 2}, ""}, {list(1.0), [2]int{}, "want an array of 2, got one of 1"},
		{list(nil, 1.0, "a"), list(nil, 1.0, "a"), ""}, {list(list(1.0)), [][]float64{{1}}, ""},
		{obj("a", 1.0), map[string]int{"a": 1}, ""}, {obj("a", 1.0), map[kind]any{"a": 1.0}, ""},
		{obj("a", "x"), map[string]int(nil), "a: want a number, got a string"}, {list(), map[string]int(nil), "want an object"},
		{obj("X", 1.0, "other", true), inner{X: 1}, ""}, {obj("X", Undefined{}), inner{}, ""},
		{obj("X", nil), inner{}, "X: want a number, got null"}, {list(), inner{}, "want an object, got an array"},
		{obj("ID", "i", "More", "m", "name", "n", "count", 2.0, "note", "x", "list", list(obj("X", 1.0)), "map", obj("k", 3.0),
			"when", aDate, "any", list(1.0), "cb", aStub, "next", obj("name", "n2", "note", nil), "Skipped", "s", "hidden", 1.0),
			record{Base: Base{"i"}, Extra: &Extra{"m"}, Name: "n", Count: 2, Note: ptr("x"), List: []inner{{X: 1}},
				Map: map[kind]int{"k": 3}, When: aDate, Any: list(1.0), Cb: aStub, Next: &record{Name: "n2"}}, ""},
		{obj("next", obj("list", list(obj("Y", "y")))), record{}, "next.list[0].Y: want a number, got a string"},
		{obj("a", 1.0), strict{A: 1}, ""}, {obj("a", 1.0, "b", 1.0), strict{}, "b: want no such member, got one"},
		{obj("Children", list(obj("Children", list()))), tree{[]tree{{[]tree{}}}}, ""},
		{obj("L", "l", "R", "r", "Same", "s"), both{left{L: "l"}, right{R: "r"}}, ""},
		{"10.0.0.1", netip.MustParseAddr("10.0.0.1"), ""}, {"secret", netip.Addr{}, "want the text of a Addr, got a string that is none"},
		{1.0, netip.Addr{}, "want the text of a Addr, got a number"},
		{obj("a", "10.0.0.1"), map[string]*netip.Addr{"a": ptr(netip.MustParseAddr("10.0.0.1"))}, ""},
	} {
		dst := reflect.New(reflect.TypeOf(c.want))
		err := typeError(convert.Into(dst.Interface(), c.v))
		if c.err != "" {
			var e *Error
			if !errors.As(err, &e) || e.Name != "TypeError" || !strings.Contains(e.Message, c.err) || strings.Contains(e.Message, "secret") {
				t.Errorf("%#v into %T: %v, want %s", c.v, c.want, err, c.err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(dst.Elem().Interface(), c.want) {
			t.Errorf("%#v into %T: %#v, %v", c.v, c.want, dst.Elem().Interface(), err)
		}
	}
}

func TestConvertIntoInterfaces(t *testing.T) {
	if v, err := As[any](nil); v != nil || err != nil {
		t.Error(v, err)
	}
	if v, err := As[any](Undefined{}); v != any(Undefined{}) || err != nil {
		t.Error(v, err)
	}
	if v, err := As[error](&Error{Message: "m"}); err != nil || v.Error() != "m" {
		t.Error(v, err)
	}
	if _, err := As[error]("m"); err == nil {
		t.Error("a string became an error")
	}
}

func TestConvertIntoNothing(t *testing.T) {
	for _, dst := range []any{nil, 1, (*int)(nil), new(chan int), new(func()), new(complex128), new(map[int]string), new(struct{ C chan int }),
		new([]Object), new(*chan int), new(Object)} {
		if err := convert.Into(dst, 1.0); err == nil {
			t.Errorf("into %T", dst)
		}
	}
}

func TestGoValue(t *testing.T) {
	type wrapped struct{ time.Time }
	for _, c := range []struct {
		v    any
		want any
		err  string
	}{
		{small(-3), -3.0, ""}, {uint64(1 << 53), float64(1 << 53), ""}, {int64(-1 << 53), -float64(1 << 53), ""},
		{int64(1<<53 + 1), nil, "beyond 2^53"}, {uint64(math.MaxUint64), nil, "beyond 2^53"}, {int64(math.MinInt64), nil, "beyond 2^53"},
		{float32(1.5), 1.5, ""}, {kind("a"), "a", ""}, {ptr("a"), "a", ""}, {(*int)(nil), nil, ""}, {ptr(ptr(1)), ptr(1), ""},
		{[]int{1, 2}, list(1, 2), ""}, {[]int(nil), list(), ""}, {[2]string{"a", "b"}, list("a", "b"), ""},
		{map[kind]int{"a": 1}, obj("a", 1), ""}, {map[string]int(nil), obj(), ""}, {map[int]int{}, nil, "no strings"},
		{[4]byte{1, 2}, list(byte(1), byte(2), byte(0), byte(0)), ""}, {[]kind{"a"}, list(kind("a")), ""},
		{inner{1, 2}, obj("X", 1, "Y", 2), ""}, {&inner{1, 2}, inner{1, 2}, ""},
		{record{Name: "n"}, obj("ID", "", "name", "n", "labels", map[string]string(nil)), ""},
		{record{Extra: &Extra{"m"}, Count: 1, Note: ptr(""), Skipped: "s", hidden: 2},
			obj("ID", "", "name", "", "More", "m", "count", uint16(1), "note", ptr(""), "labels", map[string]string(nil)), ""},
		{both{left{"a", "b"}, right{"c", "d"}}, obj("L", "b", "R", "d"), ""},
		{netip.MustParseAddr("::1"), "::1", ""}, {ptr(netip.MustParseAddr("::1")), "::1", ""}, {&aDate, aDate, ""},
		{make(chan int), nil, "cannot be sent"}, {complex(1, 1), nil, "cannot be sent"}, {(func())(nil), nil, ""},
		{func(chan int) {}, nil, "cannot be sent"}, {wrapped{aDate}, "2009-02-13T23:31:30.123Z", ""},
	} {
		v, err := goValue(c.v)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%#v: %#v, %v", c.v, v, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(v, c.want) {
			t.Errorf("%#v: %#v, %v; want %#v", c.v, v, err, c.want)
		}
	}
	if v, err := goValue(func() {}); err != nil || v.(*function) == nil {
		t.Error(v, err)
	}
}

// wholeValue turns a Go value all the way; an error where it cannot be sent.
func wholeValue(v any, depth int) (any, error) {
	if depth == 0 {
		return nil, errTooDeepOut
	}
	switch x := v.(type) {
	case nil, Undefined, bool, string, float64, *big.Int, time.Time, []byte, Bytes, *Stub, *Error:
		return v, nil
	case []any:
		out := make([]any, len(x))
		for i := range x {
			var err error
			if out[i], err = wholeValue(x[i], depth-1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for k := range x {
			var err error
			if out[k], err = wholeValue(x[k], depth-1); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	v, err := goValue(v)
	if err != nil {
		return nil, err
	}
	return wholeValue(v, depth-1)
}

// What goes out of a struct comes back into one.
func TestStructsGoAndCome(t *testing.T) {
	in := record{Base: Base{"i"}, Extra: &Extra{"m"}, Name: "n", Count: 2, Note: ptr("x"), List: []inner{{X: 1}},
		Map: map[kind]int{"k": 3}, When: aDate, Any: []any{1.0}, Cb: aStub, Next: &record{Labels: map[string]string{}},
		Labels: map[string]string{"a": "b"}}
	sent, err := wholeValue(in, 20)
	if err != nil {
		t.Fatal(err)
	}
	out, err := As[record](sent)
	if err != nil || !reflect.DeepEqual(in, out) {
		t.Fatalf("%+v, %v", out, err)
	}
}

// convertibleTexts are JSON values of every kind.
var convertibleTexts = []string{
	`null`, `true`, `false`, `0`, `-0`, `1`, `-1`, `1.5`, `-1.25e-3`, `1e5`, `1023`, `1024`, `123456789012345`, `9007199254740993`,
	`1e400`, `-1e400`, `1e-400`, `""`, `"a"`, `"\u00e9\ud83d\ude00"`, `"\ud800"`, `[]`, `[1]`, `[[],{}]`, `[1,"two",null,true,{"a":[]}]`,
	`{}`, `{"a":1,"a":2}`, `{"":0}`, `{"__proto__":{"x":1}}`,
}

// FuzzConvert converts any value into many types: no panic, and what was taken and sent again is taken again.
func FuzzConvert(f *testing.F) {
	for i, text := range append(convertibleTexts, `{"ID":"i","name":"n","list":[{"X":1}],"map":{"k":1},"next":{"when":["date",1]},"any":[1]}`,
		`["bigint",1]`, `["bytes","a"]`, `["undefined"]`, `["stub"]`, `{"Children":[{"Children":[]}]}`, `["nan"]`, `["inf"]`, `{"a":1}`) {
		f.Add([]byte(text), uint8(i))
	}
	types := []any{0, uint8(0), int64(0), uint64(0), float32(0), 0.0, "", kind(""), false, record{}, []record{}, map[string]record{}, tree{},
		strict{}, both{}, [2]int{}, [][]string{}, aDate, huge, &record{}, new(*int), aStub, new(*Stub), []byte{}, Bytes{}, URL(""),
		netip.Addr{}, Undefined{}, list(), obj(), time.Duration(0), map[kind][]*inner{}}
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		v, err := jsontext.Parse(data, 64)
		if err != nil {
			return
		}
		dst := reflect.New(reflect.TypeOf(types[int(which)%len(types)]))
		if convert.Into(dst.Interface(), unusual(v)) != nil {
			return
		}
		again := reflect.New(dst.Type().Elem())
		sent, err := wholeValue(dst.Elem().Interface(), 1000)
		if err != nil && (err == errTooDeepOut || strings.Contains(err.Error(), "beyond 2^53")) {
			return // it is refused, which is right
		}
		if err != nil {
			t.Fatalf("%s into %s cannot be sent: %v", data, dst.Type().Elem(), err)
		}
		if err := convert.Into(again.Interface(), sent); err != nil {
			t.Fatalf("%s into %s, sent as %#v: %v", data, dst.Type().Elem(), sent, err)
		}
	})
}

// unusual has some arrays stand for values that JSON has not.
func unusual(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = unusual(v[i])
		}
		tag, _ := append(v, nil)[0].(string)
		n, _ := append(v, nil, nil)[1].(float64)
		switch tag {
		case "date":
			return time.UnixMilli(int64(math.Mod(n, 1e12))).UTC()
		case "bigint":
			return new(big.Int).Lsh(big.NewInt(3), uint(math.Mod(math.Abs(n), 100)))
		case "bytes":
			return []byte("bytes")
		case "undefined":
			return Undefined{}
		case "stub":
			return aStub
		case "nan":
			return math.NaN()
		case "inf":
			return math.Inf(1)
		}
	case map[string]any:
		for k := range v {
			v[k] = unusual(v[k])
		}
	}
	return v
}
