package aisdk

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/prompts"
	"github.com/mooring-rpc/mooring/internal/session"
)

var update = flag.Bool("update", false, "write the transcripts anew")

// A transcript has what happens to a session, a line each, and below it, indented, the chunks that are written for it.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("it is\n%s", got)
			}
		})
	}
}

// play plays the lines of a transcript, and returns it with what is written.
func play(t *testing.T, text string) string {
	var out strings.Builder
	m, cursor, step := newMessage(), uint64(0), ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") {
			continue
		}
		out.WriteString(line)
		verb, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, rest, _ := strings.Cut(rest, " ")
		k := session.Key{Kind: session.KeyPart, Message: step, ID: id}
		cursor++
		stale := false
		switch verb {
		case "#":
		case "begin":
			step = id
			m.Begin(id)
		case "put":
			stale = m.Put(k, []byte(rest), cursor)
		case "append":
			offset, delta, _ := strings.Cut(rest, " ")
			stale = m.Append(k, fmt.Appendf(nil, `{"offset":%s,"text":%s}`, offset, delta), cursor)
		case "remove":
			stale = m.Remove(session.PartKey(step, id), cursor)
		case "reset":
			stale = !m.Reset(id)
		case "end":
			m.end(prompts.Outcome{Reason: id})
		default:
			t.Fatalf("%q", line)
		}
		if stale {
			out.WriteString("  stale\n")
		}
		for _, chunk := range chunks(t, m.take()) {
			fmt.Fprintf(&out, "  %s\n", chunk)
		}
	}
	return out.String()
}

// chunks returns the texts of the chunks of a stream, each of which is JSON in one line, but for the last.
func chunks(t testing.TB, stream []byte) (list []string) {
	for frame := range strings.SplitSeq(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
		text, ok := strings.CutPrefix(frame, "data: ")
		switch {
		case frame == "" || strings.HasPrefix(frame, ":"):
			continue
		case !ok || strings.ContainsAny(text, "\n\r"), text != "[DONE]" && !json.Valid([]byte(text)):
			t.Fatalf("a chunk is %q", frame)
		}
		list = append(list, text)
	}
	return list
}

// A value of several lines is one line of the stream; a long text comes in pieces of whole characters.
func TestLinesAndPieces(t *testing.T) {
	t.Parallel()
	m := newMessage()
	m.Begin("m")
	m.Put(session.Key{Message: "m", ID: "a"}, []byte("{\"type\":\"tool\",\r\n\"state\":{\"status\":\"completed\",\"input\":{\n\"a\":\r1.50\n}, \"output\":[\"x\\n\",\n 2]}}"), 1)
	long := strings.Repeat("日本語🙂", 10_000)
	m.Put(session.Key{Message: "m", ID: "b"}, []byte(`{"type":"text","text":`+strconv.Quote(long)+`}`), 2)
	m.Append(session.Key{Message: "m", ID: "b"}, []byte(`{"offset":`+strconv.Itoa(len(long))+`,"text":`+strconv.Quote(long)+`}`), 3)
	m.end(prompts.Outcome{Reason: "stop"})
	out := m.take()
	if !bytes.Contains(out, []byte(`"input":{ "a": 1.50 }`)) || !bytes.Contains(out, []byte(`"output":["x\n",  2]`)) {
		t.Errorf("the values became %s", out[:1000])
	}
	r := fold(t, chunks(t, out))
	for _, p := range r.parts {
		if p["type"] == "text" && p["text"] != long+long {
			t.Error("the text is another")
		}
	}
	for _, text := range chunks(t, out) {
		if len(text) > pieceBytes+200 {
			t.Errorf("a chunk has %d bytes", len(text))
		}
	}
}

// A change that a value had already when it was read writes nothing when its event comes, and does not begin the step anew.
func TestChangesThatWereRead(t *testing.T) {
	t.Parallel()
	m, k := newMessage(), session.Key{Kind: session.KeyPart, Message: "m", ID: "p"}
	m.Begin("m")
	m.Put(k, []byte(`{"type":"text","text":"one two three"}`), 9)
	m.take()
	if m.Put(k, []byte(`{"type":"text","text":"one"}`), 7) || m.Append(k, []byte(`{"offset":3,"text":" two"}`), 8) || m.Remove(session.PartKey("m", "p"), 9) {
		t.Error("it begins the step anew")
	}
	if out := m.take(); len(out) > 0 {
		t.Errorf("it writes %s", out)
	}
}
