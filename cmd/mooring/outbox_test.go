//go:build unix

// What the outbox commands tell and do.

package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// listed is a line of outbox list --json.
type listed struct {
	Op, Batch, State string
	Attempts         int
	NextRetry        string `json:"next_retry"`
	LastError        string `json:"last_error"`
}

func (r *cliRig) listed(args ...string) (rows []listed) {
	r.t.Helper()
	for line := range strings.Lines(r.ok(append([]string{"outbox", "list", "--json"}, args...)...)) {
		var row listed
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			r.t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// What waits shows how often it was tried, when it is next, and why; what is over does not.
func TestOutboxShowsAttempts(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_away")
	r.stop()
	op := strings.Fields(r.okIn(putLine("a"), "session", "append", id))[0]
	// A drain says what held it up: a proxy without its server.
	got := r.runIn("", "outbox", "drain", "--timeout", "300ms")
	if got.code != cli.ExitRefused || !strings.Contains(got.err, "still in the outbox: unavailable: what listens at mooring://") || !strings.Contains(got.err, "is it a Mooring server, and well?") {
		t.Errorf("drain: %+v", got)
	}
	rows := r.listed("--state", "pending,in_flight")
	if len(rows) != 1 || rows[0].Op != op || rows[0].Attempts < 1 || !strings.HasPrefix(rows[0].LastError, "unavailable: what listens at mooring://") {
		t.Fatalf("the list has %+v", rows)
	}
	if at, err := time.Parse(time.RFC3339, rows[0].NextRetry); err != nil || time.Until(at) > time.Minute || time.Since(at) > time.Minute {
		t.Errorf("the next retry is at %s, %v", rows[0].NextRetry, err)
	}
	const waits = ` +[1-9]\d* +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  unavailable: what listens at mooring://`
	for label, c := range map[string]struct {
		args []string
		line string
	}{
		"list": {[]string{"outbox", "list"}, `(?m)^` + op + ` +` + id + ` +put +(pending|in_flight)` + waits}, "status": {[]string{"outbox", "status"}, `(?m)^` + id + ` +1` + waits},
	} {
		if out := r.ok(c.args...); !regexp.MustCompile(c.line).MatchString(out) {
			t.Errorf("%s prints\n%s", label, out)
		}
	}
	var st struct {
		Streams []struct {
			Attempts  int
			NextRetry string `json:"next_retry"`
		}
	}
	if err := json.Unmarshal([]byte(r.ok("outbox", "status", "--json")), &st); err != nil || len(st.Streams) != 1 || st.Streams[0].Attempts != rows[0].Attempts || st.Streams[0].NextRetry != rows[0].NextRetry {
		t.Errorf("the status has %+v, %v", st, err)
	}
	r.start()
	r.ok("outbox", "drain")
	rows = r.listed("--session", "ses_away")
	if last := rows[len(rows)-1]; last.State != "acked" || last.LastError != "" || last.NextRetry != "" || last.Attempts < 2 {
		t.Errorf("once it is acked: %+v", last)
	}
	if out := r.ok("outbox", "list"); strings.Contains(out, "unavailable") {
		t.Errorf("once it is acked:\n%s", out)
	}
}

func TestOutboxListFindsItsSession(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_named")
	const nobody = "01JABCDEFGHJKMNPQRSTVWXYZ0"
	byID, batch := r.ok("outbox", "list", "--session", id), ""
	for line := range strings.Lines(r.ok("outbox", "list", "--json")) {
		var row struct{ Batch string }
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		batch = row.Batch
	}
	if out := r.ok("outbox", "list", "--session", " ses_named\n"); out != byID || strings.Count(out, id) != 2 {
		t.Errorf("by the external id:\n%s", out)
	}
	if out := r.ok("outbox", "list", "--session", "ses_named", "--state", "failed"); out != "" {
		t.Errorf("none has failed:\n%s", out)
	}
	if out := r.ok("outbox", "list", "--batch", batch, "--state", "failed"); out != "" {
		t.Errorf("none has failed:\n%s", out)
	}
	for _, args := range [][]string{{"--session", "ses_unknown"}, {"--session", "ses_" + nobody}, {"--session", "ses_" + nobody, "--state", "failed"}, {"--batch", nobody}} {
		r.fails(cli.ExitRefused, "not_found: ", append([]string{"outbox", "list"}, args...)...)
	}
	// An id that two sessions have is not guessed.
	second := newCLI(t, "")
	in := `[{"type":"session","data":{"id":"ses_named","title":"x"}}]`
	r.okIn(in, "session", "import", "-", "--owner", second.owner())
	for _, args := range [][]string{{"session", "show", "ses_named"}, {"outbox", "list", "--session", "ses_named"}, {"share", "ses_named", "--rights", "read"}, {"session", "append", "ses_named"}, {"refs", "forget", "ses_named"}} {
		got := r.refusedAs(r.home(), putLine("x"), []string{"ambiguous"}, args...)
		if args[0] != "refs" && (!strings.Contains(got.err, id) || !strings.Contains(got.err, "give the whole id")) {
			t.Errorf("%q: %s", args, got.err)
		}
	}
	r.ok("session", "show", id)
}

// Drop and retry say what they did, and what they are for.
func TestDropAndRetryTell(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_dropped")
	refused := r.runIn(`{"method":"appendText","key":"part/m/p","offset":0,"text":"x"}`, "session", "append", id, "--wait")
	failed, acked := strings.Fields(refused.out)[0], r.listed()[0].Op
	r.fails(cli.ExitRefused, "bad_argument: op "+failed+" is failed: drop gives up ops that are not answered yet; it blocks nothing", "outbox", "drop", failed)
	r.fails(cli.ExitRefused, "bad_argument: op "+acked+" is acked: drop gives up", "outbox", "drop", acked)
	r.fails(cli.ExitRefused, "bad_argument: op "+acked+" is acked: retry commits ops again that did not apply", "outbox", "retry", acked)
	got := r.runIn("", "outbox", "status")
	if got.code != cli.ExitOK || !strings.Contains(got.err, "1 op did not apply: mooring outbox list --state failed,skipped") || !strings.Contains(got.err, "30 days") {
		t.Errorf("status: %+v", got)
	}
	r.stop()
	var ops []string
	for line := range strings.Lines(r.okIn(manyLines("d", 2), "session", "append", id)) {
		ops = append(ops, strings.Fields(line)[0])
	}
	said := regexp.MustCompile(`^` + ops[0] + `  (dropped: it will not be sent|may have been sent: a void takes its place, unless the server has recorded it already)\n$`)
	if out := r.ok("outbox", "drop", ops[0]); !said.MatchString(out) {
		t.Errorf("drop prints %q", out)
	}
	if out := r.ok("outbox", "drop", ops[1], "--json"); !regexp.MustCompile(`^{"op":"` + ops[1] + `","state":"(void|dropping)"}\n$`).MatchString(out) {
		t.Errorf("drop prints %q", out)
	}
}

// The outbox in Postgres, by flag and by environment, is one and the same; an empty
// variable is none.
func TestOutboxURL(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	url := pgtest.URL(t)
	in := `[{"type":"session","data":{"id":"ses_pg","title":"x"}}]`
	id := strings.TrimSpace(r.okIn(in, "session", "import", "-", "--owner", r.owner(), "--outbox-url", url))
	env := func(value string, args ...string) (int, string) {
		t.Helper()
		p := r.process(args...)
		p.cmd.Env = append(p.cmd.Env, "MOORING_OUTBOX_URL="+value)
		p.start()
		return p.end(), p.out.String() + p.err.String()
	}
	if code, message := env(url, "session", "show", "ses_pg"); code != cli.ExitOK || !strings.Contains(message, id) {
		t.Errorf("by the environment: exit %d, %s", code, message)
	}
	if _, err := os.Stat(r.home() + "/outbox.db"); err == nil {
		t.Error("there is an outbox in the home folder")
	}
	if code, message := env("", "session", "show", "ses_pg"); code != cli.ExitRefused || !strings.Contains(message, "not_found") {
		t.Errorf("by an empty variable: exit %d, %s", code, message)
	}
}

// TestDamagedOps: an op that the disk has changed is not sent, drain says so, and an op of
// a former version, which has nothing to show damage by, is listed as that.
func TestDamagedOps(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_damaged")
	r.stop()
	for _, key := range []string{"a", "b", "c"} {
		r.okIn(putLine(key), "session", "append", id)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(r.home(), "outbox.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows := r.listed("--state", "pending,in_flight")
	if len(rows) != 3 {
		t.Fatalf("%+v", rows)
	}
	change := func(row listed, to func(body []byte) []byte) {
		var body []byte
		if err := db.QueryRow("SELECT body FROM mooring_outbox_batch WHERE batch = $1", row.Batch).Scan(&body); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("UPDATE mooring_outbox_batch SET body = $1 WHERE batch = $2", to(body), row.Batch); err != nil {
			t.Fatal(err)
		}
	}
	change(rows[1], func(body []byte) []byte { return bytes.Replace(body, []byte("message/"), []byte("massage/"), 1) })
	change(rows[2], func(body []byte) []byte { // as it was written before there were digests
		body[0] = 1
		return body[:len(body)-sha256.Size]
	})
	if list := r.ok("outbox", "list"); strings.Count(list, ", unproven") != 1 {
		t.Errorf("the list is %s", list)
	}
	r.start()
	r.fails(cli.ExitRefused, "outbox_damaged", "outbox", "drain", "--timeout", "20s")
	if failed := r.listed("--state", "failed"); len(failed) != 1 || failed[0].Batch != rows[1].Batch || !strings.Contains(failed[0].LastError, "damaged") {
		t.Errorf("failed: %+v", failed)
	}
	if keys := r.ok("session", "tail", id); strings.Count(keys, "message/") != 2 || strings.Contains(keys, "massage") {
		t.Errorf("the session has %s", keys)
	}
}

// TestAHomeThatOthersMayWriteTo is used by no command.
func TestAHomeThatOthersMayWriteTo(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"outbox", "status"}, {"key"}, {"session", "list"}} {
		if code, _, text := command(t, append(args, "--home", home)...); code != cli.ExitUsage || !strings.Contains(text, "every user may write to the home folder") {
			t.Errorf("mooring %s: exit %d, %q", args, code, text)
		}
	}
}
