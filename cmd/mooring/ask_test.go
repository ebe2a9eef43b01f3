//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
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
	r.fails(exitRefused, "already_exists", "session", "ask", id, "prompt", "run others", "--id", "req_1")
	r.ok("session", "ask", id, "question", "which one?", "--id", "req_2", "--choice", "a=the first", "--choice", "b", "--expires", "1h")
	list := r.ok("session", "requests", id)
	for _, want := range []string{"req_1    prompt    open   owner", "run the tests", "req_2    question  open", "which one?"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	var shown shownRequest
	if err := json.Unmarshal([]byte(r.ok("session", "requests", id, "--kinds", "question", "--json")), &shown); err != nil || len(shown.Choices) != 2 || shown.Choices[0].Label != "the first" || shown.Expires == 0 || len(shown.Digest) != 64 {
		t.Errorf("%+v: %v", shown, err)
	}
	r.fails(exitRefused, "bad_argument", "session", "answer", id, "req_2", "c")
	if out := r.ok("session", "answer", id, "req_2", "a"); !strings.Contains(out, "answered req_2 at cursor ") {
		t.Errorf("it says %s", out)
	}
	r.fails(exitRefused, "conflict", "session", "answer", id, "req_2", "b")
	r.fails(exitRefused, "no request none", "session", "answer", id, "none", "b")
	if out := r.ok("session", "ask", id, "question", "which one?", "--id", "req_2", "--choice", "a=the first", "--choice", "b", "--wait"); out != "the first\n" {
		t.Errorf("waiting, it prints %q", out)
	}
	if out := r.ok("session", "requests", id); strings.Contains(out, "req_2") {
		t.Errorf("answered, it lists\n%s", out)
	}
	if out := r.ok("session", "requests", id, "--all"); !strings.Contains(out, "req_2    question  answered") {
		t.Errorf("with --all it lists\n%s", out)
	}

	// Who may ask some kinds only, and answer others.
	phone := strings.TrimSpace(r.ok("share", id, "--rights", "read,ask,answer", "--ask", "stop", "--answer", "permission"))
	if out := r.ok("redeem", phone); !strings.Contains(out, "asks     stop alone") || !strings.Contains(out, "answers  permission alone") {
		t.Errorf("the ref is\n%s", out)
	}
	r.fails(exitRefused, "missing_right", "session", "ask", phone, "prompt", "more")
	r.fails(exitRefused, "missing_right", "session", "answer", phone, "req_1", "more")
	r.fails(exitRefused, "names the turn", "session", "ask", phone, "stop")
	r.fails(exitUsage, "--ask", "share", id, "--rights", "read,ask", "--ask", "No")
	r.fails(exitUsage, "not both", "session", "ask", id, "prompt", "text", "--payload", "{}")
	r.fails(exitUsage, "not JSON", "session", "ask", id, "prompt", "--payload", "{")
	r.okIn("from a pipe\n", "session", "ask", id, "own", "-", "--id", "req_3")
	if out := r.ok("session", "requests", id, "--kinds", "own", "--json"); !strings.Contains(out, `"payload":{"text":"from a pipe"}`) {
		t.Errorf("it lists %s", out)
	}
	r.okIn(`{"method":"withdraw","request":"req_3","reason":"late"}`+"\n", "session", "append", id, "-", "--wait")
	r.fails(exitRefused, "was withdrawn: late", "session", "answer", id, "req_3", "x")
	r.fails(exitRefused, "has ended as withdrawn: late", "session", "ask", id, "own", "--payload", `{"text":"from a pipe"}`, "--id", "req_3", "--wait")
	r.ok("session", "verify", id)
}
