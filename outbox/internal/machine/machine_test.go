package machine

// The machine, by transcripts (testdata/machine.txt): what happened, and what it asks for.

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// story is one of testdata/machine.txt.
type story struct {
	win   Window
	lines []string
}

// readStories reads those that the JavaScript client's machine is told as well, by name.
func readStories(t *testing.T) map[string]story {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/machine.txt")
	if err != nil {
		t.Fatal(err)
	}
	stories := map[string]story{}
	parts := strings.Split(string(text), "\n## ")
	for _, part := range parts[1:] {
		name, text, _ := strings.Cut(strings.TrimSpace(part), "\n")
		var s story
		for line := range strings.SplitSeq(text, "\n") {
			window, is := strings.CutPrefix(line, "window ")
			switch {
			case is:
				words := strings.Fields(window)
				for i, to := range map[string]*int{"batches": &s.win.Batches, "bytes": &s.win.Bytes, "streams": &s.win.Streams} {
					if at := slices.Index(words, i); at >= 0 {
						if *to, err = strconv.Atoi(words[at+1]); err != nil {
							t.Fatalf("%s: %v", name, err)
						}
					}
				}
			case line != "Go alone":
				s.lines = append(s.lines, line)
			}
		}
		if stories[name].lines != nil {
			t.Fatalf("%s is there twice", name)
		}
		stories[name] = s
	}
	if len(stories) < 50 {
		t.Fatalf("%d stories", len(stories))
	}
	return stories
}

func TestMachine(t *testing.T) {
	t.Parallel()
	for name, c := range readStories(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(c.win)
			for i, line := range c.lines {
				what, want, ok := strings.Cut(line, "→")
				if !ok {
					t.Fatalf("line %d has no arrow", i+1)
				}
				got := s.line(strings.TrimSpace(what))
				if got != strings.TrimSpace(want) {
					t.Fatalf("line %d: %s\n got %s\nwant %s", i+1, strings.TrimSpace(what), got, strings.TrimSpace(want))
				}
				s.checkInvariants(t)
			}
		})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]ErrorClass{
		fault.Fenced: LeaseLost, fault.Gap: ResendFirst, fault.ServerBehind: StopStream, fault.OutboxDiverged: StopStream,
		fault.Overloaded: RetryStream, fault.QuotaExceeded: RetryStream, fault.NotYetKnown: RetryStream, fault.Internal: RetryStream, fault.DiskFull: RetryStream,
		fault.Unavailable: RetryHost, fault.Disconnected: RetryHost, fault.Draining: RetryHost, fault.Canceled: RetryHost,
		fault.UnknownRef: StopStream, fault.WrongOutbox: StopStream, fault.Plaintext: StopStream, fault.Incompatible: StopStream, fault.Revoked: StopStream,
		fault.TooLarge: Unsendable, fault.Malformed: Unsendable,
	} {
		if got, f := ClassifyError(fmt.Errorf("call: %w", code.With("x"))); got != want || f.Code != code {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	if got, f := ClassifyError(fmt.Errorf("read tcp: reset")); got != RetryHost || f.Code != fault.Disconnected || f.Message == "" {
		t.Errorf("unknown: %d %v", got, f)
	}
}
