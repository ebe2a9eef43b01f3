//go:build unix

// Copies of a server's database, at the command line.

package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// A copy that was made while the server ran takes the place of what came after it.
func TestBackupOfARunningServer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	was := r.ok("session", "export", id)
	file := r.file("copy.db", "")
	admin := func(want int, words string, args ...string) string {
		t.Helper()
		code, out, message := command(t, append([]string{"admin"}, args...)...)
		if code != want || !strings.Contains(out+message, words) {
			t.Errorf("admin %s: exit %d, %s%s; want %d with %q", strings.Join(args, " "), code, out, message, want, words)
		}
		return out
	}
	admin(cli.ExitRefused, "copy.db is there already: name another file", "backup", file, "--data", r.data())
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	admin(cli.ExitOK, file+" has the database of ", "backup", file, "--data", r.data())
	admin(cli.ExitOK, "copy.db is good: ", "check", file)
	admin(cli.ExitOK, "fast.db has the database of ", "backup", "--fast", filepath.Join(r.dir, "fast.db"), "--data", r.data())
	admin(cli.ExitOK, "fast.db is good: ", "check", filepath.Join(r.dir, "fast.db"))
	var shown struct{ Sessions, Events int }
	if err := json.Unmarshal([]byte(admin(cli.ExitOK, "", "check", file, "--json")), &shown); err != nil || shown.Sessions != 1 || shown.Events == 0 {
		t.Errorf("shown is %+v, %v", shown, err)
	}
	admin(cli.ExitRefused, "pg_dump", "backup", file+"2", "--data", r.data(), "--database-url", "postgres://127.0.0.1/x")
	admin(cli.ExitUsage, "not a server's data folder", "backup", file+"2", "--data", t.TempDir())
	admin(cli.ExitUsage, "the copy cannot be written to ", "backup", filepath.Join(r.dir, "none", "copy"), "--data", r.data())
	stopped, stop := context.WithCancel(t.Context())
	stop()
	var said lockbuf.Buffer
	if code := runContext(stopped, []string{"admin", "backup", file + "2", "--data", r.data()}, strings.NewReader(""), io.Discard, &said); code != cli.ExitRefused || said.String() != "mooring: canceled: stopped before the copy was complete: there is no "+file+"2\n" {
		t.Errorf("stopped, it ends with %d and says %s", code, said.String())
	}
	admin(cli.ExitUsage, "none", "check", filepath.Join(r.dir, "none"))
	admin(cli.ExitRefused, "text: malformed: it is no database of a server, or damaged: file is not a database (26)\n", "check", r.file("text", strings.Repeat("no database\n", 100)))

	r.okIn(putLine("later"), "session", "append", id, "--wait")
	r.stop()
	for _, old := range []string{"mooring.db", "mooring.db-wal", "mooring.db-shm"} {
		if err := os.Remove(filepath.Join(r.data(), old)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.data(), "mooring.db"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.start()
	if is := r.ok("session", "export", id); is != was {
		t.Errorf("the copy has %s, not %s", is, was)
	}
}

// What was restored says so: to who asks whether it is ready, and over /api/v1.
func TestRestoredBeginsAnotherHistory(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		history := func() string {
			t.Helper()
			_, body := ask(t, "GET", "http://"+r.proxy.Addr()+"/readyz", "")
			_, id, _ := strings.Cut(strings.TrimSpace(body), "ready\nhistory ")
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+r.proxy.Addr()+"/api/v1/openapi.json", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := shareClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if named := res.Header.Get("Mooring-History"); named != id || len(id) != 32 {
				t.Errorf("readyz says %q, and /api/v1 %q", body, named)
			}
			return id
		}
		args := []string{"admin", "restored", "--data", r.data()}
		if database != "" {
			args = append(args, "--database-url", database)
		}
		was := history()
		if database == "" {
			if code, _, message := command(t, args...); code != cli.ExitRefused || !strings.Contains(message, "stop it first") {
				t.Errorf("while the server runs: exit %d, %s", code, message)
			}
		}
		r.stop()
		code, out, message := command(t, args...)
		if code != cli.ExitOK {
			t.Fatalf("exit %d, %s", code, message)
		}
		r.start()
		if is := history(); is == was || !strings.Contains(out, is) {
			t.Errorf("it was %s, is %s, and %q was said", was, is, out)
		}
		r.stop()
		r.start()
		if again := history(); !strings.Contains(out, again) {
			t.Errorf("after another start it is %s", again)
		}
	})
}

// A database is vacuumed while no server uses it, and has what it had.
func TestVacuumOfAStoppedServer(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	was := r.ok("session", "export", id)
	vacuum := func(want int, words string, more ...string) {
		t.Helper()
		code, out, message := command(t, append([]string{"admin", "vacuum"}, more...)...)
		if code != want || !strings.Contains(out+message, words) {
			t.Errorf("vacuum %v: exit %d, %s%s; want %d with %q", more, code, out, message, want, words)
		}
	}
	vacuum(cli.ExitRefused, "stop it first", "--data", r.data())
	r.stop()
	vacuum(cli.ExitOK, "the database had ", "--data", r.data())
	vacuum(cli.ExitOK, `"after":`, "--data", r.data(), "--json")
	vacuum(cli.ExitRefused, "autovacuum", "--data", r.data(), "--database-url", "postgres://127.0.0.1/x")
	vacuum(cli.ExitUsage, "not a server's data folder", "--data", t.TempDir())
	r.start()
	if is := r.ok("session", "export", id); is != was {
		t.Errorf("it has %s, not %s", is, was)
	}
}
