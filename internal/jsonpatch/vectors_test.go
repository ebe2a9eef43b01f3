package jsonpatch

// The cases that this package and the JavaScript client are both held to (testdata/patch.json), what only bytes can be, and
// depth.

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pieces"
)

type vectors struct {
	Merge []struct {
		Value, Patch, Result, Error string
	}
	Add []struct {
		Value, Member string
		By            int64
		Result, Error string
	}
}

func readVectors(t testing.TB) (v vectors) {
	text, err := os.ReadFile("testdata/patch.json")
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVectors(t *testing.T) {
	t.Parallel()
	v := readVectors(t)
	if len(v.Merge) < 180 || len(v.Add) < 90 {
		t.Fatalf("%d and %d cases: some are missing", len(v.Merge), len(v.Add))
	}
	for _, c := range v.Merge {
		value, patch := []byte(c.Value), []byte(c.Patch)
		got, made, err := Merge(value, patch)
		checkMade(t, []byte(c.Value), got, made)
		clear(value) // the result shares no memory with them
		clear(patch)
		check(t, got, err, c.Result, c.Error, "%.200s and %.200s", c.Value, c.Patch)
	}
	for _, c := range v.Add {
		got, made, err := Add([]byte(c.Value), c.Member, c.By)
		checkMade(t, []byte(c.Value), got, made)
		check(t, got, err, c.Result, c.Error, "%s of %s and %d", c.Member, c.Value, c.By)
	}
	if got, made, err := Merge(nil, []byte(`{"a":1}`)); err != nil || string(got) != `{"a":1}` || made != nil {
		t.Errorf("nil: %s, %v, %v", got, made, err)
	}
}

// checkMade checks that a result is made of what Merge or Add says.
func checkMade(t *testing.T, value, got []byte, made pieces.List) {
	t.Helper()
	if made == nil {
		return
	}
	if text, err := made.Of(value); err != nil || !bytes.Equal(text, got) {
		t.Errorf("%.200q: %.200q is said to be %v, which is %.200q, %v", value, got, made, text, err)
	}
}

// A result is said to have of the old value all that the patch does not name.
func TestMadeOfWhatStays(t *testing.T) {
	t.Parallel()
	const value = ` { "a" : 1, "b":{"c":[1,2],"d":"x"},"e":null } `
	for _, c := range []struct {
		patch string
		added int // bytes that are not the old value's
		list  int // pieces
	}{
		{`{}`, 0, 1},
		{`{"a":2}`, 1, 3},
		{`{"b":{"d":"yy"}}`, 4, 3},
		{`{"a":2,"b":{"d":3}}`, 2, 5},
		{`{"a":null}`, 0, 2},
		{`{"e":null}`, 0, 2},
		{`{"f":[ ]}`, 8, 3},
		{`{"b":1}`, 1, 3},
		{`[1]`, 0, 0},
	} {
		got, made, err := Merge([]byte(value), []byte(c.patch))
		if err != nil {
			t.Fatal(err)
		}
		checkMade(t, []byte(value), got, made)
		added := 0
		for _, p := range made {
			added += len(p.Text)
		}
		if added != c.added || len(made) != c.list {
			t.Errorf("%s: %q, %d new bytes in %d pieces, want %d in %d: %v", c.patch, got, added, len(made), c.added, c.list, made)
		}
	}
}

func check(t *testing.T, got []byte, err error, want, wantErr, format string, args ...any) {
	t.Helper()
	var text string
	if err != nil {
		text = err.Error()
		if !errors.Is(err, fault.BadPayload) || got != nil {
			t.Errorf(format+": %v beside %q, or another code", append(args, err, got)...)
		}
	}
	if string(got) != want || text != wantErr {
		t.Errorf(format+"\n got %.300q %s\nwant %.300q %s", append(args, got, text, want, wantErr)...)
	}
}

// What is no UTF-8 reaches no vector, which is JSON. In values, it is kept.
func TestNotUTF8(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, patch, want, err string }{
		{"{\"a\xff\":1}", `{}`, "", "bad_payload: the value has a name that is not UTF-8, at byte 1"},
		{"{\"\\n\xff\":1}", `{}`, "", "bad_payload: the value has a name that is not UTF-8, at byte 1"},
		{"{\"\xed\xa0\x80\":1}", `{}`, "", "bad_payload: the value has a name that is not UTF-8, at byte 1"}, // half a pair, encoded
		{`{}`, "{ \"a\xff\":1}", "", "bad_payload: the patch has a name that is not UTF-8, at byte 2"},
		{"{\"a\":\"\xff\",\"b\":{\"\xff\":1}}", "{\"c\":\"\xfe\"}", "{\"a\":\"\xff\",\"b\":{\"\xff\":1},\"c\":\"\xfe\"}", ""},
	} {
		got, _, err := Merge([]byte(c.value), []byte(c.patch))
		check(t, got, err, c.want, c.err, "%q and %q", c.value, c.patch)
	}
	_, _, err := Add(nil, "a\xff", 1)
	check(t, nil, err, "", "bad_payload: the member's name is not Unicode text", "a name")
}

// Depth is bounded as it is for every value, and costs no stack.
func TestDeep(t *testing.T) {
	t.Parallel()
	deep := func(n int, inner string) []byte { // n objects, one in the other
		return []byte(strings.Repeat(`{"a":`, n-1) + inner + strings.Repeat(`}`, n-1))
	}
	const most = 10_000
	for _, c := range []struct {
		value, patch []byte
		want, err    string
	}{
		{deep(most, `{"b":1}`), deep(most, `{"c":2}`), string(deep(most, `{"b":1,"c":2}`)), ""},
		{deep(most, `{"b":1}`), deep(most, `{"b":null}`), string(deep(most, `{}`)), ""},
		{nil, deep(most, `{"b":null}`), string(deep(most, `{}`)), ""},
		{deep(most/2, `{"b":1}`), deep(most, `{"c":2}`), string(deep(most/2, `{"b":1,"a":`+string(deep(most/2, `{"c":2}`))+`}`)), ""},
		{deep(most+1, `{}`), []byte(`{}`), "", "bad_payload: the value is not JSON text, or nested too deep"},
		{[]byte(`{}`), deep(most+1, `{}`), "", "bad_payload: the patch is not JSON text, or nested too deep"},
	} {
		got, made, err := Merge(c.value, c.patch)
		checkMade(t, c.value, got, made)
		check(t, got, err, c.want, c.err, "%.20s and %.20s", c.value, c.patch)
	}
}
