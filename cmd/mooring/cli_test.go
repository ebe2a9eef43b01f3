//go:build unix

// The commands against a server, all through run, with their output captured.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// cliRig is a data folder, a home folder and a server that comes and goes.
type cliRig struct {
	t        *testing.T
	dir      string
	database string            // Postgres URL; "" for SQLite
	proxy    *faultproxy.Proxy // where the server is, whatever port it got
	stop     func()            // nil while no server runs
	flags    []string          // of the server
}

// newCLI starts a server, with more flags if there are any.
func newCLI(t *testing.T, database string, flags ...string) *cliRig {
	t.Helper()
	proxy, err := faultproxy.Listen("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	r := &cliRig{t: t, dir: t.TempDir(), database: database, proxy: proxy, flags: flags}
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	r.start()
	return r
}

// start runs mooring serve until stop.
func (r *cliRig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	scheme := "mooring://"
	if len(r.flags) > 0 && r.flags[0] == "--tls-cert" {
		scheme = "moorings://"
	}
	args := append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--advertise", scheme + r.proxy.Addr(), "--data", r.data()}, r.flags...)
	if r.database != "" {
		args = append(args, "--database-url", r.database)
	}
	var log lockbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- runContext(ctx, args, strings.NewReader(""), in, &log)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		cancel()
		r.t.Fatalf("the server did not start (exit %d): %s", <-code, log.String())
	}
	var started struct{ Listening string }
	if err := json.Unmarshal(line, &started); err != nil {
		r.t.Errorf("the server's first line: %v", err)
	}
	r.proxy.SetTarget(started.Listening)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	r.stop = func() {
		r.stop = nil
		cancel()
		if c := <-code; c != cli.ExitOK {
			r.t.Errorf("the server ended with %d: %s", c, log.String())
		}
	}
}

func (r *cliRig) data() string  { return filepath.Join(r.dir, "data") }
func (r *cliRig) home() string  { return filepath.Join(r.dir, "home") }
func (r *cliRig) owner() string { return "@" + filepath.Join(r.data(), "owner.ref") }

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// runIn runs a command with this standard input.
func (r *cliRig) runIn(in string, args ...string) result {
	r.t.Helper()
	return r.runAs(r.home(), in, args...)
}

// runAs runs a command with another home folder.
func (r *cliRig) runAs(home, in string, args ...string) result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var out, errOut lockbuf.Buffer
	code := runContext(ctx, withHomeOf(args, home), strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// withHomeOf adds a home folder to a command's arguments, before those of another program.
func withHomeOf(args []string, home string) []string {
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	return slices.Insert(slices.Clone(args), at, "--home", home)
}

// ok runs a command that must succeed and gives its output.
func (r *cliRig) ok(args ...string) string {
	r.t.Helper()
	return r.okIn("", args...)
}

func (r *cliRig) okIn(in string, args ...string) string {
	r.t.Helper()
	got := r.runIn(in, args...)
	if got.code != cli.ExitOK {
		r.t.Fatalf("mooring %s: exit %d: %s%s", strings.Join(args, " "), got.code, got.out, got.err)
	}
	return got.out
}

// slowLines are what a command says before its result where it takes long: how far it is, and what it waits for.
var slowLines = regexp.MustCompile(`(?m)^((bytes read|ops (saved|sent)): \d+ of \d+|waiting: .*)\n`)

// fails runs a command that must fail with this exit code and these words.
func (r *cliRig) fails(code int, words string, args ...string) {
	r.t.Helper()
	r.failsIn("", code, words, args...)
}

func (r *cliRig) failsIn(in string, code int, words string, args ...string) {
	r.t.Helper()
	got := r.runIn(in, args...)
	if got.code != code || !strings.Contains(got.err, words) {
		r.t.Errorf("mooring %s: exit %d, %q; want exit %d with %q", strings.Join(args, " "), got.code, got.err, code, words)
	}
	if n := strings.Count(strings.TrimSpace(slowLines.ReplaceAllString(got.err, "")), "\n"); n > 0 {
		r.t.Errorf("mooring %s: an error of %d lines: %q", strings.Join(args, " "), n+1, got.err)
	}
}

// onSQLite runs a test of what the packages below show on both databases.
func onSQLite(t *testing.T, test func(t *testing.T, database string)) { test(t, "") }

// onBoth runs a test on SQLite and on Postgres.
func onBoth(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, teststore.PostgresURL(t))
	})
}

func TestRecordingsImportAndExport(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		for i, name := range opencodetest.Names {
			file := opencodetest.Path(t, name+".jsonl")
			args := []string{"session", "import", file}
			if i == 0 {
				args = append(args, "--owner", r.owner()) // remembered from then on
			}
			id := strings.TrimSpace(r.ok(args...))
			opencodetest.CheckExport(t, name, []byte(r.ok("session", "export", id)))
			rec := opencodetest.Read(t, name+".jsonl", opencodetest.Limits)
			events := r.tailed(id)
			if again := strings.TrimSpace(r.ok("session", "import", file)); again != id {
				t.Errorf("%s: imported again as %s, was %s", name, again, id)
			}
			if n := r.tailed(rec.External); n != events {
				t.Errorf("%s: importing again went from %d events to %d", name, events, n)
			}
		}
		list := r.ok("session", "list")
		if n := strings.Count(list, "ses_01"); n != len(opencodetest.Names) || !strings.Contains(list, "Revert and unshare") {
			t.Errorf("the list has %d sessions:\n%s", n, list)
		}
		first := r.ok("session", "list", "--order", "oldest", "--limit", "1")
		if n := strings.Count(first, "ses_01"); n != 1 || strings.Count(r.ok("session", "list", "--json", "--limit", "2"), "\n") != 2 {
			t.Errorf("the first of the list are %d sessions:\n%s", n, first)
		}
		var titles []string
		for line := range strings.Lines(r.ok("session", "list", "--order", "title", "--json")) {
			var listed struct{ Title string }
			if err := json.Unmarshal([]byte(line), &listed); err != nil {
				t.Fatal(err)
			}
			titles = append(titles, strings.ToLower(listed.Title))
		}
		if len(titles) != len(opencodetest.Names) || !slices.IsSorted(titles) {
			t.Errorf("by title: %q", titles)
		}
		if found := r.ok("session", "list", "--search", "REVERT and"); strings.Count(found, "ses_01") != 1 || !strings.Contains(found, "Revert and unshare") {
			t.Errorf("searched:\n%s", found)
		}
	})
}

// tailed checks that tail from 0 gives cursors 1 … n and gives n.
func (r *cliRig) tailed(ref string) int {
	r.t.Helper()
	n := 0
	for line := range strings.Lines(r.ok("session", "tail", ref, "--from", "0")) {
		n++
		if cursor, _, _ := strings.Cut(line, "\t"); cursor != fmt.Sprint(n) {
			r.t.Fatalf("line %d has cursor %s", n, cursor)
		}
	}
	if n == 0 {
		r.t.Error("there are no events")
	}
	return n
}

func TestAGrownRecordingGoesOn(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	data, err := os.ReadFile(opencodetest.Path(t, "b-long-1.18.33.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(data), "\n")
	file := filepath.Join(r.dir, "growing.jsonl")
	for _, n := range []int{5, 12, len(lines)} {
		if err := os.WriteFile(file, []byte(strings.Join(lines[:n], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		r.ok("session", "import", file, "--owner", r.owner())
	}
	whole := newCLI(t, "")
	whole.ok("session", "import", opencodetest.Path(t, "b-long-1.18.33.jsonl"), "--owner", whole.owner())
	rec := opencodetest.Read(t, "b-long-1.18.33.jsonl", opencodetest.Limits)
	if a, b := r.tailed(rec.External), whole.tailed(rec.External); a != b {
		t.Errorf("imported in three pieces there are %d events, at once %d", a, b)
	}
	opencodetest.CheckExport(t, "b-long-1.18.33", []byte(r.ok("session", "export", rec.External)))
}

func TestImportWithoutAServerContinuesWithOne(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.ok("session", "list", "--owner", r.owner())
	r.stop()
	file := opencodetest.Path(t, "a-edit-1.18.33.jsonl")
	got := r.runIn("", "session", "import", file)
	if got.code != cli.ExitOK || !strings.Contains(got.err, "durable in the outbox") {
		t.Fatalf("exit %d, %q", got.code, got.err)
	}
	id := strings.TrimSpace(got.out)
	if status := r.ok("outbox", "status"); !strings.Contains(status, id) {
		t.Errorf("the status does not show what waits:\n%s", status)
	}
	r.start()
	if out := r.ok("outbox", "drain"); !strings.Contains(out, "empty") {
		t.Errorf("drain says %q", out)
	}
	opencodetest.CheckExport(t, "a-edit-1.18.33", []byte(r.ok("session", "export", id)))
}

func TestAppendOfflineDrainsByItself(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.importSmall()
		r.stop()
		line := `{"method":"put","key":"message/msg_late","payload":{"role":"user"}}`
		got := r.runIn(line, "session", "append", id)
		if got.code != cli.ExitOK || !strings.Contains(got.err, "durable in the outbox") || !strings.Contains(got.out, "queued") {
			t.Fatalf("exit %d, %q, %q", got.code, got.out, got.err)
		}
		r.start()
		r.ok("session", "list") // any command sends
		if out := r.ok("session", "export", id); !strings.Contains(out, "msg_late") && !r.soon(func() bool {
			return strings.Contains(r.ok("session", "tail", id), "message/msg_late")
		}) {
			t.Error("what was appended offline did not arrive")
		}
	})
}

// pollInterval is between two commands that look whether something has happened: without it, they would take the processors
// from what makes it happen.
const pollInterval = 30 * time.Millisecond

// soon polls for a condition that must come true.
func (r *cliRig) soon(cond func() bool) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(pollInterval) {
		if cond() {
			return true
		}
	}
	return false
}

// importSmall imports a session of one message.
func (r *cliRig) importSmall(flags ...string) string {
	r.t.Helper()
	in := `[{"type":"session","data":{"id":"ses_small","title":"small"}},{"type":"message","data":{"id":"msg_1","role":"user"}}]`
	return strings.TrimSpace(r.okIn(in, append([]string{"session", "import", "-", "--owner", r.owner()}, flags...)...))
}

func TestAppendLinesWithReferences(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	lines := `{"method":"begin","message":"msg_2","payload":{"role":"assistant"},"as":"turn"}
{"method":"put","key":"part/msg_2/prt_1","payload":{"type":"text","text":""}}
{"method":"appendText","key":"part/msg_2/prt_1","offset":0,"text":"Hello, ","as":"one"}
{"method":"appendText","key":"part/msg_2/prt_1","text":"world","refs":{"offset":{"op":"one","path":"length"}},"as":"two"}
{"method":"finalize","message":"msg_2","status":"completed","as":"end"}
{"method":"share","rights":["read"],"label":"made here","as":"reader"}
{"method":"put","key":"session","payload":{"title":"after"},"batch":"second","expected_cursor":{"op":"reader","path":"cursor"}}
{"method":"revoke","refs":{"ref":{"op":"reader","path":"ref"}},"batch":"second"}`
	file := filepath.Join(r.dir, "ops.jsonl")
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	out := r.ok("session", "append", id, file, "--wait")
	if n := strings.Count(out, "  applied  cursor"); n != 8 {
		t.Errorf("%d of 8 ops are reported as applied:\n%s", n, out)
	}
	if strings.Count(out, "mooring://") != 1 {
		t.Errorf("the share made here is not printed once:\n%s", out)
	}
	if export := r.ok("session", "export", id); !strings.Contains(export, `"text":"Hello, world"`) || !strings.Contains(export, `"title":"after"`) {
		t.Errorf("the export is\n%s", export)
	}
	show := r.ok("session", "show", id, "--json")
	var shown struct {
		Cursor uint64
		Title  string
		Counts map[string]int
		Turns  []struct{ Message, Status string }
	}
	if err := json.Unmarshal([]byte(show), &shown); err != nil {
		t.Fatal(err)
	}
	if shown.Title != "after" || shown.Counts["message"] != 2 || shown.Counts["part"] != 1 || len(shown.Turns) != 1 || shown.Turns[0].Status != "completed" {
		t.Errorf("show says %s", show)
	}
	stat := r.ok("session", "stat", id, "--json")
	var counted session.Stat
	if err := json.Unmarshal([]byte(stat), &counted); err != nil || counted.Cursor != shown.Cursor || counted.Events != shown.Cursor || counted.First == 0 || counted.Last < counted.First {
		t.Errorf("stat says %s: %v", stat, err)
	}
	for _, kind := range counted.Kinds {
		if kind.Keys != uint64(shown.Counts[kind.Kind]) || kind.Bytes == 0 {
			t.Errorf("stat counts %+v, show %v", kind, shown.Counts)
		}
	}
	if out := r.ok("session", "stat", id); len(counted.Kinds) != 3 || !regexp.MustCompile(`(?m)^events  +\d+\n(.*\n)+\nKIND +KEYS +BYTES\nmessage +2 +\d+\npart +1 +\d+\nsession +1 +\d+\nall +4 +\d+\n$`).MatchString(out) {
		t.Errorf("stat says\n%s", out)
	}
	// Keys and values.
	if out := r.ok("session", "get", id, "part/msg_2/prt_1"); !strings.Contains(out, `"text":"Hello, world"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("get prints %q", out)
	}
	if out := r.ok("session", "get", id, "session", "part/msg_2/prt_1"); !regexp.MustCompile(`^session\t\{"title":"after"\}\npart/msg_2/prt_1\t\{.*"Hello, world".*\}\n$`).MatchString(out) {
		t.Errorf("get of two keys prints %q", out)
	}
	got := r.runIn("", "session", "get", id, "message/none", "session", "--json")
	var entry readcmd.Entry
	if err := json.Unmarshal([]byte(got.out), &entry); err != nil || got.code != cli.ExitRefused || entry.Key != "session" || entry.Cursor != shown.Cursor-1 || entry.Actor != "owner" || entry.Ref == "" || entry.At == 0 || entry.Bytes != 17 || string(entry.Payload) != `{"title":"after"}` || !strings.Contains(got.err, "message/none has no value") {
		t.Errorf("get of a key without a value: %+v, %v", got, err)
	}
	if out := r.ok("session", "ls", id); !regexp.MustCompile(`^KEY +CURSOR +ACTOR +BYTES +CLAIMED BY\n(message/\S+ +\d+ +owner +\d+ +-\n){2}part/msg_2/prt_1 +\d+ +owner +\d+ +-\nsession +\d+ +owner +17 +-\n$`).MatchString(out) {
		t.Errorf("ls prints\n%s", out)
	}
	if out := r.ok("session", "ls", id, "part/msg_2/", "--values", "--order", "put"); strings.Count(out, "\n") != 2 || !strings.Contains(out, `"Hello, world"`) {
		t.Errorf("ls of a prefix prints\n%s", out)
	}
	if out := r.ok("session", "ls", id, "--limit", "3", "--json"); strings.Count(out, "\n") != 3 || strings.Contains(out, "payload") {
		t.Errorf("ls of three prints\n%s", out)
	}
	if out := r.ok("session", "search", id, "WORLD", "hello"); !regexp.MustCompile(`^part/msg_2/prt_1 +owner +Hello, world\n$`).MatchString(out) {
		t.Errorf("search: %q", out)
	}
	if out := r.ok("session", "search", id, "Hello world", "--json"); !strings.Contains(out, `"place":"/text","excerpt":["","Hello, world",""]`) || strings.Contains(out, "payload") {
		t.Errorf("search for words one after the other, as JSON: %q", out)
	}
	if none := r.runIn("", "session", "search", id, "world hello"); none.code != cli.ExitOK || none.out != "" || none.err != "nothing is found\n" {
		t.Errorf("search for what is not there: %+v", none)
	}
	if none := r.runIn("", "session", "ls", id, "model/"); none.code != cli.ExitOK || none.out != "" || none.err != "there are no keys\n" {
		t.Errorf("ls of nothing: %+v", none)
	}
	// A refusal is told and gives exit code 1; what is around it applies.
	refused := r.runIn(`{"method":"put","key":"message/msg_3","payload":{}}`+"\n"+`{"method":"finalize","message":"msg_2","status":"failed"}`,
		"session", "append", id, "--wait", "--json")
	if refused.code != cli.ExitRefused || !strings.Contains(refused.out, "turn_ended") || !strings.Contains(refused.out, `"outcome":"applied"`) {
		t.Errorf("exit %d, %s%s", refused.code, refused.out, refused.err)
	}
	if list := r.ok("outbox", "list", "--state", "failed", "--json"); !strings.Contains(list, "turn_ended") {
		t.Errorf("the outbox lists %s", list)
	}
}

func TestShareRedeemTailRevoke(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.importSmall()
		file := filepath.Join(r.dir, "reader.ref")
		ref := strings.TrimSpace(r.ok("share", id, "--rights", "read", "--expires", "24h", "--label", "reviewer", "--actor", "owner/reviewer"))
		if err := os.WriteFile(file, []byte(ref+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		other := filepath.Join(r.dir, "other")
		got := r.runAs(other, "", "redeem", "@"+file, "--json")
		var redeemed struct {
			Ref, Label, Actor string
			Rights            []string
			Epoch             uint64
			Expires           int64
			Cursor            uint64 `json:"session_cursor"`
		}
		if err := json.Unmarshal([]byte(got.out), &redeemed); err != nil {
			t.Fatalf("exit %d, %s%s", got.code, got.out, got.err)
		}
		if fmt.Sprint(redeemed.Rights) != "[read]" || redeemed.Label != "reviewer" || redeemed.Actor != "owner/reviewer" || redeemed.Epoch != 1 || redeemed.Expires == 0 || redeemed.Cursor != 4 {
			t.Errorf("redeemed %s", got.out)
		}
		// The other agent has the id from now on, follows, and may not append.
		if got := r.runAs(other, "", "session", "show", id); got.code != cli.ExitOK || !strings.Contains(got.out, "small") {
			t.Errorf("show: exit %d, %s%s", got.code, got.out, got.err)
		}
		got = r.runAs(other, `{"method":"put","key":"session","payload":{}}`, "session", "append", id, "--wait")
		if got.code != cli.ExitRefused || !strings.Contains(got.err, "missing_right") {
			t.Errorf("append: exit %d, %s", got.code, got.err)
		}
		follow := make(chan result, 1)
		lines, in := io.Pipe()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		var errOut lockbuf.Buffer
		go func() {
			code := runContext(ctx, []string{"session", "tail", id, "--follow", "--from", "1", "--home", other}, strings.NewReader(""), in, &errOut)
			follow <- result{code: code, err: errOut.String()}
			_ = in.Close()
		}()
		tail := bufio.NewReader(lines)
		for cursor := 2; cursor <= 4; cursor++ {
			line, err := tail.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, fmt.Sprintf("%d\t", cursor)) {
				t.Fatalf("the tail gives %q (%v), want cursor %d", line, err, cursor)
			}
		}
		if out := r.ok("revoke", redeemed.Ref); !strings.Contains(out, "the cut is at cursor 5") {
			t.Errorf("revoke says %q", out)
		}
		go func() { _, _ = io.Copy(io.Discard, tail) }()
		if end := <-follow; end.code != cli.ExitRefused || !strings.Contains(end.err, "revoked") {
			t.Errorf("the tail ended with %d: %s", end.code, end.err)
		}
		if got := r.runAs(other, "", "redeem", "@"+file); got.code != cli.ExitRefused || !strings.Contains(got.err, "revoked") {
			t.Errorf("redeem after revoke: exit %d, %s%s", got.code, got.out, got.err)
		}
		if out := r.ok("revoke", "--epoch", id, "--json"); !strings.Contains(out, `"epoch":2`) || !strings.Contains(out, `"cut":6`) {
			t.Errorf("revoke --epoch says %s", out)
		}
	})
}

func TestRetryAndDrop(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	refused := r.runIn(`{"method":"appendText","key":"part/msg_9/prt_1","offset":0,"text":"x","op_id":"01JABCDEFGHJKMNPQRSTVWXYZ0"}`, "session", "append", id, "--wait")
	if refused.code != cli.ExitRefused {
		t.Fatalf("exit %d, %s", refused.code, refused.err)
	}
	r.okIn(`{"method":"begin","message":"msg_9","payload":{}}`+"\n"+`{"method":"put","key":"part/msg_9/prt_1","payload":{}}`, "session", "append", id, "--wait")
	op := strings.TrimSpace(r.ok("outbox", "retry", "01JABCDEFGHJKMNPQRSTVWXYZ0"))
	r.ok("outbox", "drain")
	if list := r.ok("outbox", "list", "--state", "acked"); !strings.Contains(list, op) {
		t.Errorf("the retried op %s is not acked:\n%s", op, list)
	}
	r.stop()
	queued := r.okIn(`{"method":"put","key":"message/never","payload":{}}`, "session", "append", id, "--json")
	var shown struct{ Op string }
	if err := json.Unmarshal([]byte(queued), &shown); err != nil {
		t.Fatal(err)
	}
	r.ok("outbox", "drop", shown.Op)
	r.start()
	r.ok("outbox", "drain")
	if out := r.ok("session", "tail", id); strings.Contains(out, "message/never") {
		t.Errorf("a dropped op has arrived:\n%s", out)
	}
	if list := r.ok("outbox", "list", "--state", "void"); !strings.Contains(list, shown.Op) {
		t.Errorf("the dropped op is not void:\n%s", list)
	}
}
