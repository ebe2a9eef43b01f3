//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/notice"
)

// Notices, as lines and as JSON, of two sessions, and of no other kind than --on says.
func TestWatch(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	one, two := r.create("ses_one"), r.create("ses_two")
	r.ok("session", "ask", one, "prompt", "secret text", "--id", "req_1")
	r.ok("session", "ask", one, "prompt", "withdrawn", "--id", "req_0")
	r.okIn(`{"method":"withdraw","request":"req_0"}`, "session", "append", one, "--wait")
	var plain, asJSON, only lockbuf.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 3)
	for _, w := range []struct {
		out  *lockbuf.Buffer
		args []string
	}{{&plain, []string{one, two}}, {&asJSON, []string{one, "--json"}}, {&only, []string{one, "--on", notice.TurnFinished}}} {
		go func() {
			ended <- runContext(ctx, append([]string{"watch", "--home", r.home()}, w.args...), strings.NewReader(""), w.out, &lockbuf.Buffer{})
		}()
	}
	opened := notice.RequestOpen + "\t" + one + "\treq_1\tprompt\n"
	if !r.soon(func() bool { return plain.String() == opened && asJSON.String() != "" }) {
		t.Fatalf("it begins with %q and %q", plain.String(), asJSON.String())
	}
	r.okIn(`{"method":"begin","message":"msg_1","payload":{"role":"assistant"}}`+"\n"+`{"method":"finalize","message":"msg_1","status":"completed"}`, "session", "append", one, "--wait")
	r.okIn(`{"method":"put","key":"message/msg_2","payload":{"role":"assistant","finish":"tool-calls","time":{"completed":7}}}`+"\n"+
		`{"method":"put","key":"message/msg_3","payload":{"role":"assistant","finish":"stop","time":{"completed":7}}}`+"\n"+
		`{"method":"put","key":"message/msg_3","payload":{"role":"assistant","finish":"stop","cost":1,"time":{"completed":7}}}`, "session", "append", one, "--wait")
	r.ok("session", "ask", two, "permission", "secret text", "--id", "per_1")
	r.ok("session", "answer", one, "req_1", "secret answer")
	want := []string{
		strings.TrimSpace(opened), notice.TurnFinished + "\t" + one + "\tmsg_1", notice.TurnFinished + "\t" + one + "\tmsg_3",
		notice.RequestAnswered + "\t" + one + "\treq_1\tprompt", notice.RequestOpen + "\t" + two + "\tper_1\tpermission",
	}
	slices.Sort(want)
	lines := func() []string {
		list := strings.Split(strings.TrimSpace(plain.String()), "\n")
		slices.Sort(list)
		return list
	}
	if !r.soon(func() bool {
		return slices.Equal(lines(), want) && strings.Count(asJSON.String(), "\n") == 4 && strings.Count(only.String(), "\n") == 2
	}) {
		t.Errorf("it tells %q, want %q; as JSON %s; of turns alone %s", lines(), want, asJSON.String(), only.String())
	}
	if strings.Contains(plain.String()+asJSON.String(), "secret") {
		t.Errorf("it tells contents: %s", asJSON.String())
	}
	for line := range strings.Lines(asJSON.String()) {
		var n notice.Notice
		if err := json.Unmarshal([]byte(line), &n); err != nil || n.ID == "" || time.Since(n.At) > time.Hour || n.Data.Session != one {
			t.Errorf("%s: %v", line, err)
		}
	}
	cancel()
	for range 3 {
		if code := <-ended; code != cli.ExitOK {
			t.Errorf("it ends with %d", code)
		}
	}
}

// A watch that is killed again and again tells all, with the same ids, by a command that fails at first.
func TestWatchIsKilled(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	told := filepath.Join(r.dir, "told")
	command := `if [ ! -e '` + told + `.'$MOORING_REQUEST ]; then touch '` + told + `.'$MOORING_REQUEST; echo not yet >&2; exit 3; fi; echo "$MOORING_ID" told; cat >> '` + told + `'`
	begin := func() *process { return r.run("watch", id, "--exec", command, "--on", notice.RequestOpen) }
	text := func() string { b, _ := os.ReadFile(told); return string(b) }
	var want []string
	for i := range 6 {
		request := fmt.Sprint("req_", i)
		want = append(want, request)
		r.ok("session", "ask", id, "prompt", "x", "--id", request)
		p := begin()
		if i%2 == 0 && !r.soon(func() bool { return strings.Contains(text(), request) }) {
			t.Fatalf("%s is not told: %s", request, text())
		} else if i%2 == 1 && !r.soon(func() bool { _, err := os.Stat(told + "." + request); return err == nil }) {
			t.Fatalf("%s was not tried", request)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
	}
	p := begin()
	if !r.soon(func() bool { return strings.Contains(text(), "req_5") }) {
		t.Fatalf("the last is not told: %s", text())
	}
	r.fails(cli.ExitRefused, "runs already", "watch", id, "--exec", command, "--on", notice.RequestOpen)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != cli.ExitOK || !strings.Contains(p.out.String(), " told\n") {
		t.Errorf("it ends with %d, and prints %s", code, p.out.String())
	}
	var got []string
	ids := map[string]string{}
	for line := range strings.Lines(text()) {
		var n notice.Notice
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if was := ids[n.Data.Request]; was != "" && was != n.ID {
			t.Errorf("%s has the ids %s and %s", n.Data.Request, was, n.ID)
		} else if ids[n.Data.Request] = n.ID; was == "" {
			got = append(got, n.Data.Request)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it told %q, want %q", got, want)
	}
	if n := strings.Count(text(), "\n"); n > len(want)+6 {
		t.Errorf("it told %d", n)
	}
}

// Commands that do not succeed, that hang, and what they see.
func TestWatchCommands(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	r.ok("session", "ask", id, "prompt", "x", "--id", "req_1")
	pid := filepath.Join(r.dir, "pid")
	begin := func(args ...string) (out, errs *lockbuf.Buffer, end func() int) {
		out, errs = &lockbuf.Buffer{}, &lockbuf.Buffer{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- runContext(ctx, append([]string{"watch", "--home", r.home(), id}, args...), strings.NewReader(""), out, errs)
		}()
		return out, errs, func() int { cancel(); return <-ended }
	}
	_, errs, end := begin("--exec", "echo cannot >&2; false", "--tries", "1")
	if want := "request.open of req_1 in " + id + " was not delivered: the command ended with exit status 1; it printed last: cannot\n"; !r.soon(func() bool { return errs.String() == want }) {
		t.Errorf("it says %q, want %q", errs.String(), want)
	}
	end()
	gone := func() bool {
		text, _ := os.ReadFile(pid)
		var n int
		if _, err := fmt.Sscan(string(text), &n); err != nil {
			return false
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}
	hang := "sleep 600 & echo $! > '" + pid + "'; wait"
	_, errs, end = begin("--exec", hang, "--tries", "1", "--exec-timeout", "500ms")
	if !r.soon(func() bool { return strings.Contains(errs.String(), "took longer than 500ms") }) || !gone() {
		t.Errorf("hanging: %q, ended: %v", errs.String(), gone())
	}
	end()
	_ = os.Remove(pid)
	_, _, end = begin("--exec", hang, "--on", notice.RequestOpen)
	if !r.soon(func() bool { text, _ := os.ReadFile(pid); return strings.HasSuffix(string(text), "\n") }) {
		t.Fatal("it does not begin")
	}
	if code := end(); code != cli.ExitOK || !r.soon(gone) {
		t.Errorf("stopped while it hangs: %d, %v", code, gone())
	}
	out, _, end := begin("--exec", "env | grep MOORING_ | grep -v MARK")
	if !r.soon(func() bool { return strings.Count(out.String(), "\n") == 6 }) {
		t.Errorf("the command sees %s", out.String())
	}
	for _, want := range []string{"MOORING_EVENT=request.open\n", "MOORING_REQUEST=req_1\n", "MOORING_KIND=prompt\n", "MOORING_SESSION=" + id + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the command does not see %q", want)
		}
	}
	end()
	r.fails(cli.ExitUsage, "there is no \"turn\"", "watch", id, "--on", "turn")
	r.fails(cli.ExitUsage, "--tries", "watch", id, "--tries", "0")
	r.fails(cli.ExitUsage, "--exec-timeout", "watch", id, "--exec-timeout", "0s")
	writer := strings.TrimSpace(r.ok("share", id, "--rights", "append"))
	r.fails(cli.ExitRefused, "missing_right", "watch", writer)
	reader := r.shareTo("reader", id, "--rights", "read")
	followed, home := make(chan result, 1), r.otherHome("reader")
	go func() { followed <- r.runAs(home, "", "watch", reader) }()
	r.ok("revoke", reader)
	if got := <-followed; got.code != cli.ExitRefused || !strings.Contains(got.err, "revoked") {
		t.Errorf("revoked: %+v", got)
	}
}

// After a restore from a backup a watch goes on with what is there, and tells nothing again.
func TestWatchAfterARestore(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_one")
	r.ok("session", "ask", id, "prompt", "x", "--id", "req_1")
	home := r.otherHome("asks")
	asks := r.shareTo("asks", id, "--rights", "read,ask")
	r.stop()
	backup := r.otherHome("backup")
	copyFolder(t, backup, r.data())
	r.start()
	told := filepath.Join(r.dir, "told")
	watched := func(request string) {
		t.Helper()
		p := r.run("watch", id, "--exec", `echo $MOORING_REQUEST >> '`+told+`'`)
		if !r.soon(func() bool { b, _ := os.ReadFile(told); return strings.HasSuffix(string(b), request+"\n") }) {
			t.Errorf("%s is not told: %s", request, p.err.String())
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := p.end(); code != cli.ExitOK {
			t.Errorf("it ends with %d: %s", code, p.err.String())
		}
	}
	r.okAs(home, "", "session", "ask", asks, "prompt", "x", "--id", "req_2")
	watched("req_2")
	r.stop()
	putBack(t, r.data(), backup)
	r.start()
	r.okAs(r.otherHome("again"), "", "session", "ask", asks, "prompt", "x", "--id", "req_3")
	watched("req_3")
	if b, _ := os.ReadFile(told); string(b) != "req_1\nreq_2\nreq_3\n" {
		t.Errorf("it told %q", b)
	}
}

// A webhook whose receiver takes what it is sent and loses the connection, and a watch that is killed: all arrives, signed, with one id each.
func TestWatchWebhook(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id, secretFile := r.create("ses_one"), filepath.Join(r.dir, "hook.secret")
	var mu sync.Mutex
	got := map[string]string{} // ids by request
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		text, _ := io.ReadAll(req.Body)
		check, err := standardwebhooks.NewWebhook(strings.TrimSpace(string(readFile(t, secretFile))))
		if err == nil {
			err = check.Verify(text, req.Header)
		}
		var n notice.Notice
		if err = errors.Join(err, json.Unmarshal(text, &n)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		mu.Lock()
		was := got[n.Data.Request]
		got[n.Data.Request] = n.ID
		mu.Unlock()
		if was != "" && was != n.ID {
			t.Errorf("%s has two ids", n.Data.Request)
		}
		if was == "" {
			panic(http.ErrAbortHandler) // the answer is lost
		}
	}))
	defer hook.Close()
	url := hook.URL + "/hooks/token-of-the-hook"
	begin := func() *process {
		return r.run("watch", id, "--webhook", url, "--webhook-secret", secretFile, "--allow-private")
	}
	has := func(request string) bool {
		mu.Lock()
		defer mu.Unlock()
		return got[request] != ""
	}
	for i := range 4 {
		request := fmt.Sprint("req_", i)
		r.ok("session", "ask", id, "prompt", "x", "--id", request)
		p := begin()
		if !r.soon(func() bool { return has(request) }) {
			t.Fatalf("%s does not arrive", request)
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.end()
		if strings.Contains(p.err.String(), "token-of-the-hook") {
			t.Errorf("it prints the URL: %s", p.err.String())
		}
	}
	if info, err := os.Stat(secretFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret's file: %v, %v", info, err)
	}
	r.fails(cli.ExitUsage, "go together", "watch", id, "--webhook", url)
	r.fails(cli.ExitUsage, "https://", "watch", id, "--webhook", url, "--webhook-secret", secretFile)
	r.fails(cli.ExitUsage, "--exec or --webhook", "watch", id, "--webhook", url, "--webhook-secret", secretFile, "--exec", "true")
	r.fails(cli.ExitUsage, "whsec_", "watch", id, "--webhook", url, "--webhook-secret", r.file("bad", "no secret\n"), "--allow-private")
}
