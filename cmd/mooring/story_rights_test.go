//go:build unix

// Refs that allow less than is tried, and refs that come to their end.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

func TestAReadersAppendIsRefusedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_read")
	reader := r.shareTo("reader", id, "--rights", "read", "--actor", "owner/reader")
	writer := r.shareTo("writer", id, "--rights", "read,append", "--actor", "owner/writer")
	home := r.otherHome("agent")
	lines := `{"method":"put","key":"message/a","payload":{},"as":"a","batch":"1"}
{"method":"put","key":"message/b","payload":{},"depends_on":["a"],"batch":"2"}
{"method":"put","key":"message/c","payload":{},"refs":{"schema_version":{"op":"a","path":"cursor"}},"batch":"3"}`
	got := r.refusedAs(home, lines, []string{"3 of 3 ops did not apply", "missing_right", "append", "read", "ask for a ref that has it"},
		"session", "append", reader, "--wait", "--json")
	var outcomes []string
	var first, batch string
	for line := range strings.Lines(got.out) {
		var o struct{ Op, Outcome, Reason, Cause, Batch string }
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first, batch = o.Op, o.Batch
		} else if o.Cause != first {
			t.Errorf("the cause is %q, not the first op: %s", o.Cause, line)
		}
		if o.Reason != "missing_right" {
			t.Errorf("the reason is not named: %s", line)
		}
		outcomes = append(outcomes, o.Outcome)
	}
	if strings.Join(outcomes, " ") != "denied skipped skipped" {
		t.Errorf("outcomes %q", outcomes)
	}
	var body struct {
		Error struct{ Message, Batch string }
	}
	if err := json.Unmarshal([]byte(got.err), &body); err != nil || body.Error.Batch != batch || !strings.HasSuffix(body.Error.Message, " (batch "+batch+")") ||
		strings.Count(body.Error.Message, batch) != 1 {
		t.Errorf("the batch %s is not named once: %s, %v", batch, got.err, err)
	}
	// The same outbox, the same session, another ref: nothing holds it up.
	r.okAs(home, putLine("d"), "session", "append", writer, "--wait")
	r.refusedAs(home, putLine("e"), []string{"missing_right"}, "session", "append", reader, "--wait")
	r.okAs(home, putLine("f"), "session", "append", writer, "--wait")
	keys := r.keys(id)
	if strings.Join(keys[len(keys)-2:], " ") != "message/d message/f" || count(keys, "a")+count(keys, "b")+count(keys, "c")+count(keys, "e") != 0 {
		t.Errorf("the events are of %q", keys)
	}
	if st := r.statusOf(home); st.States["failed"] != 2 || st.States["skipped"] != 2 || st.States["acked"] != 2 || len(st.Streams) != 0 {
		t.Errorf("outbox status: %+v", st)
	}
}

// A ref for one message shows that one, lets it be written, and says of the rest
// only that it is there.
func TestARefForOneMessage(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one_message")
	home := r.otherHome("agent")
	ref := r.shareTo("one", id, "--rights", "read,append", "--message", "b", "--actor", "owner/helper")
	// A server of the version before, which knows of no such limit, finds no rights.
	r.sql(`UPDATE grants SET rights = 0 WHERE message = 'b' AND rights = 0`)
	r.okIn(putLine("b"), "session", "append", id, "--wait")
	r.refusedAs(home, putLine("c"), []string{"missing_right", "message b only"}, "session", "append", ref, "--wait")
	if got := r.okAs(home, "", "redeem", ref); !strings.Contains(got, "b alone") {
		t.Errorf("redeem says %s", got)
	}
	got := r.okAs(home, "", "session", "tail", ref)
	if lines := strings.Split(strings.TrimSpace(got), "\n"); len(lines) != 2 || !strings.HasSuffix(lines[0], "\t(not shown)") || !strings.Contains(lines[1], "\tput\tmessage/b\t") {
		t.Errorf("tail shows\n%s", got)
	}
	got = r.okAs(home, "", "session", "tail", ref, "--json")
	if !strings.Contains(got, `"hidden":true,"hash":"`) || strings.Contains(got, "message/a") {
		t.Errorf("tail --json shows\n%s", got)
	}
	got = r.okAs(home, "", "session", "export", ref)
	if !strings.Contains(got, `"b"`) || strings.Contains(got, `"a"`) {
		t.Errorf("the export has %s", got)
	}
}

// A ref that is limited to keys shows some and writes others; the rest is marks, and refused.
func TestARefForKeys(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_keys")
	home := r.otherHome("agent")
	ref := r.shareTo("keys", id, "--rights", "read,append,share", "--read-keys", "message/b,part/b/", "--write-keys", "part/b/", "--write-keys", "model/x", "--actor", "owner/helper")
	r.okIn(putLine("b"), "session", "append", id, "--wait")
	part := `{"method":"put","key":"part/b/1","payload":{"text":"x"}}`
	r.okAs(home, part, "session", "append", ref, "--wait")
	r.refusedAs(home, putLine("b"), []string{"missing_right", "message/b", "part/b/, model/x"}, "session", "append", ref, "--wait")
	if got := r.okAs(home, "", "redeem", ref); !strings.Contains(got, "reads    message/b, part/b/ alone") || !strings.Contains(got, "writes   part/b/, model/x alone") {
		t.Errorf("redeem says %s", got)
	}
	if got := r.ok("refs", id); !strings.Contains(got, "reads message/b+part/b/, writes part/b/+model/x") {
		t.Errorf("refs says %s", got)
	}
	shown := func(args ...string) (keys []string) {
		for line := range strings.Lines(r.okAs(home, "", args...)) {
			cells := strings.Split(strings.TrimSpace(line), "\t")
			keys = append(keys, cells[min(2, len(cells)-1)])
		}
		return keys
	}
	for want, args := range map[string][]string{
		"(not shown) message/b part/b/1":    {"session", "tail", ref},
		"(not shown) part/b/1":              {"session", "tail", ref, "--keys", "part/"},
		"(not shown) message/b (not shown)": {"session", "tail", ref, "--keys", "message/,todo/"},
	} {
		if got := strings.Join(shown(args...), " "); got != want {
			t.Errorf("%q shows %s, want %s", args, got, want)
		}
	}
	if got := r.okAs(home, "", "session", "export", ref); !strings.Contains(got, `"b"`) || strings.Contains(got, `"a"`) {
		t.Errorf("the export has %s", got)
	}
	r.refusedAs(home, "", []string{"does not show all"}, "session", "verify", ref)
	r.refusedAs(home, "", []string{"widening", "more keys"}, "share", ref, "--rights", "read", "--read-keys", "message/")
	for _, wrong := range []struct {
		words string
		args  []string
	}{
		{"--read-keys: \"todo/*\" is neither a key nor a prefix", []string{"share", id, "--rights", "read", "--read-keys", "todo/*"}},
		{"--read-keys: \"Todo/\" is neither a key nor a prefix", []string{"share", id, "--rights", "read", "--read-keys", "Todo/"}},
		{"--write-keys is empty", []string{"share", id, "--rights", "append", "--write-keys", ""}},
		{"--write-keys limits the right append", []string{"share", id, "--rights", "read", "--write-keys", "todo/"}},
		{"--read-keys and --message exclude each other", []string{"share", id, "--rights", "read", "--read-keys", "todo/", "--message", "b"}},
		{"keys: \"/\" is neither a key nor a prefix", []string{"session", "tail", id, "--keys", "/"}},
	} {
		if got := r.runIn("", wrong.args...); got.code == cli.ExitOK || !strings.Contains(got.err, wrong.words) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%q: exit %d, %s", wrong.args, got.code, got.err)
		}
	}
}

func TestALiveTailEndsWhenItsRefExpires(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_expires")
	ref := r.shareTo("brief", id, "--rights", "read", "--expires", "1s")
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	lines, in := io.Pipe()
	var errText lockbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- runContext(ctx, []string{"session", "tail", ref, "--follow", "--home", r.otherHome("reader")}, strings.NewReader(""), in, &errText)
		_ = in.Close()
	}()
	seen := 0
	for tail := bufio.NewScanner(lines); tail.Scan(); seen++ {
	}
	// On a machine so busy that a second passes before the tail is there, it gets the same answer and no event.
	if c := <-code; c != cli.ExitRefused || !strings.HasPrefix(errText.String(), "mooring: expired: ") || seen != 3 && seen != 0 {
		t.Errorf("the tail gave %d events and ended with %d: %s", seen, c, errText.String())
	}
	r.refusedAs(r.otherHome("late"), "", []string{"expired"}, "redeem", ref)
	r.refusedAs(r.otherHome("late"), "", []string{"expired"}, "session", "tail", ref)
}

func TestARefIsRedeemedAsOftenAsItAllows(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_limited")
	ref := r.shareTo("twice", id, "--rights", "read", "--redemptions", "2")
	for _, home := range []string{"one", "two", "one", "two"} { // coming back is free
		r.okAs(r.otherHome(home), "", "redeem", ref)
	}
	for range 2 {
		r.refusedAs(r.otherHome("three"), "", []string{"exhausted", "redeemed 2 times", "ask"}, "redeem", ref)
	}
	r.refusedAs(r.otherHome("three"), "", []string{"exhausted"}, "session", "tail", ref)
	if out := r.okAs(r.otherHome("one"), "", "redeem", ref); !strings.Contains(out, "2 of 2 times") {
		t.Errorf("redeem says %q", out)
	}
	r.okAs(r.otherHome("two"), "", "session", "tail", id)
}

func TestAStaleRefNamesBothEpochs(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_epochs")
	ref := r.shareTo("stale", id, "--rights", "read,append")
	home := r.otherHome("agent")
	r.okAs(home, putLine("before"), "session", "append", ref, "--wait")
	if out := r.ok("revoke", "--epoch", id); !strings.Contains(out, "the epoch is 2") {
		t.Errorf("revoke --epoch says %q", out)
	}
	both := []string{"stale_epoch", "under epoch 1", "at epoch 2", "ask"}
	r.refusedAs(home, putLine("after"), both, "session", "append", ref, "--wait")
	r.refusedAs(home, "", both, "session", "tail", ref)
	r.refusedAs(home, "", both, "session", "tail", ref, "--follow")
	r.refusedAs(home, "", both, "redeem", ref)
	// The owner goes on, and so does who is given a new ref.
	r.okIn(putLine("mine"), "session", "append", id, "--wait")
	r.okAs(home, putLine("again"), "session", "append", r.shareTo("fresh", id, "--rights", "read,append"), "--wait")
	keys := r.keys(id)
	if count(keys, "before") != 1 || count(keys, "after") != 0 || count(keys, "mine") != 1 || count(keys, "again") != 1 {
		t.Errorf("the events are of %q", keys)
	}
}
