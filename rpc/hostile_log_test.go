// What is written of a hostile peer, to it and to the log: one line that a person understands, and nothing of our inside.

package rpc

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
)

// insides are words of the Go runtime, for no peer to read.
var insides = []string{"goroutine ", ".go:", "runtime error", "panic:", "0xc0"}

// checkWords checks what a peer is told.
func checkWords(t testing.TB, said string) {
	t.Helper()
	for _, word := range insides {
		if strings.Contains(said, word) {
			t.Errorf("the peer is told %q", said)
		}
	}
}

// longestLine is how long a line about a connection may be: a reason, each of its bytes escaped, and what is around it.
const longestLine = 4*maxReasonBytes + 500

// checkLog checks a connection's log: a line for its end if it was the peer's doing, and else what handlers did.
func checkLog(t testing.TB, log string, peersDoing bool) {
	t.Helper()
	ends := 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, " peer=") || len(line) > longestLine && !strings.Contains(line, "stack=") {
			t.Errorf("a line of %d bytes: %.200q", len(line), line)
		}
		switch {
		case strings.Contains(line, `msg="connection aborted"`), strings.Contains(line, `msg="connection ended"`):
			ends++
			checkWords(t, line)
			if _, reason, ok := strings.Cut(line, " reason="); !ok || len(reason) < 5 {
				t.Errorf("no reason: %q", line)
			}
		case strings.Contains(line, `msg="handler panicked"`), strings.Contains(line, `msg="call failed"`):
		default:
			t.Errorf("what is this? %.500q", line)
		}
	}
	if want := map[bool]int{true: 1}[peersDoing]; ends != want {
		t.Errorf("%d lines for the connection's end, want %d:\n%s", ends, want, log)
	}
}

// Whatever the reason has in it, and however often the peer goes on, there is one line.
func TestOneLineForAnEnd(t *testing.T) {
	t.Parallel()
	rubbish := strings.Repeat("goroutine 7 [running]:\n\x00\x1b[31m\xff\u2028", 5000)
	for name, messages := range map[string][]string{
		"abort":             {"abort failed x"},
		"abort after abort": {"abort failed x", "abort failed x", "finish q=9"},
		"violations":        {"finish q=9", "finish q=9", "return a=7 results"},
		"a violation late":  {"bootstrap q=0", "disembargo sender=0 to=cap:0", "finish q=9"},
	} {
		var log bytes.Buffer
		h := &hostile{TB: t}
		h.c = NewConn(quiet{}, Config{Bootstrap: newTestObject("boot"), Logger: slog.New(slog.NewTextHandler(&log, nil))})
		h.c.loop.Manual = true
		for _, m := range messages {
			words, err := splitWords(m)
			if err != nil {
				t.Fatal(err)
			}
			if words[len(words)-1] == "x" {
				words[len(words)-1] = rubbish
			}
			b, err := buildMessage(args{bare: words, named: parseArgs(words).named})
			if err != nil {
				t.Fatal(err)
			}
			h.sendRaw(b)
		}
		h.end()
		if got := log.String(); strings.Count(got, "\n") != 1 || len(got) > longestLine || !strings.Contains(got, "peer=story") {
			t.Errorf("%s: %d lines, %d bytes: %.300q", name, strings.Count(got, "\n"), len(got), got)
		}
	}
}

// A panic in the core, which should not be, ends one connection: its peer learns nothing but that, and the log has all.
func TestPanicInTheCore(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := newHostile(t, newTestObject("boot"), Limits{})
	h.c.log = slog.New(slog.NewTextHandler(&log, nil))
	h.c.answers = nil // a table that cannot be written to
	p := h.c.Bootstrap(context.Background()).Call(context.Background(), mEcho, testSize, nil)
	h.say("bootstrap q=0")
	if h.abort != "the message could not be processed" {
		t.Errorf("aborted with %q", h.abort)
	}
	for _, line := range h.said {
		checkWords(t, line)
	}
	if _, _, err := p.Wait(context.Background()); !IsDisconnected(err) {
		t.Errorf("the promise: %v", err)
	}
	p.Release()
	if !strings.Contains(log.String(), "message handler panicked") || !strings.Contains(log.String(), "nil map") {
		t.Errorf("the log has %q", log.String())
	}
}
