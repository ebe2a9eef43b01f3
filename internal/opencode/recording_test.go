package opencode_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// foldPuts is the state after a recording: the last put of each key.
func foldPuts(rec *opencode.Recording) []opencode.Put {
	last := map[string][]byte{}
	for _, b := range rec.Batches {
		for _, p := range b.Puts {
			last[p.Key] = p.Payload
		}
	}
	var out []opencode.Put
	for _, key := range slices.Sorted(maps.Keys(last)) {
		out = append(out, opencode.Put{Key: key, Payload: last[key]})
	}
	return out
}

func TestRecordingsFoldToTheirExports(t *testing.T) {
	t.Parallel()
	for _, name := range opencodetest.Names {
		rec := opencodetest.Read(t, name+".jsonl", opencodetest.Limits)
		var out bytes.Buffer
		doc := opencode.NewExport(foldPuts(rec), rec.External)
		if _, err := doc.WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		if doc.Orphans != 0 {
			t.Errorf("%s: %d parts have no message", name, doc.Orphans)
		}
		opencodetest.CheckExport(t, name, out.Bytes())
		if len(rec.Notices) != 0 {
			t.Errorf("%s: notices %q", name, rec.Notices)
		}
	}
}

func TestExportsReadBack(t *testing.T) {
	t.Parallel()
	for _, name := range opencodetest.Names {
		rec := opencodetest.Read(t, name+".export.json", opencodetest.Limits)
		var out bytes.Buffer
		if _, err := opencode.NewExport(foldPuts(rec), rec.External).WriteTo(&out); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(opencodetest.Path(t, name+".export.json"))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(opencodetest.Decode(t, out.Bytes()), opencodetest.Decode(t, data)) {
			t.Errorf("%s: the export of an imported export differs", name)
		}
	}
}

// Values of own kinds are exported and read back byte for byte.
func TestExportsHaveOwnKinds(t *testing.T) {
	t.Parallel()
	puts := []opencode.Put{
		{Key: "session", Payload: []byte(`{"id":"ses_1"}`)}, {Key: "todo/2", Payload: []byte(`{"b": 1.50, "a":"\u00e9" }`)},
		{Key: "message/m", Payload: []byte(`{"id":"m"}`)}, {Key: "plan", Payload: []byte(`[1,  2]`)}, {Key: "todo/1", Payload: []byte(`null`)},
	}
	var out bytes.Buffer
	if _, err := opencode.NewExport(puts, "ses_1").WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(out.Bytes()) || !strings.Contains(out.String(), "\n  \"state\": {\n    \"todo/2\": {\"b\": 1.50,") {
		t.Fatal(out.String())
	}
	rec, err := opencode.ReadRecording(&out, opencodetest.Limits)
	if err != nil {
		t.Fatal(err)
	}
	var got []opencode.Put
	for _, b := range rec.Batches {
		got = append(got, b.Puts...)
	}
	if want := []opencode.Put{puts[0], puts[2], puts[1], puts[3], puts[4]}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	for text, want := range map[string]string{
		`{"info":{"id":"s"},"messages":[],"state":{"todo/1":1,"message/m":{}}}`: "the state has message/m, which is not a key of an own kind",
		`{"info":{"id":"s"},"messages":[],"state":{"Todo":1}}`:                  "is not a key",
		`{"info":{"id":"s"},"messages":[],"state":[1]}`:                         "a state that is not an object",
	} {
		if _, err := opencode.ReadRecording(strings.NewReader(text), opencodetest.Limits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestOneSyncIsOneBatch(t *testing.T) {
	t.Parallel()
	for _, name := range opencodetest.Names {
		data, err := os.ReadFile(opencodetest.Path(t, name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var lines []int
		for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			if strings.Contains(line[:min(len(line), 200)], `/sync"`) {
				lines = append(lines, i+1)
			}
		}
		rec := opencodetest.Read(t, name+".jsonl", opencodetest.Limits)
		var got []int
		for _, b := range rec.Batches {
			got = append(got, b.Line)
		}
		if !slices.Equal(got, lines) {
			t.Errorf("%s: batches are of lines %v, the syncs are in %v", name, got, lines)
		}
	}
}

func TestSplittingKeepsOrderAndLimits(t *testing.T) {
	t.Parallel()
	whole := opencodetest.Read(t, "f-streamlong-1.1.65.jsonl", opencodetest.Limits)
	cut := opencodetest.Read(t, "f-streamlong-1.1.65.jsonl", opencode.Limits{Ops: 7, Bytes: 20_000, Payload: 4 << 20})
	keys := func(r *opencode.Recording) (keys []string) {
		for _, b := range r.Batches {
			for _, p := range b.Puts {
				keys = append(keys, p.Key)
			}
		}
		return keys
	}
	if !slices.Equal(keys(whole), keys(cut)) {
		t.Error("cutting batches changed the order of the puts")
	}
	for _, b := range cut.Batches {
		size := 0
		for _, p := range b.Puts {
			size += len(p.Payload)
		}
		if len(b.Puts) > 7 || size > 20_000 && len(b.Puts) > 1 {
			t.Errorf("line %d: a batch of %d puts and %d bytes", b.Line, len(b.Puts), size)
		}
	}
}

func TestChainsTellPlaceAndContent(t *testing.T) {
	t.Parallel()
	item := func(n int) string {
		return fmt.Sprintf(`{"method":"POST","path":"/api/share/x/sync","body":{"data":[{"type":"message","data":{"id":"msg_%d"}}]}}`, n)
	}
	read := func(ns ...int) (chains [][32]byte) {
		text := `{"method":"POST","path":"/api/share","body":{"sessionID":"ses_x"}}` + "\n"
		for _, n := range ns {
			text += item(n) + "\n"
		}
		rec, err := opencode.ReadRecording(strings.NewReader(text), opencodetest.Limits)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range rec.Batches {
			chains = append(chains, b.Chain)
		}
		return chains
	}
	short, long, other := read(1, 1), read(1, 1, 2), read(2, 1, 2)
	if !slices.Equal(short, long[:2]) {
		t.Error("a file that has grown does not continue the shorter one")
	}
	if short[0] == short[1] {
		t.Error("the same batch twice has one chain")
	}
	for i := range other {
		if other[i] == long[i] {
			t.Errorf("batch %d of another file has the chain of this one", i)
		}
	}
}

func TestBadRecordingsNameTheirLine(t *testing.T) {
	t.Parallel()
	share := `{"method":"POST","path":"/api/share","body":{"sessionID":"ses_x"}}` + "\n"
	sync := func(items string) string {
		return share + `{"method":"POST","path":"/api/share/x/sync","body":{"data":[` + items + `]}}`
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"white", " \n\n\t", "the file is empty"},
		{"garbage", "\x00\x01", "line 1: not JSON"},
		{"another object", `{"a":1}`, "line 1: neither an opencode export"},
		{"cut line", share + `{"method":"POST","path":"/api/sha`, "line 2: not a recorded request"},
		{"cut first line", `{"method":"POST","path":`, "line 1: not a recorded request"},
		{"cut export", "{\n \"info\": {\"id\":\"ses_x\"},\n \"messages\": [", "line 3: not JSON"},
		{"no data", share + `{"method":"POST","path":"/x/sync","body":7}`, "line 2: a sync without"},
		{"no id", sync(`{"type":"message","data":{}}`), "line 2: a message without its id"},
		{"part of nothing", sync(`{"type":"part","data":{"id":"prt_1"}}`), "line 2: a part without its id"},
		{"number", sync(`{"type":"message","data":7}`), "line 2: a message that is not an object"},
		{"no item", sync(`7`), "line 2: item 1 is not"},
		{"model", sync(`{"type":"model","data":[{}]}`), "line 2: a model without its id"},
		{"two sessions", sync(`{"type":"session","data":{"id":"ses_y"}}`), "line 2: a second session"},
		{"no session", `{"method":"POST","path":"/api/share/x/sync","body":{"data":[]}}`, "no session is named"},
	} {
		_, err := opencode.ReadRecording(strings.NewReader(c.text), opencodetest.Limits)
		if err == nil || !strings.Contains(err.Error(), c.want) || fault.CodeOf(err) != fault.Malformed {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	_, err := opencode.ReadRecording(strings.NewReader(sync(`{"type":"message","data":{"id":"msg_1","x":"`+strings.Repeat("x", 100)+`"}}`)), opencode.Limits{Ops: 1, Bytes: 50, Payload: 50})
	if fault.CodeOf(err) != fault.TooLarge || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("oversize Payload: %v", err)
	}
}

// TestLeftOutAndRepeated: what does not fit can be left out, and what a state has twice
// is said.
func TestLeftOutAndRepeated(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 200)
	export := `{"info":{"id":"ses_x"},"messages":[{"info":{"id":"msg_1","v":1},"parts":[{"id":"prt_1","messageID":"msg_1","text":"` + large + `"}]},` +
		`{"info":{"id":"msg_1","v":2},"parts":[{"id":"prt_2","messageID":"msg_1"}]},{"info":{"id":"msg_2"},"parts":[]}]}`
	rec, err := opencode.ReadRecording(strings.NewReader(export), opencode.Limits{Ops: 100, Bytes: 1000, Payload: 100, SkipTooLarge: true})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, b := range rec.Batches {
		for _, p := range b.Puts {
			keys = append(keys, p.Key)
		}
	}
	if got := strings.Join(keys, " "); got != "session message/msg_1 message/msg_1 part/msg_1/prt_2 message/msg_2" {
		t.Errorf("read: %s", got)
	}
	notices := strings.Join(rec.Notices, "\n")
	if len(rec.Notices) != 2 || !strings.Contains(notices, "message/msg_1 stands more than once") || !strings.Contains(notices, "left out part/msg_1/prt_1") {
		t.Errorf("notices: %q", rec.Notices)
	}
}

func TestUnknownItemsAreSkippedWithANotice(t *testing.T) {
	t.Parallel()
	text := `{"method":"POST","path":"/api/share/x/sync","body":{"data":[{"type":"session","data":{"id":"ses_x"}},{"type":"hologram","data":{}},` +
		`{"type":"session_diff","data":[]},{"type":"model","data":[{"id":"a/b"},{"id":"c"}]},` +
		`{"type":"messages","data":{"sessionID":"ses_x","messages":[{"info":{"id":"msg_1"},"parts":[{"id":"prt_1","messageID":"msg_1"}]}]}}]}}`
	rec, err := opencode.ReadRecording(strings.NewReader(text), opencodetest.Limits)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Notices) != 1 || !strings.Contains(rec.Notices[0], "hologram") {
		t.Errorf("notices %q", rec.Notices)
	}
	var keys []string
	for _, p := range rec.Batches[0].Puts {
		keys = append(keys, p.Key+"="+string(p.Payload))
	}
	want := []string{`session={"id":"ses_x"}`, `session_diff={"diff":[]}`, `model/a/b={"id":"a/b"}`, `model/c={"id":"c"}`,
		`message/msg_1={"id":"msg_1"}`, `part/msg_1/prt_1={"id":"prt_1","messageID":"msg_1"}`}
	if !slices.Equal(keys, want) {
		t.Errorf("got %q\nwant %q", keys, want)
	}
}

func FuzzReadRecording(f *testing.F) {
	f.Add([]byte(`{"method":"POST","path":"/x/sync","body":{"data":[{"type":"session","data":{"id":"ses_x"}}]}}`))
	f.Add([]byte(`{"info":{"id":"ses_x"},"messages":[{"info":{"id":"msg_1"},"parts":[]}]}`))
	f.Add([]byte(`[{"type":"message","data":{"id":"m","sessionID":"s"}}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := opencode.ReadRecording(bytes.NewReader(data), opencodetest.Limits)
		if utf8.Valid(data) && err != nil && !utf8.ValidString(err.Error()) {
			t.Errorf("%q is refused with %q", data, err)
		}
		if err != nil {
			return
		}
		for _, n := range rec.Notices {
			if utf8.Valid(data) && !utf8.ValidString(n) {
				t.Errorf("%q is read with %q", data, n)
			}
		}
		for _, b := range rec.Batches {
			for _, p := range b.Puts {
				if !json.Valid(p.Payload) || p.Payload[0] != '{' && p.Key[:5] != "model" {
					t.Errorf("%s has payload %q", p.Key, p.Payload)
				}
			}
		}
	})
}
