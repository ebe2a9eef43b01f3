package e2e

// Every recording of a real opencode session, through the CLI: import, export,
// tail, and import again.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

const recordings = "../../testdata/opencode"

func TestRecordings(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		files, err := filepath.Glob(recordings + "/*.jsonl")
		if err != nil || len(files) != 4 {
			t.Fatalf("recordings: %v, %v", files, err)
		}
		srv := startServer(t, serverConfig{URL: db.url(t)})
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := newHome(t)
				owner := "@" + filepath.Join(srv.data, "owner.ref")
				id := strings.TrimSpace(lastLine(h.do("session", "import", file, "--owner", owner)))
				if got, want := h.do("session", "export", id), expectedExport(t, name); !sameJSON([]byte(got), want) {
					t.Errorf("the export is not what it should be:\n got %s\nwant %s", clipped(got), clipped(string(want)))
				}
				events := tailedLines(t, splitLines(h.do("session", "tail", id, "--from", "0", "--json")))
				gapless(t, "tail", events, 0, uint64(len(events)))
				if len(events) < 20 {
					t.Errorf("%d events only", len(events))
				}
				h.do("session", "import", file)
				rest := splitLines(h.do("session", "tail", id, "--from", strconv.Itoa(len(events)), "--json"))
				if len(rest) != 0 {
					t.Errorf("the second import added %d events: %s", len(rest), rest[0])
				}
			})
		}
	})
}

func lastLine(text string) string {
	lines := splitLines(text)
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// removedInD is the part that d's agent removed again: opencode never syncs that.
const removedInD = "prt_1fa850155001B8KC5I1npU25uM"

// expectedExport is the export beside a recording. That of d shows what was never
// synced: a later title and its time, and one part less. There what was synced
// last stands in.
func expectedExport(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recordings, name+".export.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(name, "d-") {
		return text
	}
	doc, synced := parseValue(text).(map[string]any), map[string]json.RawMessage{}
	for _, b := range recordedBatches(t, name, capability.Ref{}) {
		for _, o := range b.Ops {
			synced[parseValue(o.argument("key")).(string)] = o.argument("payload")
		}
	}
	info, last := doc["info"].(map[string]any), parseValue(synced["session"]).(map[string]any)
	if info["title"] == last["title"] {
		t.Error("the recording's title is the export's: this exception is no longer one")
	}
	info["title"] = last["title"]
	info["time"].(map[string]any)["updated"] = last["time"].(map[string]any)["updated"]
	for _, m := range doc["messages"].([]any) {
		m := m.(map[string]any)
		removed, ok := synced[fmt.Sprintf("part/%s/%s", m["info"].(map[string]any)["id"], removedInD)]
		if !ok {
			continue
		}
		id := func(p any) string { return p.(map[string]any)["id"].(string) }
		parts := append(m["parts"].([]any), parseValue(removed))
		slices.SortFunc(parts, func(a, b any) int { return strings.Compare(id(a), id(b)) })
		m["parts"] = parts
	}
	return []byte(canonical(doc))
}

// sameJSON compares value for value.
func sameJSON(a, b []byte) bool { return canonical(parseValue(a)) == canonical(parseValue(b)) }
