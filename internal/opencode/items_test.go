package opencode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/session"
)

// itemsOf are puts as items again.
func itemsOf(t testing.TB, puts []opencode.Put) []json.RawMessage {
	t.Helper()
	var items []json.RawMessage
	for _, p := range puts {
		item := opencode.AppendItem(nil, p.Key, p.Payload)
		if !json.Valid(item) {
			t.Fatalf("%s is given out as %s", p.Key, item)
		}
		items = append(items, item)
	}
	return items
}

func equalPuts(a, b opencode.Put) bool { return a.Key == b.Key && bytes.Equal(a.Payload, b.Payload) }

// What is given out reads back as it was, for every recording.
func TestItemsReadBack(t *testing.T) {
	t.Parallel()
	for _, name := range opencodetest.Names {
		puts := foldPuts(opencodetest.Read(t, name+".jsonl", opencodetest.Limits))
		var again opencode.Reader
		if err := again.Items(itemsOf(t, puts)); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(again.Puts, puts, equalPuts) {
			t.Errorf("%s: items do not read back", name)
		}
	}
}

func TestItems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ key, payload, item string }{
		{"session", `{"id":"x"}`, `{"type":"session","data":{"id":"x"}}`},
		{"session_diff", `{"diff":[1]}`, `{"type":"session_diff","data":[1]}`},
		{"session_diff", `{"diff":null}`, `{"type":"session_diff","data":null}`},
		{"session_diff", `{"diff":[1],"more":2}`, `{"type":"session_diff","data":{"diff":[1],"more":2}}`},
		{"session_diff", `{"a":1}`, `{"type":"session_diff","data":{"a":1}}`},
		{"session_diff", `{ "diff":[1]}`, `{"type":"session_diff","data":{ "diff":[1]}}`},
		{"model/a/b", `{"id":"a/b"}`, `{"type":"model","data":[{"id":"a/b"}]}`},
		{"part/m/p", `{}`, `{"type":"part","data":{}}`},
		{"ref/x", `{}`, ""},
	} {
		if got := string(opencode.AppendItem(nil, c.key, []byte(c.payload))); got != c.item {
			t.Errorf("%s %s is given out as %s, want %s", c.key, c.payload, got, c.item)
		}
	}
}

// Items of another session are refused in the form that carries whole messages too.
func TestMessagesOfAnotherSession(t *testing.T) {
	t.Parallel()
	r := opencode.Reader{Session: "ses_a"}
	err := r.Item("messages", []byte(`{"sessionID":"ses_b","messages":[{"info":{"id":"m","sessionID":"ses_b"},"parts":[]}]}`))
	if !errors.Is(err, fault.Malformed) || len(r.Puts) != 0 {
		t.Errorf("items of ses_b were taken for ses_a: %v, %v", r.Puts, err)
	}
	if err := r.Item("messages", []byte(`{"sessionID":"ses_a","messages":[{"info":{"id":"m"},"parts":[]}]}`)); err != nil || len(r.Puts) != 1 {
		t.Errorf("its own: %v, %v", r.Puts, err)
	}
	if err := new(opencode.Reader).Item("messages", []byte(`{"sessionID":5}`)); !errors.Is(err, fault.Malformed) {
		t.Errorf("an id that is no text: %v", err)
	}
}

// Names are what they are: another that differs in case is another.
func TestNamesHaveTheirCase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, data, key string }{
		{"part", `{"id":"prt_1","messageID":"msg_1","MessageId":"msg_2","ID":"prt_2"}`, "part/msg_1/prt_1"},
		{"message", `{"ID":"msg_2","id":"msg_1"}`, "message/msg_1"},
		{"model", `{"id":"a","Id":"b"}`, "model/a"},
		{"messages", `{"messages":[{"info":{"id":"m"},"INFO":{"id":"n"}}],"MESSAGES":5}`, "message/m"},
	} {
		var r opencode.Reader
		if err := r.Item(c.kind, []byte(c.data)); err != nil || len(r.Puts) != 1 || r.Puts[0].Key != c.key {
			t.Errorf("%s %s: %v, %v", c.kind, c.data, r.Puts, err)
		}
	}
}

// Whatever stands for a diff comes back as it was.
func TestDiffsReadBack(t *testing.T) {
	t.Parallel()
	for _, data := range []string{`[]`, `[1]`, `{"diff":[1]}`, `{"diff":{"diff":[1]}}`, `{"diff":[1],"x":2}`, `{ "diff":[1]}`, `{}`, `null`, `5`, `"}"`} {
		var r opencode.Reader
		if err := r.Item("session_diff", []byte(data)); err != nil {
			t.Fatal(err)
		}
		if got := string(opencode.Diff(r.Puts[0].Payload)); got != data || r.Puts[0].Payload[0] != '{' {
			t.Errorf("%s is put as %s and comes back as %s", data, r.Puts[0].Payload, got)
		}
	}
}

// What a refusal repeats is text.
func TestRefusalsAreText(t *testing.T) {
	t.Parallel()
	r := opencode.Reader{Session: "s"}
	if err := r.Name("x" + strings.Repeat("é", 60)); err == nil || !utf8.ValidString(err.Error()) {
		t.Errorf("%q", err)
	}
}

func TestLastAndCut(t *testing.T) {
	t.Parallel()
	var puts []opencode.Put
	for _, p := range strings.Fields("a1 b1 a2 c1 b2 a3") {
		puts = append(puts, opencode.Put{Key: p[:1], Payload: []byte(p[1:])})
	}
	text := func(puts []opencode.Put) (s string) {
		for _, p := range puts {
			s += p.Key + string(p.Payload) + " "
		}
		return s
	}
	last := opencode.Last(puts)
	if got := text(last); got != "a3 b2 c1 " {
		t.Errorf("the last ones are %s", got)
	}
	last[1].Payload = []byte("too long")
	pieces, tooLarge := opencode.Cut(last, opencode.Limits{Ops: 1, Bytes: 1000, Payload: 3})
	if len(pieces) != 2 || text(pieces[0]) != "a3 " || text(pieces[1]) != "c1 " || text(tooLarge) != "btoo long " {
		t.Errorf("%q, %q", pieces, tooLarge)
	}
	if pieces, tooLarge := opencode.Cut(nil, opencodetest.Limits); len(pieces)+len(tooLarge) != 0 {
		t.Errorf("nothing is cut into %q and %q", pieces, tooLarge)
	}
}

// FuzzItems: what is read has keys that a session takes and JSON objects for values,
// and is given out so that it reads back.
func FuzzItems(f *testing.F) {
	f.Add([]byte(`[{"type":"session","data":{"id":"s","time":{"created":1}}},{"type":"message","data":{"id":"m"}},{"type":"part","data":{"id":"p","messageID":"m"}}]`))
	f.Add([]byte(`[{"type":"session_diff","data":[]},{"type":"session_diff","data":{"diff":1,"x":[]}},{"type":"session_diff","data":{"diff":[]}},{"type":"model","data":[{"id":"a b"},{"id":"a/b"}]}]`))
	f.Add([]byte(`[{"type":"messages","data":{"messages":[{"info":{"id":"m"},"parts":[{"id":"p","messageID":"m"}]}]}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var items []json.RawMessage
		if json.Unmarshal(data, &items) != nil {
			return
		}
		var r opencode.Reader
		if err := r.Items(items); err != nil {
			if !errors.Is(err, fault.Malformed) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		puts := opencode.Last(r.Puts)
		for _, p := range puts {
			if _, err := session.ParseKey(p.Key); err != nil {
				t.Errorf("%q is no key: %v", p.Key, err)
			}
			if !json.Valid(p.Payload) || p.Payload[0] != '{' {
				t.Errorf("%s has payload %q", p.Key, p.Payload)
			}
		}
		var again opencode.Reader
		if err := again.Items(itemsOf(t, puts)); err != nil {
			t.Fatalf("%s does not read back: %v", data, err)
		}
		for i, p := range again.Puts {
			if !equalPuts(p, puts[i]) {
				t.Errorf("%s %s reads back as %s %s", puts[i].Key, puts[i].Payload, p.Key, p.Payload)
			}
		}
	})
}
