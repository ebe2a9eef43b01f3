//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// valueBytes are those of each message of a large session.
const valueBytes = 700_000

// largeSession is a session of so many messages, m00 and so on, put in another order.
func (r *cliRig) largeSession(messages int) (id string) {
	r.t.Helper()
	id = strings.TrimSpace(r.ok("session", "create", "--owner", r.owner()))
	var lines strings.Builder
	for i := range messages {
		fmt.Fprintf(&lines, `{"method":"put","key":"message/m%02d","payload":{"n":%d,"text":%q}}`+"\n", (i*7)%messages, i, strings.Repeat(fmt.Sprint(i%10), valueBytes))
	}
	r.okIn(lines.String(), "session", "append", id, "-", "--wait")
	return id
}

// messagesOf is what an export has of a session's messages.
func (r *cliRig) messagesOf(id string) string {
	r.t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.ok("session", "export", id)), &all); err != nil {
		r.t.Fatal(err)
	}
	return string(all["messages"])
}

func forkLarge(t *testing.T, messages int) {
	r := newCLI(t, "")
	id := r.largeSession(messages)
	want := r.messagesOf(id)
	change := func() {
		r.okIn(`{"method":"put","key":"message/m00","payload":{"later":true}}`, "session", "append", id, "-")
	}
	queued := r.forkKilled(change, id)
	if got := r.messagesOf(queued); got != want {
		t.Errorf("the fork has %d bytes, its source had %d", len(got), len(want))
	}
	if out := r.ok("session", "show", queued); !strings.Contains(out, fmt.Sprintf("forked from  %s at cursor %d\n", id, messages+1)) {
		t.Errorf("show prints\n%s", out)
	}
	earlier := r.forkKilled(func() {}, id, "--at", fmt.Sprint(messages+1)) // of its log
	if got := r.messagesOf(earlier); got != want {
		t.Errorf("the fork of then has %d bytes, its source had %d", len(got), len(want))
	}
	r.okIn(`{"method":"put","key":"message/last","payload":{}}`, "session", "append", queued, "-", "--wait")
	again := strings.TrimSpace(r.ok("session", "fork", queued, "--at", fmt.Sprintf("message/m%02d", messages*5/6*7%messages)))
	r.ok("outbox", "drain")
	if got := r.messagesOf(again); !strings.HasPrefix(want, strings.TrimSuffix(got, "\n  ]")) || len(got) < messages*5/6*valueBytes {
		t.Errorf("the fork of the fork has %d bytes", len(got))
	}
	r.ok("session", "verify", queued)
	r.ok("session", "verify", earlier)
	if out := r.ok("session", "list"); strings.Count(out, "\n") != 5 {
		t.Errorf("the sessions are\n%s", out)
	}
}

// forkKilled forks a session. As soon as the outbox says that the fork is being copied, who waits for it is stopped with Ctrl-C and the server
// killed, and then meanwhile is done. What was asked for once is there once.
func (r *cliRig) forkKilled(meanwhile func(), args ...string) (id string) {
	t := r.t
	t.Helper()
	r.stop()
	id = strings.TrimSpace(r.ok(append([]string{"session", "fork"}, args...)...))
	cmd := exec.CommandContext(t.Context(), mooringProgram(), "serve", "--json", "--listen", "127.0.0.1:0", "--advertise", "mooring://"+r.proxy.Addr(), "--data", r.data())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var started struct{ Listening string }
	if err == nil {
		err = json.Unmarshal(line, &started)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.SetTarget(started.Listening)
	waits := r.process("outbox", "drain")
	waits.start()
	if !r.soon(func() bool { return strings.Contains(r.ok("outbox", "status"), "the fork is") }) {
		t.Error("the outbox does not say that the fork is being copied")
	}
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if signal == syscall.SIGSTOP {
			waits.interrupt()
		}
	}
	_ = cmd.Wait()
	meanwhile() // waits in the outbox
	r.start()
	r.ok("outbox", "drain")
	return id
}
