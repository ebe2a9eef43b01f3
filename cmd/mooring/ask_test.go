//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// A request is asked, listed, answered and refused, with a server and without one.
func TestAskAndAnswer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	if out := r.ok("session", "ask", id, "prompt", "run the tests", "--id", "req_1"); out != "req_1\n" {
		t.Errorf("it prints %q", out)
	}
	r.ok("session", "ask", id, "prompt", "run the tests", "--id", "req_1") // the same again
	r.fails(cli.ExitRefused, "already_exists", "session", "ask", id, "prompt", "run others", "--id", "req_1")
	r.ok("session", "ask", id, "question", "which one?", "--id", "req_2", "--choice", "a=the first", "--choice", "b", "--expires", "1h")
	list := r.ok("session", "requests", id)
	for _, want := range []string{"req_1    prompt    open   owner", "run the tests", "req_2    question  open", "which one?"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	var shown readcmd.Request
	if err := json.Unmarshal([]byte(r.ok("session", "requests", id, "--kinds", "question", "--json")), &shown); err != nil || len(shown.Choices) != 2 || shown.Choices[0].Label != "the first" || shown.Expires == 0 || len(shown.Digest) != 64 {
		t.Errorf("%+v: %v", shown, err)
	}
	if list := r.ok("session", "requests", id, "--kinds", "question"); !strings.Contains(list, "a, b") {
		t.Errorf("it shows no choices:\n%s", list)
	}
	r.fails(cli.ExitUsage, "one of its choices: a, b", "session", "answer", id, "req_2", "c")
	r.fails(cli.ExitUsage, "one of its choices: a, b", "session", "answer", id, "req_2")
	if out := r.ok("session", "answer", id, "req_2", "a"); !strings.Contains(out, "answered req_2 at cursor ") {
		t.Errorf("it says %s", out)
	}
	r.fails(cli.ExitRefused, `was answered already by owner, with "the first"`, "session", "answer", id, "req_2", "b")
	if out := r.ok("session", "answer", id, "req_2", "a"); !strings.Contains(out, "answered so already, by owner") {
		t.Errorf("answered once more, it says %s", out)
	}
	r.fails(cli.ExitRefused, "no request none", "session", "answer", id, "none", "b")
	if out := r.ok("session", "ask", id, "question", "which one?", "--id", "req_2", "--choice", "a=the first", "--choice", "b", "--wait"); out != "the first\n" {
		t.Errorf("waiting, it prints %q", out)
	}
	if out := r.ok("session", "requests", id); strings.Contains(out, "req_2") {
		t.Errorf("answered, it lists\n%s", out)
	}
	if out := r.ok("session", "requests", id, "--all"); !strings.Contains(out, "req_2    question  answered") || !strings.Contains(out, "the first\n") {
		t.Errorf("with --all it lists\n%s", out)
	}

	// Who may ask some kinds only, and answer others.
	phone := strings.TrimSpace(r.ok("share", id, "--rights", "read,ask,answer", "--ask", "stop", "--answer", "permission"))
	if out := r.ok("redeem", phone); !strings.Contains(out, "asks     stop alone") || !strings.Contains(out, "answers  permission alone") {
		t.Errorf("the ref is\n%s", out)
	}
	r.fails(cli.ExitRefused, "missing_right", "session", "ask", phone, "prompt", "more")
	r.fails(cli.ExitRefused, "missing_right", "session", "answer", phone, "req_1", "more")
	r.fails(cli.ExitUsage, "--message", "session", "ask", phone, "stop")
	r.fails(cli.ExitUsage, "needs a TEXT", "session", "ask", id, "prompt")
	r.fails(cli.ExitUsage, "needs a TEXT", "session", "ask", id, "prompt", "")
	r.fails(cli.ExitUsage, "1s to 30d", "session", "ask", id, "own", "--expires", "60d")
	r.fails(cli.ExitUsage, "an id of its own", "session", "ask", id, "own", "--choice", "a", "--choice", "a=b")
	r.fails(cli.ExitUsage, "--ask", "share", id, "--rights", "read,ask", "--ask", "No")
	r.fails(cli.ExitUsage, "not both", "session", "ask", id, "prompt", "text", "--payload", "{}")
	r.fails(cli.ExitUsage, "not JSON", "session", "ask", id, "prompt", "--payload", "{")
	r.okIn("from a pipe\n", "session", "ask", id, "own", "-", "--id", "req_3")
	if out := r.ok("session", "requests", id, "--kinds", "own", "--json"); !strings.Contains(out, `"payload":{"text":"from a pipe"}`) {
		t.Errorf("it lists %s", out)
	}
	if out := r.ok("session", "withdraw", id, "req_3", "--reason", "late"); !strings.Contains(out, "withdrew req_3 at cursor ") {
		t.Errorf("withdrawing, it says %s", out)
	}
	r.fails(cli.ExitRefused, "was withdrawn: late", "session", "withdraw", id, "req_3")
	r.fails(cli.ExitRefused, "missing_right", "session", "withdraw", r.shareTo("reader", id, "--rights", "read"), "req_1")
	r.fails(cli.ExitRefused, "was withdrawn: late", "session", "answer", id, "req_3", "x")
	r.fails(cli.ExitRefused, "has ended as withdrawn: late", "session", "ask", id, "own", "--payload", `{"text":"from a pipe"}`, "--id", "req_3", "--wait")

	// A prompt that is answered with an error has failed, and a wait that is given up says what is left.
	r.ok("session", "answer", id, "req_1", "--payload", `{"error":"the agent ended"}`)
	if got := r.runIn("", "session", "ask", id, "prompt", "run the tests", "--id", "req_1", "--wait"); got.code != cli.ExitRefused || !strings.Contains(got.out, "the agent ended") || !strings.Contains(got.err, "answered with an error") {
		t.Errorf("of an error it says %+v", got)
	}
	ctx, interrupt := context.WithTimeout(t.Context(), 2*time.Second)
	defer interrupt()
	var out, said lockbuf.Buffer
	if code := runContext(ctx, []string{"session", "ask", id, "prompt", "more", "--id", "req_4", "--wait", "--home", r.home()}, strings.NewReader(""), &out, &said); code == cli.ExitOK || !strings.Contains(said.String(), "req_4 stays asked") || !strings.Contains(said.String(), "session withdraw "+id+" req_4") {
		t.Errorf("interrupted, it ends with %d and says %s", code, said.String())
	}
	r.ok("session", "verify", id)
}

// A prompt that the agent did not do fails, whatever the agent has said until then: nothing goes on after ask … && deploy.
func TestAskFailsForWhatWasNotDone(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	for i, c := range []struct {
		kind, answer string
		code         int
		words        string
	}{
		{"prompt", `{"text":"half","stopReason":"cancelled"}`, cli.ExitRefused, "was stopped before the agent was done"},
		{"prompt", `{"text":"half","stopReason":"cancelled","error":"killed"}`, cli.ExitRefused, "was stopped before the agent was done"},
		{"prompt", `{"text":"half","stopReason":"refusal"}`, cli.ExitRefused, "was refused by the agent"},
		{"prompt", `{"text":"half","stopReason":"max_tokens"}`, cli.ExitRefused, "was cut off: the agent ended before it was done: max_tokens"},
		{"prompt", `{"text":"half","stopReason":"max_turn_requests"}`, cli.ExitRefused, "was cut off: the agent ended before it was done: max_turn_requests"},
		{"prompt", `{"text":"half","stopReason":"end_turn"}`, cli.ExitOK, ""},
		{"prompt", `{"text":"half"}`, cli.ExitOK, ""},
		{"own", `{"text":"half","stopReason":"cancelled"}`, cli.ExitOK, ""},
	} {
		req := fmt.Sprintf("req_%d", i)
		r.ok("session", "ask", id, c.kind, "go", "--id", req)
		r.ok("session", "answer", id, req, "--payload", c.answer)
		got := r.runIn("", "session", "ask", id, c.kind, "go", "--id", req, "--wait")
		if got.code != c.code || got.out != "half\n" || !strings.Contains(got.err, c.words) || c.words == "" && got.err != "" {
			t.Errorf("%s: %+v", c.answer, got)
		}
		if got := r.runIn("", "session", "ask", id, c.kind, "go", "--id", req, "--wait", "--json"); got.code != c.code || !strings.Contains(got.out, `"answer":`+c.answer) || (got.code != cli.ExitOK) != strings.Contains(got.err, `"code":"request_ended"`) {
			t.Errorf("%s, with --json: %+v", c.answer, got)
		}
	}
}

// Following requests without a server prints why it waits, goes on when there is one, and ends without an error when it is stopped.
func TestFollowRequests(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	r.ok("session", "ask", id, "question", "first", "--id", "req_1")
	r.stop()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, said lockbuf.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- runContext(ctx, []string{"session", "requests", id, "--follow", "--home", r.home()}, strings.NewReader(""), &out, &said)
	}()
	wait := func(buf *lockbuf.Buffer, words string) {
		t.Helper()
		if !r.soon(func() bool { return strings.Contains(buf.String(), words) || len(ended) > 0 }) || len(ended) > 0 {
			t.Fatalf("without %q it says %s%s", words, out.String(), said.String())
		}
	}
	wait(&said, "no connection (")
	r.start()
	wait(&out, "req_1\tquestion\topen\t")
	r.ok("session", "ask", id, "question", "second", "--id", "req_2")
	wait(&out, "req_2\tquestion\topen\t")
	r.stop()
	if !r.soon(func() bool { return strings.Count(said.String(), "; continuing when there is one\n") == 2 }) {
		t.Errorf("of the second time without a server it says %s", said.String())
	}
	interrupt()
	if code := <-ended; code != cli.ExitOK || strings.Count(said.String(), "\n") != 2 {
		t.Errorf("interrupted, it ends with %d and says %s", code, said.String())
	}
	r.start()
	r.fails(cli.ExitRefused, "not_found", "session", "requests", "ses_none", "--follow")
	r.fails(cli.ExitUsage, `--kinds: "Bad!" is not a kind of requests`, "session", "requests", id, "--kinds", "permission,Bad!")
}

// An answer, and a prompt, that wait in the outbox of a ref that is revoked meanwhile are denied: the permission is open, and nobody was asked.
func TestQueuedAnswerOfARevokedRef(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	phone := r.shareTo("phone", id, "--rights", "read,ask,answer")
	r.ok("session", "ask", id, "permission", "rm -r build", "--id", "per_1", "--choice", "once", "--choice", "never")
	away := r.otherHome("away")
	var asked readcmd.Request
	if err := json.Unmarshal([]byte(r.okAs(away, "", "session", "requests", phone, "--json")), &asked); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.okAs(away, `{"method":"answer","request":"per_1","choice":"once","shown":"`+asked.Digest+`"}`+"\n"+`{"method":"ask","request":"req_1","kind":"prompt","payload":{"text":"more"}}`+"\n",
		"session", "append", phone, "-")
	r.start()
	r.ok("revoke", phone)
	if got := r.runAs(away, "", "outbox", "drain"); got.code != cli.ExitRefused || !strings.Contains(got.err, "2 of them did not apply") {
		t.Errorf("what waited is sent with %+v", got)
	}
	if list := r.okAs(away, "", "outbox", "list", "--state", "failed"); strings.Count(list, "revoked: the ref was revoked") != 2 {
		t.Errorf("they ended so:\n%s", list)
	}
	list := r.ok("session", "requests", id, "--all", "--json")
	if err := json.Unmarshal([]byte(list), &asked); err != nil || asked.Request != "per_1" || asked.State != "open" {
		t.Errorf("there is %s: %v", list, err)
	}
}
