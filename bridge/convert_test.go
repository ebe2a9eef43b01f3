package bridge

import (
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/testschema/kinds"
)

// roomy is more than any of these take.
const roomy = 1 << 24

// everything is a value with every field that is not in the union.
func everything() map[string]any {
	return map[string]any{
		"nothing": nil, "flag": true, "set": false, "small": int64(-128), "short": int64(-2), "medium": int64(3), "long": int64(-1 << 53),
		"byte": uint64(255), "word": uint64(0), "wide": uint64(math.MaxUint32), "huge": new(big.Int).SetUint64(math.MaxUint64),
		"single": 0.5, "double": math.Pi, "text": "t€xt", "data": []byte{0, 255}, "colour": "blue",
		"inner":  map[string]any{"n": uint64(1), "next": map[string]any{"n": uint64(2), "next": nil}},
		"inners": []any{map[string]any{"n": uint64(3), "next": nil}, map[string]any{"n": uint64(0), "next": nil}}, "numbers": []any{int64(-1), int64(2)},
		"longs": []any{uint64(7), big.NewInt(1 << 60)}, "flags": []any{true, false, true}, "doubles": []any{1.5, math.Inf(1)},
		"texts": []any{"", "a"}, "colours": []any{"red", "blue"}, "rows": []any{[]any{uint64(1)}, []any{}}, "bytes": []any{[]byte{9}, []byte{}},
		"pair": map[string]any{"left": int64(-4), "right": "r"}, "box": map[string]any{"value": map[string]any{"n": uint64(5), "next": nil}},
		"textBox": map[string]any{"value": "v"}, "later": "l",
	}
}

func TestEveryKindGoesBothWays(t *testing.T) {
	t.Parallel()
	b := compiled(t, kindsConfig())
	p := kindsPlan(b)
	want := everything()
	s, err := written(b, p, want, roomy)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readBack(b, p, s)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, any(want)) {
		for k, v := range want {
			if g := got.(map[string]any)[k]; !reflect.DeepEqual(g, v) {
				t.Errorf("%s: %#v, want %#v", k, g, v)
			}
		}
		t.Errorf("got %d fields, want %d", len(got.(map[string]any)), len(want))
	}
	// The generated code finds the same in it.
	k := kinds.Kinds(s)
	inner, _ := k.Inner()
	next, _ := inner.Next()
	text, _ := k.Text()
	rows, _ := k.Rows()
	row, _ := rows.At(0)
	right, _ := k.Pair().Right()
	box, _ := k.Box()
	value, _ := box.Value()
	if k.Small() != -128 || k.Huge() != math.MaxUint64 || k.Set() || k.Colour() != kinds.Colour_blue || next.N() != 2 || text != "t€xt" ||
		capnp.UInt8List(row.List()).At(0) != 1 || k.Which() != kinds.Kinds_Which_pair || right != "r" || kinds.Inner(value.Struct()).N() != 5 || k.Single() != 0.5 {
		t.Errorf("the struct is not what was written: %v", k)
	}
}

// What is left out, undefined or null has the schema's default, and an empty message reads as it.
func TestDefaults(t *testing.T) {
	t.Parallel()
	b := compiled(t, kindsConfig())
	p := kindsPlan(b)
	nulls := map[string]any{}
	for i, f := range p.fields {
		if f.tag != noTag {
			continue
		}
		if nulls[f.name] = nil; i%2 == 0 {
			nulls[f.name] = capnweb.Undefined{}
		}
	}
	for name, v := range map[string]any{"left out": map[string]any{}, "null": nulls} {
		s, err := written(b, p, v, roomy)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readBack(b, p, s)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{
			"nothing": nil, "flag": false, "set": true, "small": int64(-3), "short": int64(0), "medium": int64(100000), "long": int64(-5),
			"byte": uint64(0), "word": uint64(7), "wide": uint64(0), "huge": uint64(0), "single": 1.5, "double": -0.25, "text": "default",
			"data": []byte{1, 2}, "colour": "green", "inner": nil, "inners": []any{}, "numbers": []any{}, "longs": []any{}, "flags": []any{},
			"doubles": []any{}, "texts": []any{}, "colours": []any{}, "rows": []any{}, "bytes": []any{}, "none": nil, "box": nil, "textBox": nil, "later": "",
		}
		if !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%s:\n%#v, want\n%#v", name, got, want)
		}
	}
}

// Numbers are taken in every form that they have, exactly or not at all.
func TestNumbers(t *testing.T) {
	t.Parallel()
	b := compiled(t, kindsConfig())
	p := kindsPlan(b)
	for _, c := range []struct {
		field string
		in    any
		out   any // nil: refused
	}{
		{"byte", 255.0, uint64(255)}, {"byte", 256.0, nil}, {"byte", -1.0, nil}, {"byte", 0.5, nil}, {"byte", math.NaN(), nil},
		{"byte", math.Inf(1), nil}, {"byte", math.Copysign(0, -1), uint64(0)}, {"byte", big.NewInt(7), uint64(7)}, {"byte", "7", nil}, {"byte", true, nil},
		{"small", 127.0, int64(127)}, {"small", 128.0, nil}, {"small", -128.0, int64(-128)}, {"small", -129.0, nil},
		{"long", -9223372036854775808.0, big.NewInt(math.MinInt64)}, {"long", 9223372036854775808.0, nil}, {"long", int32(-5), int64(-5)},
		{"huge", 18446744073709551616.0, nil}, {"huge", float64(1 << 53), uint64(1 << 53)}, {"huge", new(big.Int).Lsh(big.NewInt(1), 64), nil},
		{"huge", big.NewInt(-1), nil}, {"huge", uint64(math.MaxUint64), new(big.Int).SetUint64(math.MaxUint64)}, {"huge", (*big.Int)(nil), nil},
		{"double", 3.0, 3.0}, {"double", int(4), 4.0}, {"double", "4", nil}, {"double", math.Inf(-1), math.Inf(-1)}, {"single", 0.1, float64(float32(0.1))},
		{"colour", "red", "red"}, {"colour", "mauve", nil}, {"colour", 2.0, "blue"}, {"colour", 9.0, uint64(9)}, {"flag", 1.0, nil},
	} {
		s, err := written(b, p, map[string]any{c.field: c.in}, roomy)
		if (err == nil) != (c.out != nil) {
			t.Errorf("%s from %v: %v", c.field, c.in, err)
			continue
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), c.field+": ") {
				t.Errorf("%s from %v: %v", c.field, c.in, err)
			}
			continue
		}
		got, err := readBack(b, p, s)
		if err != nil || !reflect.DeepEqual(got.(map[string]any)[c.field], c.out) {
			t.Errorf("%s from %v: %#v, want %#v (%v)", c.field, c.in, got.(map[string]any)[c.field], c.out, err)
		}
	}
}

// What does not fit is named by its path, and never shown.
func TestValuesThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := compiled(t, kindsConfig())
	p := kindsPlan(b)
	const secret = "hunter2"
	for _, c := range []struct {
		v    any
		want string
	}{
		{secret, "want an object, got a string"},
		{map[string]any{"colr": 1.0}, "colr: there is no such field: there are nothing, flag, set"},
		{map[string]any{strings.Repeat("€", 100): 1.0}, strings.Repeat("€", 13) + "...: there is no such field"},
		{map[string]any{"inners": []any{map[string]any{}, map[string]any{"next": map[string]any{"n": secret}}}}, "inners[1].next.n: want a whole number from 0 to 255, got a string"},
		{map[string]any{"rows": []any{[]any{1.0, 256.0}}}, "rows[0][1]: out of range: a whole number from 0 to 255"},
		{map[string]any{"pair": map[string]any{"left": secret}}, "pair.left: want a whole number of 31 bits and a sign, got a string"},
		{map[string]any{"text": 1.0}, "text: want a string, got a number"},
		{map[string]any{"text": []any{secret}}, "text: want a string, got an array"},
		{map[string]any{"data": "no base64 " + secret}, "data: not base64url"},
		{map[string]any{"data": 1.5}, "data: want a Uint8Array, got a number that is not whole"},
		{map[string]any{"inner": []byte(secret)}, "inner: want an object, got bytes"},
		{map[string]any{"texts": map[string]any{}}, "texts: want an array, got an object"},
		{map[string]any{"amount": 1.0, "name": "x"}, "amount and name: only one of them can be given"},
		{map[string]any{"none": nil, "name": "x"}, "none and name: only one of them can be given"},
		{map[string]any{"none": 1.0}, "none: want null, got a number"},
		{map[string]any{"textBox": map[string]any{"value": 1.0}}, "textBox.value: want a string, got a number"},
		{map[string]any{"flags": []any{true, secret}}, "flags[1]: want true or false, got a string"},
	} {
		_, err := written(b, p, c.v, roomy)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: %v, want %s", c.v, err, c.want)
		}
	}
}

// A peer's few bytes do not become many of ours.
func TestWrittenBytesAreBounded(t *testing.T) {
	t.Parallel()
	b := compiled(t, kindsConfig())
	p := kindsPlan(b)
	for name, v := range map[string]any{
		"structs": map[string]any{"inners": make([]any, 5000)}, "numbers": map[string]any{"longs": make([]any, 9000)},
		"text": map[string]any{"text": strings.Repeat("x", 1<<16)}, "rows": map[string]any{"rows": make([]any, 9000)},
	} {
		_, err := written(b, p, v, 1<<16)
		if e, ok := err.(*capnweb.Error); !ok || e.Name != "RangeError" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := written(b, p, map[string]any{"inners": make([]any, 1000)}, 1<<16); err != nil {
		t.Error(err)
	}
}

func TestBadRulesAreFound(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]Rules{
		"a struct":       {Structs: map[uint64]StructRule{1: {}}},
		"a field":        {Fields: map[FieldKey]FieldRule{{kinds.Inner_TypeID, "m"}: {}}},
		"a method":       {Methods: map[MethodKey]MethodRule{{kinds.Server_TypeID, "ecko"}: {}}},
		"a name for two": {Methods: map[MethodKey]MethodRule{{kinds.Server_TypeID, "echo"}: {Name: "two"}}},
	} {
		cfg := kindsConfig()
		cfg.Rules = rules
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	cfg := kindsConfig()
	cfg.Interfaces = []uint64{42}
	if _, err := New(cfg); err == nil {
		t.Error("an interface that there is not: no error")
	}
}
