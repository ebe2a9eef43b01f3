package jsonpatch

// Random values and patches, written in random ways, against RFC 7396 over encoding/json, and what holds for bytes.

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// writer writes random JSON texts of few names, so that they meet, with escapes and white space.
type writer struct {
	*rand.Rand
	tight bool // no white space after an opening brace
}

// text is a JSON text: of an object, the names and values of its members, and patches of one path each that come to it.
type text struct {
	json          string
	names, values []string
	paths         []string
}

func newWriter(t *testing.T) writer {
	return writer{Rand: rand.New(rand.NewPCG(seed.Of(t), 0))}
}

func (w writer) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w writer) space() string { return w.pick("", "", "", " ", "\n  ", "\t", "\r\n") }

// spellings are names and how each can be spelled.
var spellings = map[string][]string{
	"a": {`"a"`, `"\u0061"`}, "n": {`"n"`, `"\u006e"`}, "b": {`"b"`}, "": {`""`}, "/": {`"/"`, `"\/"`}, "é": {`"é"`, `"\u00E9"`, `"\u00e9"`},
	"😀": {`"😀"`, `"\ud83d\uDE00"`}, `"`: {`"\""`, `"\u0022"`}, `\`: {`"\\"`, `"\u005C"`}, "\n": {`"\n"`, `"\u000a"`},
}

func (w writer) object(depth int) (o text) {
	all := []string{"a", "n", "b", "", "/", "é", "😀", `"`, `\`, "\n"}
	for _, k := range w.Perm(len(all))[:w.IntN(7)] {
		name, value := w.pick(spellings[all[k]]...), w.value(depth-1)
		o.names, o.values = append(o.names, all[k]), append(o.values, value.json)
		if len(value.paths) == 0 {
			value.paths = []string{value.json}
		}
		for _, path := range value.paths {
			o.paths = append(o.paths, "{"+name+":"+path+"}")
		}
		o.json += "," + w.space() + name + w.space() + ":" + w.space() + value.json + w.space()
	}
	o.json = strings.TrimPrefix(o.json, ",")
	if w.tight {
		o.json = strings.TrimLeft(o.json, " \n\t\r")
	}
	o.json = "{" + o.json + w.pick("", "", " ", "\n") + "}"
	return o
}

func (w writer) value(depth int) text {
	switch n := w.IntN(10); {
	case n < 3 && depth > 0:
		return w.object(depth)
	case n < 4 && depth > 0:
		return text{json: "[" + w.space() + w.value(depth-1).json + w.space() + "," + w.value(depth-1).json + "]"}
	case n < 6:
		return text{json: "null"}
	}
	return text{json: w.pick("1", "-0", "1.50", "2e3", `"x"`, `"}\","`, `"\u0041\\"`, "true", "[]", "{}", "[ null ]", `[{"a":null}]`)}
}

// any is mostly an object.
func (w writer) any() string {
	o := w.object(4)
	if w.IntN(8) == 0 {
		o = w.value(3)
	}
	return w.space() + o.json + w.space()
}

func parse(text string) (v any) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // 1.50 is not 1.5
	if err := d.Decode(&v); err != nil {
		panic(text + ": " + err.Error())
	}
	return v
}

// mergePatch is the algorithm of RFC 7396, section 2.
func mergePatch(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, _ := target.(map[string]any)
	result := map[string]any{}
	maps.Copy(result, t)
	for name, value := range p {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = mergePatch(result[name], value)
		}
	}
	return result
}

func mustMerge(t *testing.T, value, patch string) string {
	t.Helper()
	got, made, err := Merge([]byte(value), []byte(patch))
	if err != nil {
		t.Fatalf("%q and %q: %v", value, patch, err)
	}
	checkMade(t, []byte(value), got, made)
	return string(got)
}

func TestMeaningIsThatOfRFC7396(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	for range 3_000 {
		value, patch := w.any(), w.any()
		got := mustMerge(t, value, patch)
		if want := mergePatch(parse(value), parse(patch)); !reflect.DeepEqual(parse(got), want) {
			t.Fatalf("%q and %q: %q, which does not mean %v", value, patch, got, want)
		}
		if again := mustMerge(t, got, patch); again != got {
			t.Fatalf("%q and %q: %q, merged again %q", value, patch, got, again)
		}
	}
}

// Members that the patch does not name keep the bytes of their values and their order.
func TestOtherMembersKeepTheirBytes(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	for range 2_000 {
		value, patch := w.object(4), w.object(3)
		got := mustMerge(t, value.json, patch.json)
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(got), &members); err != nil {
			t.Fatal(err)
		}
		rest, named := got, parse(patch.json).(map[string]any)
		for i, name := range value.names {
			if _, ok := named[name]; ok {
				continue
			}
			_, after, found := strings.Cut(rest, value.values[i])
			if !found || string(members[name]) != value.values[i] {
				t.Fatalf("%q and %q: %q, which changed or moved %q", value.json, patch.json, got, name)
			}
			rest = after
		}
	}
}

// A patch gives the same bytes as its paths one by one, and in another order the same meaning. White space after a brace
// alone depends on whether the last old member goes before the first new one comes.
func TestPathsOneByOne(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	w.tight = true
	for range 2_000 {
		value, patch := w.object(4).json, w.object(3)
		whole, inOrder, mixed := mustMerge(t, value, patch.json), value, value
		for _, path := range patch.paths {
			inOrder = mustMerge(t, inOrder, path)
		}
		for _, i := range w.Perm(len(patch.paths)) {
			mixed = mustMerge(t, mixed, patch.paths[i])
		}
		if inOrder != whole || !reflect.DeepEqual(parse(mixed), parse(whole)) {
			t.Fatalf("%q and %q: %q, one by one %q, in another order %q", value, patch.json, whole, inOrder, mixed)
		}
	}
}

// Add is Merge with the sum, and touches nothing else.
func TestAddIsMergeWithTheSum(t *testing.T) {
	t.Parallel()
	w := newWriter(t)
	for range 2_000 {
		value, n, by := w.object(3), w.Int64N(2*maxInteger+1)-maxInteger, w.Int64N(2*maxInteger+1)-maxInteger
		had := mustMerge(t, value.json, `{"n":`+strconv.FormatInt(n, 10)+`}`)
		got, made, err := Add([]byte(had), "n", by)
		checkMade(t, []byte(had), got, made)
		if sum := n + by; sum < -maxInteger || sum > maxInteger {
			if err == nil {
				t.Fatalf("%q and %d: %q", had, by, got)
			}
		} else if want := mustMerge(t, had, `{"n":`+strconv.FormatInt(sum, 10)+`}`); err != nil || string(got) != want {
			t.Fatalf("%q and %d: %q, %v, want %q", had, by, got, err, want)
		}
		if same, _, err := Add([]byte(had), "n", 0); err != nil || string(same) != had {
			t.Fatalf("%q and 0: %q, %v", had, same, err)
		}
	}
}
