package decide

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// members is an object as encoding/json reads it.
func members(t *testing.T, object []byte) (all map[string]json.RawMessage) {
	t.Helper()
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatalf("%q: %v", object, err)
	}
	return all
}

// FuzzPayloadEdits holds what deltas and the end of a turn make of a payload to how
// encoding/json reads it: what was to be there is, all else is as it was.
func FuzzPayloadEdits(f *testing.F) {
	for _, payload := range []string{
		`{"text":"a"}`, ` { "a" : 1 } `, `{}`, ` { } `, `{"te\u0078t":"q"}`, `{"text":"\ud83d\ude00"}`, `{"time":{"start":1},"text":""}`, `{"a":{"text":"x"},"text":"\\\"y"}`,
		`{"state":{"status":"running","time":{"start":1}}}`, `{"st\u0061te":{"status":"running"}}`, `{"time":null}`, `{"time":[]}`, `{"state":{"status":"pending","error":{}}}`,
		`{"a.b":1,"text.x":2,"time":{ }}`, `{"text":"a","text":"b","time":{"start":1,"end":2},"time":{"start":3}}`, `{"state":{"status":"running"},"state":{"status":"completed"}}`,
		`{"state":{"status":"completed","status":"running"},"text":null}`, `{"text":"\ud800\u0041"}`,
	} {
		f.Add([]byte(payload), "tail\n\"")
	}
	f.Fuzz(func(t *testing.T, payload []byte, tail string) {
		if !ledger.IsJSON(payload) || !utf8.Valid(payload) || !rawjson.IsObject(payload) || !utf8.ValidString(tail) {
			return
		}
		before := members(t, payload)
		edited := func(by string, got []byte, names ...string) map[string]json.RawMessage {
			after := members(t, got)
			for name, was := range before {
				if !slices.Contains(names, name) && string(after[name]) != string(was) {
					t.Fatalf("%s of %q is %q: %q is another", by, payload, got, name)
				}
			}
			if count(t, got)-count(t, payload) != len(after)-len(before) {
				t.Fatalf("%s of %q is %q: a name is there twice", by, payload, got)
			}
			return after
		}
		edited("the end of the turn's part", closePart(payload, true, "failed", 7), "time", "state")
		after := edited("the end of the message", finalizeMessage(payload, &opargs.Finalize{Usage: []byte(`{"u":1}`), Failure: []byte(`{"e":2}`), Completed: 9}, 7), "time", "tokens", "error")
		if string(after["tokens"]) != `{"u":1}` || string(after["error"]) != `{"e":2}` {
			t.Fatalf("%q has not what finalize gave", payload)
		}
		length := session.TextLen(payload)
		if length == session.NoText || tail == "" {
			return
		}
		folded := session.FoldText(payload, []byte(tail))
		var was, is string
		if raw, found := before["text"]; found {
			was = ledger.Unquote(raw)
		}
		if is = ledger.Unquote(edited("the fold", folded, "text")["text"]); is != was+tail || uint64(len(was)) != length || session.TextLen(folded) != uint64(len(is)) {
			t.Fatalf("%q and %q: %q, with %q of %d bytes", payload, tail, folded, is, session.TextLen(folded))
		}
	})
}

// count is how many members an object has, of equal names too.
func count(t *testing.T, object []byte) (n int) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for ; d.More(); n++ {
		var value json.RawMessage
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return n
}
