//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/writecmd"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// receiver receives notices, checks them as Standard Webhooks' own library does, and answers as the test says.
type receiver struct {
	t      *testing.T
	url    string
	secret string // its file
	got    chan notice.Notice

	mu     sync.Mutex
	answer func(w http.ResponseWriter, n *notice.Notice)
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, secret: filepath.Join(t.TempDir(), "hook.secret"), got: make(chan notice.Notice, 100)}
	s := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(s.Close)
	r.url = s.URL + "/hooks/token"
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	text, _ := io.ReadAll(req.Body)
	check, err := standardwebhooks.NewWebhook(strings.TrimSpace(string(readFile(r.t, r.secret))))
	if err == nil {
		err = check.Verify(text, req.Header)
	}
	var n notice.Notice
	if err = errors.Join(err, json.Unmarshal(text, &n)); err != nil || n.ID != req.Header.Get("Webhook-Id") || strings.Contains(string(text), "contents") {
		r.t.Errorf("it is sent %s: %v", text, err)
	}
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		answer(w, &n)
	}
	r.got <- n
}

// answers has the next notices answered otherwise; nil: they are taken.
func (r *receiver) answers(answer func(w http.ResponseWriter, n *notice.Notice)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// next waits for a notice, of a type and about something.
func (r *receiver) next(typ, about string) notice.Notice {
	r.t.Helper()
	select {
	case n := <-r.got:
		if n.Type != typ || n.Data.Request+n.Data.Message != about {
			r.t.Errorf("%v comes, and not %s of %s", &n, typ, about)
		}
		return n
	case <-time.After(30 * time.Second):
		r.t.Fatalf("%s of %s never comes", typ, about)
		panic("unreachable")
	}
}

// hooks are a session's webhooks, as they are listed once cond is true of them.
func (r *cliRig) hooks(ref string, cond func([]writecmd.Webhook) bool) (list []writecmd.Webhook) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		list = nil
		for line := range strings.Lines(r.ok("session", "webhook", "list", ref, "--json")) {
			var w writecmd.Webhook
			if err := json.Unmarshal([]byte(line), &w); err != nil {
				r.t.Fatal(err)
			}
			list = append(list, w)
		}
		if cond(list) {
			return list
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the webhooks are %+v", list)
		}
	}
}

// The story of a webhook that the owner registers, and the server calls.
func TestSessionWebhook(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "", "--webhooks", "--webhooks-allow-private")
	id, to := r.create("ses_one"), newReceiver(t)
	ask := func(request string) { r.ok("session", "ask", id, "prompt", "contents", "--id", request) }
	ask("req_0")
	add := []string{"session", "webhook", "add", id, to.url, "--webhook-secret", to.secret}
	hook := strings.TrimSpace(r.ok(add...))
	if info, err := os.Stat(to.secret); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the secret's file: %v, %v", info, err)
	}
	to.next(notice.RequestOpen, "req_0") // what was open
	if again := strings.TrimSpace(r.ok(add...)); again != hook {
		t.Errorf("the same again is %s, and was %s", again, hook)
	}
	r.fails(cli.ExitRefused, "already_exists", append(add, "--id", hook, "--on", notice.TurnFinished)...)
	r.ok("session", "answer", id, "req_0", "contents")
	if n := to.next(notice.RequestAnswered, "req_0"); n.Data.Kind != "prompt" || n.Data.Session != id {
		t.Errorf("the answer is %+v", n)
	}
	r.okIn(`{"method":"begin","message":"msg_1","payload":{"role":"assistant"}}`+"\n"+`{"method":"finalize","message":"msg_1","status":"completed"}`, "session", "append", id, "--wait")
	to.next(notice.TurnFinished, "msg_1")

	// Not taken, it comes again under the same id, not before the receiver wants it, and also after a restart.
	to.answers(func(w http.ResponseWriter, _ *notice.Notice) {
		to.answers(nil)
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusInternalServerError)
	})
	ask("req_1")
	first, began := to.next(notice.RequestOpen, "req_1"), time.Now()
	if list := r.hooks(id, func(l []writecmd.Webhook) bool { return l[0].Failures == 1 }); list[0].Error != "status_500" || list[0].Next == 0 || list[0].FailingSince == 0 {
		t.Errorf("failing, it is listed as %+v", list[0])
	}
	r.stop()
	r.start()
	if again := to.next(notice.RequestOpen, "req_1"); again.ID != first.ID || time.Since(began) < 1900*time.Millisecond {
		t.Errorf("it comes again as %s and not %s, after %v", again.ID, first.ID, time.Since(began))
	}
	list := r.hooks(id, func(l []writecmd.Webhook) bool { return l[0].Failures == 0 })
	if list[0].Delivered == 0 || list[0].Ended != "" || list[0].FailingSince != 0 || strings.Contains(r.ok("session", "webhook", "list", id), "whsec") {
		t.Errorf("it is listed as %+v", list[0])
	}

	// Others, of which none holds up the first.
	other := newReceiver(t)
	other.answers(func(w http.ResponseWriter, _ *notice.Notice) { w.WriteHeader(http.StatusGone) })
	redirects := httptest.NewServer(http.RedirectHandler(to.url, http.StatusTemporaryRedirect))
	t.Cleanup(redirects.Close)
	r.ok("session", "webhook", "add", id, other.url, "--webhook-secret", other.secret, "--on", notice.RequestOpen, "--id", "gone")
	r.ok("session", "webhook", "add", id, redirects.URL, "--webhook-secret", other.secret, "--id", "redirects")
	other.next(notice.RequestOpen, "req_1")
	list = r.hooks(id, func(l []writecmd.Webhook) bool { return l[1].Ended != "" && l[2].Failures > 0 })
	if list[1].Ended != "gone" || list[2].Error != "redirect" || list[2].Ended != "" {
		t.Errorf("gone and redirected: %+v", list[1:])
	}
	r.ok("session", "webhook", "remove", id, "redirects")
	r.ok("session", "webhook", "remove", id, "redirects")
	ask("req_2")
	to.next(notice.RequestOpen, "req_2")

	// Only the owner.
	narrow := r.shareTo("narrow", id, "--rights", "read,append,share,revoke")
	for _, args := range [][]string{{"add", narrow, to.url, "--webhook-secret", to.secret}, {"list", narrow}, {"remove", narrow, hook}} {
		if got := r.runAs(r.otherHome("narrow"), "", append([]string{"session", "webhook"}, args...)...); got.code != cli.ExitRefused || !strings.Contains(got.err, "not_an_owner") {
			t.Errorf("%s of another: %+v", args[0], got)
		}
	}
	audit := r.ok("audit", id)
	if strings.Count(audit, "\twebhook\t")+strings.Count(audit, " webhook ") < 3 || !strings.Contains(audit, "unhook") || strings.Contains(audit, "hooks/token") || strings.Contains(audit, "whsec") {
		t.Errorf("the audit has %s", audit)
	}

	// With the ref it ends.
	r.ok("rotate", id)
	ask("req_3")
	if list := r.hooks(id, func(l []writecmd.Webhook) bool { return l[0].Ended != "" }); list[0].Ended != "revoked" {
		t.Errorf("rotated: %+v", list[0])
	}
	select {
	case n := <-to.got:
		t.Errorf("after the rotation %v comes", &n)
	default:
	}
	r.fails(cli.ExitRefused, "has ended (revoked)", add...)
	for i := range 6 {
		r.ok("session", "webhook", "add", id, to.url, "--webhook-secret", to.secret, "--id", fmt.Sprint("more", i), "--on", notice.TurnFinished)
	}
	r.fails(cli.ExitRefused, "quota_exceeded", append(add, "--id", "more")...)
}

// What a server is not told to do it does not: call webhooks, or private addresses.
func TestSessionWebhookRefused(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id, to := r.create("ses_one"), newReceiver(t)
	https := strings.NewReplacer("http:", "https:", "127.0.0.1", "localhost").Replace(to.url)
	add := []string{"session", "webhook", "add", id, https, "--webhook-secret", to.secret}
	r.runIn("", add...) // makes the secret, and says so
	r.fails(cli.ExitRefused, "mooring serve --webhooks", add...)
	r.stop()
	r.flags = []string{"--webhooks"}
	r.start()
	r.fails(cli.ExitUsage, "--webhook-secret", "session", "webhook", "add", id, https)
	r.fails(cli.ExitUsage, "there is no \"turn\"", append(add, "--on", "turn")...)
	r.fails(cli.ExitUsage, "https://HOST/PATH", "session", "webhook", "add", id, "ftp://example.org", "--webhook-secret", filepath.Join(r.dir, "none"))
	r.fails(cli.ExitRefused, "not_an_owner", "session", "webhook", "add", r.shareTo("writer", id, "--rights", "read,append"), https, "--webhook-secret", filepath.Join(r.dir, "none"))
	if _, err := os.Stat(filepath.Join(r.dir, "none")); err == nil {
		t.Error("it made a secret for nobody")
	}
	r.fails(cli.ExitUsage, "no address for a webhook", "session", "webhook", "add", id, "https://169.254.169.254/", "--webhook-secret", to.secret)
	for _, at := range []string{to.url, "https://10.0.0.1/hook"} {
		r.fails(cli.ExitRefused, "bad_argument: ", "session", "webhook", "add", id, at, "--webhook-secret", to.secret)
	}
	r.fails(cli.ExitRefused, "letters, digits", append(add, "--id", "a b")...)
	r.ok("session", "ask", id, "prompt", "contents")
	r.ok(add...)
	list := r.hooks(id, func(l []writecmd.Webhook) bool { return l[0].Failures > 0 })
	if list[0].Error != "private_address" || len(to.got) > 0 {
		t.Errorf("at a private address: %+v, reached %d times", list[0], len(to.got))
	}
	r.fails(cli.ExitRefused, "not_an_owner", "session", "webhook", "list", r.shareTo("reader", id, "--rights", "read"))
}

// A server that is killed between a notice and the note that it was taken sends it again, with the same id.
func TestSessionWebhookKilled(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id, to := r.create("ses_one"), newReceiver(t)
	r.stop()
	k := &killable{t: t, args: []string{"--data", r.data(), "--advertise", "mooring://" + r.proxy.Addr(), "--webhooks", "--webhooks-allow-private"}}
	start := func() {
		k.start()
		r.proxy.SetTarget(strings.TrimPrefix(k.at, "http://"))
	}
	start()
	r.ok("session", "webhook", "add", id, to.url, "--webhook-secret", to.secret)
	killed := make(chan struct{})
	to.answers(func(http.ResponseWriter, *notice.Notice) {
		to.answers(nil)
		k.kill()
		close(killed)
	})
	r.ok("session", "ask", id, "prompt", "contents", "--id", "req_1")
	<-killed
	first := to.next(notice.RequestOpen, "req_1")
	start()
	defer k.kill()
	if again := to.next(notice.RequestOpen, "req_1"); again != first {
		t.Errorf("it comes again as %v, and was %v", again, first)
	}
}

// A secret that is made for a webhook is gone again, and not spoken of, when the webhook is refused; and the refusal says what allows it.
func TestRefusedWebhookLeavesNoSecret(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "", "--webhooks")
	id, secret := r.create("ses_one"), filepath.Join(r.dir, "hook.secret")
	add := func(url, file string) result {
		return r.runIn("", "session", "webhook", "add", id, url, "--webhook-secret", file)
	}
	const private, public = "https://10.0.0.1/hook", "https://example.org/hook"
	if got := add(private, secret); got.code != cli.ExitRefused || got.out != "" || !strings.HasSuffix(got.err, "which has to be allowed: mooring serve --webhooks-allow-private\n") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("of a private address it says %+v", got)
	}
	r.fails(cli.ExitUsage, "which has to be allowed: mooring watch --allow-private\n", "watch", id, "--webhook", private, "--webhook-secret", secret)
	if _, err := os.Stat(secret); !os.IsNotExist(err) {
		t.Errorf("the secret is left: %v", err)
	}
	if got := add(public, secret); got.code != cli.ExitOK || got.err != "made a new secret, in "+secret+": give it to the receiver\n" {
		t.Errorf("of another it says %+v", got)
	}
	made := readFile(t, secret)
	if got := add(private, secret); got.code != cli.ExitRefused || string(readFile(t, secret)) != string(made) {
		t.Errorf("refused with a secret that was there, it says %+v, and %q is now %q", got, made, readFile(t, secret))
	}
}

// Of two servers of one database one delivers each notice, and the other goes on when that one stops.
func TestSessionWebhookReplicas(t *testing.T) {
	t.Parallel()
	database := pgtest.URL(t)
	flags := []string{"--webhooks", "--webhooks-allow-private"}
	r := newCLI(t, database, flags...)
	other := newCLI(t, database, flags...)
	to := newReceiver(t)
	var ids []string
	for i := range 3 {
		id := r.create(fmt.Sprint("ses_", i))
		ids = append(ids, id)
		r.ok("session", "webhook", "add", id, to.url, "--webhook-secret", to.secret)
	}
	seen := map[string]int{}
	collect := func(n int) {
		t.Helper()
		for range n {
			select {
			case n := <-to.got:
				seen[n.ID]++
			case <-time.After(30 * time.Second):
				t.Fatalf("%d of the notices came: %v", len(seen), seen)
			}
		}
	}
	round := func(n int) {
		t.Helper()
		for _, id := range ids {
			var lines strings.Builder
			for i := range 10 {
				fmt.Fprintf(&lines, `{"method":"ask","request":"req_%d_%d","kind":"question"}`+"\n", n, i)
			}
			r.okIn(lines.String(), "session", "append", id, "--wait")
		}
		collect(10 * len(ids))
	}
	round(0)
	other.stop()
	round(1)
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
	select {
	case n := <-to.got:
		t.Errorf("%v comes once more", &n)
	case <-time.After(1500 * time.Millisecond): // the poll of either
	}
}
