package uimessage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/session"
)

var limits = opencodetest.Limits

// putsOf returns what a recording puts, in order.
func putsOf(rec *opencode.Recording) (puts []opencode.Put) {
	for _, b := range rec.Batches {
		puts = append(puts, b.Puts...)
	}
	return puts
}

// failing is a test, or a check of rapid's.
type failing interface {
	Helper()
	Fatalf(format string, args ...any)
}

// exported returns the array of a session.
func exported(t failing, entries []opencode.Put) []byte {
	t.Helper()
	var b bytes.Buffer
	if n, err := NewExport(entries).WriteTo(&b); err != nil || int(n) != b.Len() {
		t.Fatalf("written: %d, %v", n, err)
	}
	return b.Bytes()
}

// read returns what an array is as a session.
func read(t failing, array []byte) *opencode.Recording {
	t.Helper()
	rec, err := Read(bytes.NewReader(array), Options{Limits: limits})
	if err != nil {
		t.Fatalf("%v in %s", err, array)
	}
	return rec
}

// Sessions of the real opencode are the same, value for value, after their way through an array, and so is the array.
func TestRecordedSessions(t *testing.T) {
	t.Parallel()
	for _, name := range opencodetest.Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := opencodetest.Read(t, name+".export.json", limits)
			puts := putsOf(rec)
			array := exported(t, puts)
			if lines := strings.Count(string(array), "\n"); lines != 2+NewExport(puts).Messages() {
				t.Errorf("%d lines", lines)
			}
			again := read(t, array)
			if again.External != rec.External || again.Created != rec.Created || again.Parent != rec.Parent || again.Compaction != rec.Compaction || !again.ByLog {
				t.Errorf("it is %q of %d, child of %q, compacted %+v; it was %q of %d, child of %q, compacted %+v",
					again.External, again.Created, again.Parent, again.Compaction, rec.External, rec.Created, rec.Parent, rec.Compaction)
			}
			same(t, puts, putsOf(again))
			if twice := exported(t, putsOf(again)); !bytes.Equal(twice, array) {
				t.Errorf("the array is another:\n%s\n%s", array, twice)
			}
		})
	}
}

// same checks that two states have equal values under equal keys, in one order.
func same(t testing.TB, want, got []opencode.Put) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d values, and there were %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Key != want[i].Key || !equal(compact(got[i].Payload), compact(want[i].Payload)) {
			t.Errorf("%s is %s\n%s was %s", got[i].Key, got[i].Payload, want[i].Key, want[i].Payload)
		}
	}
}

// What mooring run records of agents comes back, too: the puts in the transcripts of package acprecord.
func TestRecordedAgents(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../acprecord/testdata/*.txt")
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	diffs := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var puts []opencode.Put
		for line := range strings.Lines(string(text)) {
			method, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			at := strings.Index(rest, "{")
			if at < 0 || line[0] != ' ' {
				continue
			}
			key := strings.TrimPrefix(strings.TrimSpace(rest[:at]), "new ")
			switch {
			case method == "begin":
				key = session.MessageKey(key)
			case method != "put":
				continue
			}
			if k, bad := session.ParseKey(key); bad == nil && !k.Own() {
				puts = append(puts, opencode.Put{Key: key, Payload: []byte(rest[at:])})
			}
		}
		puts = opencode.Last(puts)
		array := exported(t, puts)
		diffs += bytes.Count(array, []byte(diffPart))
		again := putsOf(read(t, array))
		if twice := exported(t, again); !bytes.Equal(twice, array) {
			t.Errorf("%s: the array is another:\n%s\n%s", name, array, twice)
		}
		// A message's parts stand behind it there.
		byKey := func(a, b opencode.Put) int { return strings.Compare(a.Key, b.Key) }
		slices.SortFunc(puts, byKey)
		slices.SortFunc(again, byKey)
		same(t, puts, again)
	}
	if diffs == 0 {
		t.Error("there is no diff in them")
	}
}
