//go:build unix

// Deleting sessions, purging keys, forgetting refs and verifying what is left.

package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/writecmd"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

const leakedKey = "sk-leaked-4711"

// sql runs statements on the server's database, as somebody with the password does.
func (r *cliRig) sql(statements ...string) {
	r.t.Helper()
	driver, source := "pgx", r.database
	if r.database == "" {
		driver, source = "sqlite", "file:"+filepath.Join(r.data(), "mooring.db")+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		done, err := db.Exec(s)
		if err != nil {
			r.t.Fatalf("%s: %v", s, err)
		}
		if n, err := done.RowsAffected(); err != nil || n != 1 {
			r.t.Fatalf("%s: %d rows, %v", s, n, err)
		}
	}
}

// stands says where on the server a text stands: in files of the data folder, or
// in rows of the Postgres database.
func (r *cliRig) stands(text string) (found []string) {
	r.t.Helper()
	if r.database == "" {
		files, err := filepath.Glob(filepath.Join(r.data(), "*"))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				r.t.Fatal(err)
			}
			if bytes.Contains(data, []byte(text)) {
				found = append(found, filepath.Base(name))
			}
		}
		return found
	}
	s := &secrecy{t: r.t, shown: map[string][]byte{}}
	s.tables(r.database)
	for name, rows := range s.shown {
		if bytes.Contains(rows, []byte(text)) || bytes.Contains(rows, []byte(hex.EncodeToString([]byte(text)))) {
			found = append(found, name)
		}
	}
	return found
}

// leak makes a session in which a key leaked into a part, in every way there is.
func (r *cliRig) leak(external string) (id string) {
	r.t.Helper()
	id = r.create(external)
	r.okIn(strings.ReplaceAll(`{"method":"begin","message":"m","payload":{"role":"assistant"}}
{"method":"put","key":"part/m/p","payload":{"text":"KEY"}}
{"method":"put","key":"part/m/p","payload":{"text":""}}
{"method":"appendText","key":"part/m/p","offset":0,"text":"it is KEY"}
{"method":"put","key":"part/m/q","payload":{"text":"harmless"}}
{"method":"finalize","message":"m","status":"completed"}
`, "KEY", leakedKey), "session", "append", id, "--wait")
	return id
}

func TestAPurgedKeyIsNowhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.leak("ses_leaky")
		reader := r.shareTo("reader", id, "--rights", "read")
		if len(r.stands(leakedKey)) == 0 {
			t.Fatal("the key is not found on the server: this test shows nothing")
		}
		follower := r.follow(reader)
		follower.until(t, "share")

		r.fails(cli.ExitUsage, "--yes", "session", "purge", id, "part/m/p")
		r.fails(cli.ExitUsage, "is not a key", "session", "purge", id, "part", "--yes")
		r.refusedAs(r.otherHome("reader"), "", []string{"not_an_owner"}, "session", "purge", reader, "part/m/p", "--yes")
		if got := r.ok("session", "purge", id, "part/m/p", "--yes"); !strings.HasPrefix(got, "purged part/m/p from the state and 4 events, at cursor ") {
			t.Errorf("purge says %q", got)
		}
		if found := r.stands(leakedKey); found != nil {
			t.Errorf("the key stands in %q", found)
		}
		if got := follower.until(t, "purge"); !strings.Contains(got, "\tpart/m/p\t") {
			t.Errorf("the follower got %q", got)
		}
		follower.stop(t)
		for _, out := range []string{r.ok("session", "tail", id, "--json"), r.ok("session", "export", id),
			r.okAs(r.otherHome("late"), "", "session", "tail", reader, "--json")} {
			if strings.Contains(out, leakedKey) || !strings.Contains(out, "harmless") {
				t.Errorf("after the purge: %s", out)
			}
		}
		if got := r.ok("session", "verify", id); !strings.Contains(got, "log of 10 events verified, 3 of them purged; state hash ") {
			t.Errorf("verify says %q", got)
		}
		var again writecmd.Result
		if err := json.Unmarshal([]byte(r.ok("session", "purge", id, "part/m/p", "--yes", "--json")), &again); err != nil || !again.Unchanged {
			t.Errorf("purged again: %+v, %v", again, err)
		}
		// Put again, and purged again.
		r.okIn(`{"method":"put","key":"part/m/p","payload":{"text":"`+leakedKey+`"}}`, "session", "append", id, "--wait")
		r.ok("session", "purge", id, "part/m/p", "--yes")
		if found := r.stands(leakedKey); found != nil {
			t.Errorf("after the second purge the key stands in %q", found)
		}
		r.ok("session", "verify", id)
		// Offline it waits in the outbox.
		r.okIn(`{"method":"put","key":"message/x","payload":{"text":"`+leakedKey+`"}}`, "session", "append", id, "--wait")
		r.stop()
		if err := json.Unmarshal([]byte(r.ok("session", "purge", id, "message/x", "--yes", "--json")), &again); err != nil || !again.Queued {
			t.Errorf("purged offline: %+v, %v", again, err)
		}
		r.start()
		r.ok("outbox", "drain")
		if found := r.stands(leakedKey); found != nil {
			t.Errorf("after the queued purge the key stands in %q", found)
		}
	})
}

func TestADeletedSessionIsOverForEveryRef(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.leak("ses_over")
		reader, writer := r.shareTo("reader", id, "--rights", "read"), r.shareTo("writer", id, "--rights", "read,append")
		follower := r.follow(reader)
		follower.until(t, "share")
		r.fails(cli.ExitUsage, "--yes", "session", "delete", id)
		r.refusedAs(r.otherHome("writer"), "", []string{"not_an_owner"}, "session", "delete", writer, "--yes")
		if got := r.ok("session", "delete", id, "--yes"); !strings.HasPrefix(got, "deleted at cursor ") {
			t.Errorf("delete says %q", got)
		}
		follower.until(t, "delete")
		if code, text := follower.end(t); code != cli.ExitRefused || !strings.Contains(text, "session_deleted") {
			t.Errorf("the follower ended with %d: %s", code, text)
		}
		if found := r.stands(leakedKey); found != nil {
			t.Errorf("the key stands in %q", found)
		}
		over := []string{"session_deleted"}
		for home, ref := range map[string]string{r.home(): id, r.otherHome("reader"): reader, r.otherHome("writer"): writer, r.otherHome("late"): reader} {
			r.refusedAs(home, "", over, "redeem", ref)
			r.refusedAs(home, "", over, "session", "show", ref)
			r.refusedAs(home, "", over, "session", "tail", ref)
			r.refusedAs(home, "", over, "session", "export", ref)
			r.refusedAs(home, "", over, "session", "verify", ref)
		}
		r.refusedAs(r.otherHome("writer"), putLine("late"), over, "session", "append", writer, "--wait")
		r.refusedAs(r.home(), "", over, "session", "delete", id, "--yes")
		r.refusedAs(r.home(), "", over, "session", "purge", id, "part/m/p", "--yes")
		if message := r.ok("audit", id); !strings.Contains(message, "\tdelete\t") {
			t.Errorf("the audit of what was: %s", message)
		}
		if list := r.ok("session", "list"); strings.Contains(list, id) {
			t.Errorf("the list: %s", list)
		}
		if list := r.ok("session", "list", "--deleted"); !strings.Contains(list, id) || !strings.Contains(list, "(deleted)") {
			t.Errorf("the list with what is deleted: %s", list)
		}
	})
}

// TestAForgottenSessionStopsNoOutbox: once nothing is left of a deleted session but its row,
// who comes back late is told that it is over, and goes on with others.
func TestAForgottenSessionStopsNoOutbox(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id, other := r.create("ses_forgotten"), r.create("ses_kept")
		late, writer := r.shareTo("late", id, "--rights", "read"), r.shareTo("writer", id, "--rights", "read,append")
		append1 := func(home, label string, flags ...string) result {
			return r.runAs(home, putLine(label), append([]string{"session", "append", writer}, flags...)...)
		}
		if got := append1(r.otherHome("writer"), "first", "--wait"); got.code != cli.ExitOK {
			t.Fatalf("the first append: %+v", got)
		}
		r.stop()
		if got := append1(r.otherHome("writer"), "late"); got.code != cli.ExitOK {
			t.Fatalf("an append without a server: %+v", got)
		}
		r.ok("session", "delete", id, "--yes")
		copyFolder(t, r.otherHome("unanswered"), r.home()) // as after an answer that was lost
		r.start()
		r.ok("outbox", "drain")
		r.stop()
		r.flags = []string{"--deleted-retention", "1ms"}
		r.start()
		if !r.soon(func() bool { return !strings.Contains(r.ok("session", "list", "--deleted"), "ses_forgotten") }) {
			t.Fatal("it is listed still")
		}
		over := []string{"session_deleted"}
		for _, home := range []string{"unanswered", "writer"} {
			if got := r.runAs(r.otherHome(home), "", "outbox", "drain"); got.code != cli.ExitRefused || !strings.Contains(got.out, "the outbox is empty") {
				t.Errorf("%s comes back: %+v", home, got)
			}
			failed := r.okAs(r.otherHome(home), "", "outbox", "list", "--state", "failed", "--json")
			if st := r.statusOf(r.otherHome(home)); strings.Count(failed, `"reason":"session_deleted"`) != 1 || strings.Count(failed, "\n") != 1 || len(st.Streams) > 0 {
				t.Errorf("%s has %+v, and is told %s", home, st, failed)
			}
		}
		r.refusedAs(r.otherHome("unanswered"), "", over, "session", "delete", id, "--yes")
		r.refusedAs(r.otherHome("writer"), putLine("more"), over, "session", "append", writer, "--wait")
		r.refusedAs(r.otherHome("late"), "", over, "redeem", late)
		r.refusedAs(r.otherHome("late"), "", over, "session", "show", late)
		r.refusedAs(r.home(), "", over, "session", "show", id)
		if message := r.ok("audit", id); !strings.Contains(message, "\tdelete\t") {
			t.Errorf("the audit of what was: %s", message)
		}
		r.okIn(putLine("more"), "session", "append", other, "--wait")
		file := filepath.Join(r.dir, "copy.db")
		for _, args := range [][]string{{"backup", file, "--data", r.data()}, {"check", file}} {
			if code, out, message := command(t, append([]string{"admin"}, args...)...); code != cli.ExitOK {
				t.Errorf("admin %q: exit %d, %s%s", args, code, out, message)
			}
		}
	})
}

// TestManySessionsAreDeletedAtOnce: each has its line, and one that cannot be deleted keeps
// none of the others.
func TestManySessionsAreDeletedAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		var ids []string
		for i := range 5 {
			ids = append(ids, r.create(fmt.Sprintf("ses_many%d", i)))
		}
		others := r.leak("ses_kept")
		writer := r.shareTo("writer", others, "--rights", "read,append")
		r.fails(cli.ExitUsage, "--yes", "session", "delete", ids[0], ids[1])
		r.fails(cli.ExitRefused, "not_found", "session", "delete", ids[0], "ses_nothing", "--yes")
		r.fails(cli.ExitUsage, "twice", "session", "delete", "-", "-", "--yes")
		if got := r.runIn("yes\n", "session", "delete", "-", "--yes"); got.code != cli.ExitRefused || !strings.Contains(got.err, "not_found") {
			t.Errorf("a line that is no ref: exit %d, %s", got.code, got.err)
		}
		if got := r.ok("session", "list"); strings.Count(got, "ses_many") != 2*len(ids) {
			t.Errorf("something was deleted where nothing was to be: %s", got)
		}
		got := r.runIn(ids[2]+"\n\n "+ids[3]+"\r\n"+ids[0]+"\n", "session", "delete", ids[0], "-", ids[1], writer, "--yes")
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		slices.Sort(lines)
		want := slices.Sorted(slices.Values(ids[:4]))
		if got.code != cli.ExitRefused || len(lines) != len(want) || strings.Count(got.err, "not_an_owner") != 2 ||
			!strings.Contains(got.err, "1 of 5 sessions were not deleted") {
			t.Fatalf("exit %d: %s%s", got.code, got.out, got.err)
		}
		for i, id := range want {
			if !strings.HasPrefix(lines[i], id+" deleted at cursor ") {
				t.Errorf("%q is said of %s", lines[i], id)
			}
		}
		if list := r.ok("session", "list"); strings.Count(list, "ses_many4") != 2 || strings.Count(list, "ses_many") != 2 || !strings.Contains(list, "ses_kept") {
			t.Errorf("there are still %s", list)
		}
		var shown writecmd.Result
		if err := json.Unmarshal([]byte(r.okIn(ids[4], "session", "delete", "-", "--yes", "--json")), &shown); err != nil || shown.Session != ids[4] || shown.Cursor == 0 {
			t.Errorf("in JSON: %+v, %v", shown, err)
		}
		if out := r.okIn("\n", "session", "delete", "-", "--yes"); out != "" {
			t.Errorf("of no refs it says %q", out)
		}
	})
}

// TestVerifyNamesWhatWasChangedByHand: rows edited in SQL, each in a session of its own.
func TestVerifyNamesWhatWasChangedByHand(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		bytesOf := func(text string) string {
			if database == "" {
				return "x'" + hex.EncodeToString([]byte(text)) + "'"
			}
			return `'\x` + hex.EncodeToString([]byte(text)) + `'`
		}
		for name, c := range map[string]struct {
			edit  []string // %s is the session's id
			words []string
		}{
			"nothing":      {nil, nil},
			"payload":      {[]string{`UPDATE events SET payload = ` + bytesOf(`{"text":"x"}`) + ` WHERE session = '%s' AND cursor = 4`}, []string{"event 4 has another payload"}},
			"no payload":   {[]string{`UPDATE events SET payload = NULL WHERE session = '%s' AND cursor = 4`}, []string{"event 4 has lost its payload"}},
			"actor":        {[]string{`UPDATE events SET actor = 'somebody' WHERE session = '%s' AND cursor = 5`}, []string{"event 5 was changed"}},
			"middle":       {[]string{`DELETE FROM events WHERE session = '%s' AND cursor = 4`}, []string{"event 4 is missing"}},
			"end":          {[]string{`DELETE FROM events WHERE session = '%s' AND cursor = 8`}, []string{"event 8 is missing"}},
			"end and row":  {[]string{`DELETE FROM events WHERE session = '%s' AND cursor = 8`, `UPDATE sessions SET cursor = 7 WHERE id = '%s'`}, []string{"event 7 is not the one"}},
			"swapped":      {[]string{`UPDATE events SET cursor = 99 WHERE session = '%s' AND cursor = 4`, `UPDATE events SET cursor = 4 WHERE session = '%s' AND cursor = 5`, `UPDATE events SET cursor = 5 WHERE session = '%s' AND cursor = 99`}, []string{"event 4 is out of order: it belongs at 5", "event 5 is out of order: it belongs at 4"}},
			"state":        {[]string{`UPDATE entries SET payload = ` + bytesOf(`{"text":"x"}`) + ` WHERE session = '%s' AND key = 'part/m/q'`}, []string{"the state is not what the log makes of it", "part/m/q"}},
			"state's turn": {[]string{`UPDATE turns SET status = 4 WHERE session = '%s'`}, []string{"turn of message/m"}},
			"state, gone":  {[]string{`DELETE FROM entries WHERE session = '%s' AND key = 'session'`}, []string{"the state is not", `"session"`}},
		} {
			// What is found does not depend on the database: one of each kind will do for the second.
			if database != "" && !slices.Contains([]string{"nothing", "payload", "swapped", "state"}, name) {
				continue
			}
			id := r.leak("ses_" + strings.NewReplacer(" ", "_", ",", "", "'", "").Replace(name))
			for _, edit := range c.edit {
				r.sql(fmt.Sprintf(edit, id))
			}
			if c.words == nil {
				var v readcmd.Verification
				if err := json.Unmarshal([]byte(r.ok("session", "verify", id, "--json")), &v); err != nil || !v.Verified || v.Events != 8 || v.Cursor != 8 || v.StateAt != 8 || len(v.State) != 64 || v.Open != nil {
					t.Errorf("%s: %+v, %v", name, v, err)
				}
				continue
			}
			if name == "payload" {
				got := r.runIn("", "session", "verify", id, "--json")
				var v readcmd.Verification
				if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Verified || got.code != cli.ExitRefused {
					t.Errorf("%s: exit %d, %+v, %v", name, got.code, v, err)
				}
			}
			r.refusedAs(r.home(), "", append(c.words, "internal"), "session", "verify", id)
		}
	})
}

// What a ref does not show, and what a log no longer has, is said.
func TestVerifySaysWhatItCouldNot(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "", "--keep-log", "1s")
	id := r.leak("ses_trimmed")
	late := r.shareTo("late", id, "--rights", "read", "--from", "9")
	deadline := time.Now().Add(servePatience)
	for ; !strings.Contains(r.ok("session", "verify", id), "not verified: the log was trimmed and starts after cursor 9"); time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			t.Fatal("the log is never trimmed")
		}
	}
	r.okIn(putLine("more"), "session", "append", id, "--wait")
	if got := r.okAs(r.otherHome("late"), "", "session", "verify", late); !strings.Contains(got, "not verified: ") {
		t.Errorf("through a narrower ref: %s", got)
	}
}

func TestForgettingARef(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_forget")
	writer := r.shareTo("writer", id, "--rights", "read,append")
	home := r.otherHome("writer")
	text, err := os.ReadFile(strings.TrimPrefix(writer, "@"))
	if err != nil {
		t.Fatal(err)
	}
	ref, secret, _ := strings.Cut(strings.TrimSpace(string(text)), "#")
	r.okAs(home, "", "redeem", writer)
	if !holds(t, home, secret) {
		t.Fatal("the home folder does not have the secret: this test shows nothing")
	}
	if got := r.okAs(home, "", "refs", "forget", id); got != "forgot "+ref[strings.LastIndex(ref, "/")+1:]+"\n" {
		t.Errorf("forget says %q", got)
	}
	if holds(t, home, secret) {
		t.Error("the home folder still has the secret")
	}
	r.refusedAs(home, "", []string{"not_found"}, "session", "show", id)
	r.refusedAs(home, "", []string{"not_found"}, "refs", "forget", id)

	// What waits keeps it.
	r.okAs(home, "", "redeem", writer)
	r.stop()
	r.okAs(home, putLine("waits"), "session", "append", id)
	r.refusedAs(home, "", []string{"in_use", "1 op to be sent", "--force"}, "refs", "forget", writer)
	var done struct {
		Forgotten bool
		Dropped   int
	}
	if err := json.Unmarshal([]byte(r.okAs(home, "", "refs", "forget", writer, "--force", "--json")), &done); err != nil || !done.Forgotten || done.Dropped != 1 {
		t.Errorf("forced: %+v, %v", done, err)
	}
	r.start()
	r.okAs(home, "", "redeem", writer)
	if keys := r.keys(id); count(keys, "waits") != 0 {
		t.Errorf("what was given up has arrived: %v", keys)
	}
	// The owner's ref of a session that was made here may be the only one.
	r.fails(cli.ExitRefused, "--force", "refs", "forget", id)
	r.ok("refs", "forget", id, "--force")
}

// holds says whether a text stands in a file of a folder.
func holds(t *testing.T, dir, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

// follower is a session tail --follow under way.
type follower struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	errOut lockbuf.Buffer
	code   chan int
}

func (r *cliRig) follow(ref string) *follower {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	lines, in := io.Pipe()
	f := &follower{lines: bufio.NewScanner(lines), cancel: cancel, code: make(chan int, 1)}
	r.t.Cleanup(cancel)
	go func() {
		code := runContext(ctx, []string{"session", "tail", ref, "--follow", "--home", r.otherHome("follower")}, strings.NewReader(""), in, &f.errOut)
		_ = in.Close()
		f.code <- code
	}()
	return f
}

// until reads up to the next event of a method and gives its line.
func (f *follower) until(t *testing.T, method string) string {
	t.Helper()
	for f.lines.Scan() {
		if strings.Contains(f.lines.Text(), "\t"+method+"\t") {
			return f.lines.Text()
		}
	}
	t.Fatalf("the tail ended before %s: %s", method, f.errOut.String())
	return ""
}

// end waits for its end.
func (f *follower) end(t *testing.T) (int, string) {
	t.Helper()
	for f.lines.Scan() {
		t.Errorf("after the end came %q", f.lines.Text())
	}
	return <-f.code, f.errOut.String()
}

func (f *follower) stop(t *testing.T) {
	t.Helper()
	f.cancel()
	for f.lines.Scan() {
	}
	if code := <-f.code; code != cli.ExitOK {
		t.Errorf("the tail ended with %d: %s", code, f.errOut.String())
	}
}
