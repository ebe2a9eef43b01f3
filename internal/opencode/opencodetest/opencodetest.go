// Package opencodetest provides recordings of real opencode sessions for tests, and their
// expected exports.
package opencodetest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
)

// Names are the names of the recordings: NAME.jsonl is the traffic, NAME.export.json the expected
// export.
var Names = []string{"a-edit-1.18.33", "b-long-1.18.33", "d-revert-unshare-1.18.33", "f-streamlong-1.1.65"}

// Limits are a server's defaults.
var Limits = opencode.Limits{Ops: 1000, Bytes: 8 << 20, Payload: 4 << 20}

// Path returns the path of a recording's file, from any folder of the module.
func Path(t testing.TB, file string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "opencode", file)
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("this is not in the module")
		}
		dir = up
	}
}

// Read reads a recording's file.
func Read(t testing.TB, file string, limits opencode.Limits) *opencode.Recording {
	t.Helper()
	f, err := os.Open(Path(t, file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rec, err := opencode.ReadRecording(f, limits)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// Decode parses a document, keeping its numbers as written.
func Decode(t testing.TB, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("not JSON: %v", err)
	}
	return v
}

// expectedExport returns the expected export of a recording. In d the agent removed a part and
// changed the session's title after its last sync: the export here cannot have those changes.
func expectedExport(t testing.TB, name string, got any) any {
	t.Helper()
	data, err := os.ReadFile(Path(t, name+".export.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := Decode(t, data)
	if !strings.HasPrefix(name, "d-") {
		return want
	}
	w, g := want.(map[string]any), got.(map[string]any)
	info, have := w["info"].(map[string]any), g["info"].(map[string]any)
	if info["title"] != "after unshare" || have["title"] != "Revert and unshare" {
		t.Errorf("recording d: title %q in the export, %q here", info["title"], have["title"])
	}
	info["title"] = have["title"]
	info["time"].(map[string]any)["updated"] = have["time"].(map[string]any)["updated"]
	const removed = "prt_1fa850155001B8KC5I1npU25uM"
	for i, m := range g["messages"].([]any) {
		for j, p := range m.(map[string]any)["parts"].([]any) {
			if p.(map[string]any)["id"] == removed {
				wm := w["messages"].([]any)[i].(map[string]any)
				wm["parts"] = slices.Insert(wm["parts"].([]any), j, p)
			}
		}
	}
	return want
}

// CheckShared is CheckExport for the export of a share, which lacks what is Hidden.
func CheckShared(t testing.TB, name string, export []byte) {
	t.Helper()
	got := Decode(t, export)
	want := expectedExport(t, name, got).(map[string]any)
	hideReverted(want)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the share's export differs from the expected one", name)
	}
}

// Hidden returns the id of the message to which opencode has reverted a recording's session at its end, "" for none, and how many
// messages and parts that hides.
func Hidden(t testing.TB, name string) (message string, n int) {
	t.Helper()
	data, err := os.ReadFile(Path(t, name+".export.json"))
	if err != nil {
		t.Fatal(err)
	}
	return hideReverted(Decode(t, data).(map[string]any))
}

func hideReverted(export map[string]any) (message string, n int) {
	revert, _ := export["info"].(map[string]any)["revert"].(map[string]any)
	message, ok := revert["messageID"].(string)
	if !ok {
		return "", 0
	}
	messages := export["messages"].([]any)
	at := slices.IndexFunc(messages, func(m any) bool { return m.(map[string]any)["info"].(map[string]any)["id"] == message })
	for _, m := range messages[at:] {
		n += 1 + len(m.(map[string]any)["parts"].([]any))
	}
	export["messages"] = messages[:at]
	return message, n
}

// CheckExport compares an export, value for value, with the expected one of a recording.
func CheckExport(t testing.TB, name string, export []byte) {
	t.Helper()
	got := Decode(t, export)
	if want := expectedExport(t, name, got); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: the export differs from the expected one", name)
	}
}
