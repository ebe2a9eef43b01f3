//go:build unix

// opencode's share API of mooring serve, as a process would run it.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// shareClient does not keep connections, so that nothing of it is left.
var shareClient = &http.Client{Timeout: servePatience, Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a request as opencode does; the status is 0 if no answer comes.
func ask(t *testing.T, method, url, body string, headers ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := shareClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(data)
}

// sharing is what a create gives.
type sharing struct{ ID, URL, Secret string }

func createShare(t *testing.T, at, session string) (s sharing) {
	t.Helper()
	status, answer := ask(t, "POST", at+"/api/share", fmt.Sprintf(`{"sessionID":%q}`, session))
	if err := json.Unmarshal([]byte(answer), &s); status != 200 || err != nil || s.Secret == "" {
		t.Fatalf("create: %d %s", status, answer)
	}
	return s
}

// killable is a server that is a process of its own.
type killable struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	at   string // http://HOST:PORT
}

func (k *killable) start() {
	k.t.Helper()
	k.cmd = exec.CommandContext(k.t.Context(), mooringProgram(), append([]string{"serve", "--json", "--listen", "127.0.0.1:0"}, k.args...)...)
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	var banner struct{ Listening string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &banner)
	}
	if err != nil {
		k.t.Fatalf("the server did not start: %v", err)
	}
	k.at = "http://" + banner.Listening
}

// kill is SIGKILL.
func (k *killable) kill() {
	k.t.Helper()
	if err := k.cmd.Process.Kill(); err != nil {
		k.t.Error(err)
	}
	_ = k.cmd.Wait() // it was killed
}

// Whatever is killed when: what was acknowledged is there.
func TestSyncsOutliveKills(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		k := &killable{t: t, args: []string{"--data", filepath.Join(t.TempDir(), "data")}}
		if database != "" {
			k.args = append(k.args, "--database-url", database)
		}
		k.start()
		share := createShare(t, k.at, "ses_killed")
		acknowledged := map[string]bool{}
		for round := range 4 {
			var all sync.WaitGroup
			var mu sync.Mutex
			done := make(chan struct{}, 1000)
			for writer := range 3 {
				all.Go(func() {
					at := k.at
					for n := 0; ; n++ {
						id := fmt.Sprintf("msg_%d_%d_%d", round, writer, n)
						status, _ := ask(t, "POST", at+"/api/share/"+share.ID+"/sync",
							fmt.Sprintf(`{"secret":%q,"data":[{"type":"message","data":{"id":%q}}]}`, share.Secret, id))
						if status != 200 {
							return
						}
						mu.Lock()
						acknowledged[id] = true
						mu.Unlock()
						done <- struct{}{}
					}
				})
			}
			for range 10 + 7*round {
				select {
				case <-done:
				case <-time.After(servePatience):
					t.Fatal("nothing is acknowledged")
				}
			}
			k.kill()
			all.Wait()
			k.start()
			status, answer := ask(t, "GET", k.at+"/api/share/"+share.ID+"/data", "")
			if status != 200 {
				t.Fatalf("data: %d %s", status, answer)
			}
			for id := range acknowledged {
				if !strings.Contains(answer, `"`+id+`"`) {
					t.Errorf("round %d: %s was acknowledged and is lost", round, id)
				}
			}
			if again := createShare(t, k.at, "ses_killed"); again.ID != share.ID {
				t.Errorf("created again it is %s, was %s", again.ID, share.ID)
			}
		}
		k.kill()
	})
}

// The machine's owner gets at a session that opencode shared, whose owner's ref nobody holds.
func TestTheOwnerOfASharedSession(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		const name = "a-edit-1.18.33"
		r := newCLI(t, database)
		at := "http://" + r.proxy.Addr()
		rec := opencodetest.Read(t, name+".jsonl", opencodetest.Limits)
		share := createShare(t, at, rec.External)
		if share.URL != at+"/share/"+share.ID {
			t.Errorf("it is said to be at %s", share.URL)
		}
		lines, err := os.ReadFile(opencodetest.Path(t, name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(lines)) {
			var q struct {
				Path string
				Body struct{ Data json.RawMessage }
			}
			if err := json.Unmarshal([]byte(line), &q); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(q.Path, "/sync") {
				if status, answer := ask(t, "POST", at+"/api/share/"+share.ID+"/sync", fmt.Sprintf(`{"secret":%q,"data":%s}`, share.Secret, q.Body.Data)); status != 200 {
					t.Fatalf("%d %s", status, answer)
				}
			}
		}
		if status, answer := ask(t, "DELETE", at+"/api/share/"+share.ID, fmt.Sprintf(`{"secret":%q}`, share.Secret)); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		admin := func(want int, args ...string) string {
			t.Helper()
			var out, errText lockbuf.Buffer
			args = append([]string{"admin", "rotate-owner", "--data", r.data()}, args...)
			if database != "" {
				args = append(args, "--database-url", database)
			}
			if code := runContext(t.Context(), args, strings.NewReader(""), &out, &errText); code != want {
				t.Fatalf("%v: exit %d: %s%s", args, code, out.String(), errText.String())
			}
			if want != cli.ExitOK {
				return errText.String()
			}
			return out.String()
		}
		file := filepath.Join(r.dir, "session.ref")
		if database == "" {
			admin(cli.ExitRefused, "--session", rec.External, "--to", file) // the server runs
			r.stop()
		}
		admin(cli.ExitRefused, "--session", "ses_unknown", "--to", file)
		if _, err := os.Stat(file); err == nil {
			t.Error("a refusal leaves a file")
		}
		admin(cli.ExitUsage, "--to", file)
		shown := admin(cli.ExitOK, "--session", rec.External, "--to", file)
		ref, err := capability.ParseRef(strings.TrimSpace(string(readFile(t, file))))
		if err != nil || strings.TrimSpace(shown) != ref.ID {
			t.Fatalf("it says %s; %v", shown, err)
		}
		again := strings.TrimSpace(admin(cli.ExitOK, "--session", ref.Target())) // by our id, and to the output
		if r.stop == nil {
			r.start()
		}
		r.fails(cli.ExitRefused, "revoked", "session", "export", "@"+file)
		opencodetest.CheckShared(t, name, []byte(r.ok("session", "export", again)))
		second := createShare(t, at, rec.External)
		if second.ID == share.ID {
			t.Error("the share that was ended is there again")
		}
		if status, answer := ask(t, "POST", at+"/api/share/"+second.ID+"/sync", fmt.Sprintf(
			`{"secret":%q,"data":[{"type":"session","data":{"id":%q,"title":"shared again"}}]}`, second.Secret, rec.External)); status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		if status, page := ask(t, "GET", at+"/share/"+second.ID, ""); status != 200 || !strings.Contains(page, "shared again") || strings.Contains(page, "msg_") {
			t.Errorf("its page: %d %s", status, page)
		}
		if database == "" {
			r.stop()
		}
		if message := admin(cli.ExitRefused, "--session", rec.External); !strings.Contains(message, ref.Target()) || !strings.Contains(message, "ambiguous") {
			t.Errorf("of two sessions of that name it says %s", message)
		}
	})
}

// The flags: a key from a file or the environment, and loopback switched off.
func TestShareFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for label, path := range map[string]string{"short": file("short", "key\n"), "empty": file("empty", "\nsecond line that is long enough\n"), "missing": filepath.Join(dir, "none")} {
		code, _, errText := command(t, "serve", "--data", filepath.Join(dir, "data"), "--share-key-file", path)
		if code == cli.ExitOK || strings.Contains(errText, "second line") {
			t.Errorf("a %s key: exit %d, %s", label, code, errText)
		}
	}
	const key = "a key that is long enough"
	s := startServe(t, t.TempDir(), "--share-key-file", file("key", "  "+key+"\r\n"), "--share-loopback=false", "--advertise", "https://share.example/mooring", "--max-share-bytes", "64KiB")
	at := "http://" + s.banner.Listening
	if status, answer := ask(t, "POST", at+"/api/share", `{"sessionID":"ses_1"}`); status != 403 {
		t.Errorf("without the key: %d %s", status, answer)
	}
	status, answer := ask(t, "POST", at+"/api/share", `{"sessionID":"ses_1"}`, "x-opencode-share-key", key)
	if status != 200 || !strings.Contains(answer, `"url":"https://share.example/mooring/share/`) {
		t.Errorf("with the key: %d %s", status, answer)
	}
	var share sharing
	if err := json.Unmarshal([]byte(answer), &share); err != nil {
		t.Fatal(err)
	}
	if status, answer := ask(t, "POST", at+"/mooring/api/share/"+share.ID+"/sync", `{"secret":"`+share.Secret+`","data":[]}`+strings.Repeat(" ", 64<<10)); status != 413 {
		t.Errorf("a large sync: %d %s", status, answer)
	}
	if status, answer := ask(t, "GET", at+"/api/sessions", "", "x-opencode-share-key", key); status != 200 || !strings.Contains(answer, share.ID) {
		t.Errorf("the list: %d %s", status, answer)
	}
}

// Such a server's machine shares with a key only, unless told otherwise.
func TestSharingBehindAProxy(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"": http.StatusForbidden, "--share-loopback": http.StatusOK} {
		args := []string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--advertise", "moorings://mooring.example"}
		if flag != "" {
			args = append(args, flag)
		}
		var out, errOut lockbuf.Buffer
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() { done <- runContext(ctx, args, strings.NewReader(""), &out, &errOut) }()
		var at []string
		for end := time.Now().Add(30 * time.Second); at == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			at = regexp.MustCompile(`listening on (\S+)`).FindStringSubmatch(out.String())
		}
		if at == nil {
			t.Fatalf("it does not listen: %s%s", out.String(), errOut.String())
		}
		res, err := http.Post("http://"+at[1]+"/api/share", "application/json", strings.NewReader(`{"sessionID":"ses_1"}`))
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("with %q: status %d", flag, res.StatusCode)
		}
		stop()
		if code := <-done; code != cli.ExitOK {
			t.Errorf("it ended with %d: %s", code, errOut.String())
		}
	}
}
