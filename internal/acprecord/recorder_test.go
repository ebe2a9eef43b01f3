package acprecord

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
)

var update = flag.Bool("update", false, "write the ops into the transcripts")

func (o Op) String() string {
	switch {
	case o.Method == "appendText":
		return fmt.Sprintf("appendText %s %d %q", o.Key, o.Offset, o.Text)
	case o.Error != nil:
		return fmt.Sprintf("finalize %s %s error %s", o.Message, o.Status, o.Error)
	case o.Method == "put" && o.New:
		return fmt.Sprintf("put new %s %s", o.Key, o.Payload)
	case o.Method == "put":
		return fmt.Sprintf("put %s %s", o.Key, o.Payload)
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Method, o.Message, o.Status)) + " " + string(o.Payload)
}

// TestTranscripts tells the recorder what is in testdata/*.txt, and compares the ops, which follow each line, indented.
//
//	prompt USER TURN TEXT      a prompt; TEXT may be a JSON list of blocks
//	{"sessionUpdate":…}        an update
//	+MS                        time passes; what is due is flushed
//	result {…}, fail NAME WHY, stop NAME WHY, abandon TURN NAME WHY
//	state STATE
func TestTranscripts(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(want) {
				t.Errorf("the ops differ (go test -update shows where in git diff); got\n%s", got)
			}
		})
	}
}

func replay(t *testing.T, text string) string {
	r := New(Config{Session: "ses_1", Dir: "/work", Run: "r1"}, int64(500*strings.Count(text, "# known")))
	now := time.UnixMilli(1000)
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&out, line)
		verb, rest, _ := strings.Cut(line, " ")
		word := func() (w string) { w, rest, _ = strings.Cut(rest, " "); return w }
		var ops []Op
		switch {
		case line == "" || verb[0] == '#':
			continue
		case verb == "prompt":
			user, turn := word(), word()
			blocks := []json.RawMessage{encode(map[string]string{"type": "text", "text": rest})}
			if strings.HasPrefix(rest, "[") {
				if err := json.Unmarshal([]byte(rest), &blocks); err != nil {
					t.Fatal(err)
				}
			}
			ops = r.Prompt(now, user, turn, blocks)
		case verb == "result":
			result, err := acp.Read[acp.PromptResult](json.RawMessage(rest))
			if err != nil {
				t.Fatal(err)
			}
			ops = r.Result(now, &result)
		case verb == "fail" || verb == "stop":
			ops = r.Fail(now, verb == "stop", word(), rest)
		case verb == "abandon":
			ops = []Op{r.Abandoned(word(), false, word(), rest)}
		case verb == "state":
			ops = r.SetState(func(s *State) { s.State, s.Name = rest, "tester" })
		case verb[0] == '+':
			ms, err := strconv.Atoi(verb[1:])
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Duration(ms) * time.Millisecond)
			if due := r.Due(); !due.IsZero() && !due.After(now) {
				ops = r.Flush(now)
			} else if extra := r.Flush(now); len(extra) > 0 {
				t.Errorf("%s: ops before they are due: %v", line, extra)
			}
		default:
			u, err := acp.Read[acp.Update](json.RawMessage(line))
			if err != nil {
				t.Fatal(line, err)
			}
			ops, err = r.Update(now, &u)
			if err != nil {
				fmt.Fprintf(&out, "  %v\n", err)
			}
		}
		for _, o := range ops {
			fmt.Fprintf(&out, "  %s\n", o)
		}
	}
	return out.String()
}

// chunk is a chunk of text.
func chunk(text string) *acp.Update {
	return &acp.Update{Kind: acp.AgentChunk, Content: encode(map[string]string{"type": "text", "text": text})}
}

func FuzzUpdates(f *testing.F) {
	names, _ := filepath.Glob("testdata/*.txt")
	for _, name := range names {
		text, _ := os.ReadFile(name)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := New(Config{Session: "s"}, 0)
		now := time.UnixMilli(1)
		check := func(ops []Op) {
			for _, o := range ops {
				if o.Payload != nil && !json.Valid(o.Payload) {
					t.Fatalf("no JSON: %s", o)
				}
			}
		}
		for line := range strings.Lines(text) {
			now = now.Add(20 * time.Millisecond)
			if u, err := acp.Read[acp.Update](json.RawMessage(line)); err == nil {
				ops, _ := r.Update(now, &u)
				check(ops)
			}
			check(r.Flush(now))
		}
		check(r.Fail(now, false, "n", "r"))
	})
}
