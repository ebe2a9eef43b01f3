//go:build unix

// The audit at the command line: what is in it, who may see it, and that it
// tells what was done to it by hand.

package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/refcmd"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// auditRows is the audit of ref, as --json has it.
func (r *cliRig) auditRows(ref string, more ...string) (rows []refcmd.AuditRow) {
	r.t.Helper()
	for line := range strings.Lines(r.ok(append([]string{"audit", ref, "--json"}, more...)...)) {
		var row refcmd.AuditRow
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// audited makes a session that much has happened to, and gives its id.
func (r *cliRig) audited() string {
	r.t.Helper()
	id := r.importSmall()
	file := filepath.Join(r.dir, "reader.ref")
	r.ok("share", id, "--rights", "read", "--actor", "owner/reviewer", "--to", file)
	other := filepath.Join(r.dir, "other")
	for _, args := range [][]string{{"redeem", "@" + file}, {"session", "show", id}, {"session", "tail", id}} {
		if got := r.runAs(other, "", args...); got.code != cli.ExitOK {
			r.t.Fatalf("%q: exit %d, %s", args, got.code, got.err)
		}
	}
	if got := r.runAs(other, putLine("refused"), "session", "append", id, "--wait"); got.code != cli.ExitRefused {
		r.t.Fatalf("append: exit %d, %s", got.code, got.err)
	}
	r.ok("revoke", "@"+file)
	r.ok("revoke", "--epoch", id)
	r.okIn(putLine("more"), "session", "append", id, "--wait")
	return id
}

func TestAuditShowsWhoDidWhat(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.audited()
		other := filepath.Join(r.dir, "other")
		if got := r.runAs(other, "", "audit", id); got.code != cli.ExitRefused || !strings.Contains(got.err, "revoked") {
			t.Errorf("the audit for a dead ref: exit %d, %s", got.code, got.err)
		}
		file := filepath.Join(r.dir, "second.ref")
		r.ok("share", id, "--rights", "read,append,share,revoke", "--to", file)
		if got := r.runAs(other, "", "audit", "@"+file); got.code != cli.ExitRefused || !strings.Contains(got.err, "not_an_owner") {
			t.Errorf("the audit for a share: exit %d, %s", got.code, got.err)
		}
		r.stop() // what is gathered is written
		r.start()
		rows := r.auditRows(id)
		found := map[string]refcmd.AuditRow{}
		for i, row := range rows {
			if row.Seq != uint64(i+1) || row.Peer != "127.0.0.1" || row.At == 0 || len(row.Hash) != 64 {
				t.Errorf("row %d: %+v", i+1, row)
			}
			label := strings.Join([]string{row.Act, row.Subject, row.Reason}, " ")
			if strings.HasPrefix(row.Subject, id+".") {
				label = row.Act
			}
			if was, again := found[label]; again { // of the same by others, the reviewer's counts
				if was.Actor == "owner/reviewer" && row.Actor != was.Actor {
					continue
				}
				if row.Act == "use" && row.Actor == was.Actor { // of another minute
					row.Count += was.Count
				}
			}
			found[label] = row
		}
		for label, want := range map[string]refcmd.AuditRow{
			"share": {Actor: "owner", Count: 1}, "revoke": {Actor: "owner", Count: 1, Cursor: 5}, "bump  ": {Actor: "owner", Count: 1, Cursor: 6},
			"redeem  ": {Actor: "owner/reviewer", Count: 1}, "use events ": {Actor: "owner/reviewer"}, "use describe ": {Actor: "owner/reviewer"},
			"denial put missing_right": {Actor: "owner/reviewer", Count: 1, Cursor: 4}, "denial audit revoked": {Actor: "owner/reviewer", Count: 1},
			"denial audit not_an_owner": {Actor: "owner", Count: 1}, "use share ": {Actor: "owner"}, "use put ": {Actor: "owner", Count: 3},
		} {
			got, ok := found[label]
			if !ok || got.Actor != want.Actor || want.Count != 0 && got.Count != want.Count || want.Cursor != 0 && got.Cursor != want.Cursor {
				t.Errorf("%s: %+v (there: %v)", label, got, ok)
			}
		}
		if d := found["denial put missing_right"]; d.Op == "" || !strings.HasPrefix(d.Ref, id+".") {
			t.Errorf("the refused op: %+v", d)
		}
		if from := r.auditRows(id, "--from", fmt.Sprint(len(rows)-2)); len(from) < 2 || from[0].Seq != uint64(len(rows)-1) {
			t.Errorf("from row %d there are %+v", len(rows)-2, from)
		}
		lines := strings.Split(strings.TrimSpace(r.ok("audit", id)), "\n")
		if len(lines) < len(rows) || strings.Count(lines[0], "\t") != 8 {
			t.Errorf("%d lines, the first is %q", len(lines), lines[0])
		}
		i := slices.IndexFunc(lines, func(l string) bool {
			return strings.Contains(l, "\tdenial\t") && strings.Contains(l, "\towner/reviewer\tput\t1×\tmissing_right\t4\t127.0.0.1")
		})
		if i < 0 {
			t.Errorf("no line tells of the refused op:\n%s", strings.Join(lines, "\n"))
		}
		// The space's own: sessions are made under its ref.
		r.ok("redeem", r.owner())
		space := r.auditRows(r.owner())
		if !slices.ContainsFunc(space, func(row refcmd.AuditRow) bool { return row.Act == "use" && row.Subject == "create" && row.Count == 1 }) {
			t.Errorf("the space's audit: %+v", space)
		}
	})
}

func TestAuditFollows(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	lines, in := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan result, 1)
	var errOut lockbuf.Buffer
	go func() {
		code := runContext(ctx, []string{"audit", id, "--follow", "--home", r.home()}, strings.NewReader(""), in, &errOut)
		ended <- result{code: code, err: errOut.String()}
		_ = in.Close()
	}()
	read := bufio.NewReader(lines)
	until := func(act string) {
		t.Helper()
		for deadline := time.Now().Add(servePatience); ; {
			line, err := read.ReadString('\n')
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("waiting for %s: %v", act, err)
			}
			if strings.Contains(line, "\t"+act+"\t") {
				return
			}
		}
	}
	r.ok("share", id, "--rights", "read", "--to", filepath.Join(r.dir, "one.ref"))
	until("share")
	r.stop() // and over a restart
	r.start()
	r.ok("revoke", "@"+filepath.Join(r.dir, "one.ref"))
	until("revoke")
	stop()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if got := <-ended; got.code != cli.ExitOK {
		t.Errorf("stopped, it ends with %d: %s", got.code, got.err)
	}
}

// byHand works on the database of a stopped server, which SQLite shares with nobody
// while a server runs.
func (r *cliRig) byHand(do func(db *sql.DB)) {
	r.t.Helper()
	driver, source := "sqlite", "file:"+filepath.Join(r.data(), "mooring.db")+"?_pragma=busy_timeout(10000)"
	if r.database != "" {
		driver, source = "pgx", r.database
	}
	if r.stop != nil {
		r.stop()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		r.t.Fatal(err)
	}
	do(db)
	if err := db.Close(); err != nil {
		r.t.Fatal(err)
	}
	r.start()
}

func TestAuditVerifyNamesWhatWasDoneByHand(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.audited()
		clean := func() {
			t.Helper()
			out := r.ok("audit", "verify", id)
			if strings.Count(out, "whole; the end is ") != 2 || !strings.Contains(out, "log: 7 rows are whole") {
				t.Errorf("nothing was changed: %q", out)
			}
		}
		clean()
		exec := func(db *sql.DB, statements ...string) {
			t.Helper()
			for _, s := range statements {
				if _, err := db.Exec(strings.ReplaceAll(s, "$id", "'"+id+"'")); err != nil {
					t.Fatalf("%s: %v", s, err)
				}
			}
		}
		swap := func(table, target, number string, i, j int) []string {
			move := func(from, to int) string {
				return fmt.Sprintf("UPDATE %s SET %s = %d WHERE %s = $id AND %s = %d", table, number, to, target, number, from)
			}
			return []string{move(i, 100_000), move(j, i), move(100_000, j)}
		}
		kept := false
		for _, c := range []struct {
			name  string
			edit  []string
			lines []string
		}{
			{"a row's actor", []string{"UPDATE audit_log SET actor = 'nobody' WHERE target = $id AND seq = 3"}, []string{"audit row 3 was changed after it was written"}},
			{"a row's time", []string{"UPDATE audit_log SET at = at + 1 WHERE target = $id AND seq = 1"}, []string{"audit row 1 was changed after it was written"}},
			{"a row's hash", []string{"UPDATE audit_log SET hash = (SELECT hash FROM audit_log WHERE target = $id AND seq = 2) WHERE target = $id AND seq = 4"},
				[]string{"audit row 4 was changed after it was written"}},
			{"a row in the middle", []string{"DELETE FROM audit_log WHERE target = $id AND seq = 3"}, []string{"audit row 3 is missing"}},
			{"the first row", []string{"DELETE FROM audit_log WHERE target = $id AND seq = 1"}, []string{"audit row 1 is missing"}},
			{"the last row", []string{"DELETE FROM audit_log WHERE target = $id AND seq = (SELECT MAX(seq) FROM audit_log WHERE target = $id)"}, []string{"audit row ", " is missing"}},
			{"two rows swapped", swap("audit_log", "target", "seq", 2, 4),
				[]string{"audit row 2 is out of order: what stands there was written as 4", "audit row 4 is out of order: what stands there was written as 2"}},
			{"an event's key", []string{"UPDATE events SET key = 'message/msg_x' WHERE session = $id AND cursor = 3"}, []string{"event 3 "}},
			{"an event's ref", []string{"UPDATE events SET actor = 'nobody' WHERE session = $id AND cursor = 1"}, []string{"event 1 "}},
			{"an event's payload", []string{"UPDATE events SET payload = (SELECT payload FROM events WHERE session = $id AND cursor = 1) WHERE session = $id AND cursor = 3"},
				[]string{"event 3 "}},
			{"an event in the middle", []string{"DELETE FROM events WHERE session = $id AND cursor = 4"}, []string{"event 4 is missing"}},
			{"the last event", []string{"DELETE FROM events WHERE session = $id AND cursor = 7"}, []string{"event 7 is missing"}},
			{"two events swapped", swap("events", "session", "cursor", 3, 5),
				[]string{"event 3 ", "event 5 "}},
			{"neighbours swapped", swap("events", "session", "cursor", 6, 7),
				[]string{"event 6 ", "event 7 "}},
			{"an event after the end", []string{"UPDATE sessions SET cursor = 6 WHERE id = $id"}, []string{"event 6 ", "event 7 "}},
			{"a row and an event", []string{"DELETE FROM audit_log WHERE target = $id AND seq = 2", "DELETE FROM events WHERE session = $id AND cursor = 2"},
				[]string{"audit row 2 is missing", "event 2 is missing"}},
		} {
			// What is found does not depend on the database: some will do for the second.
			if database != "" && !slices.Contains([]string{"a row's actor", "two rows swapped", "the last event", "a row and an event"}, c.name) {
				continue
			}
			restore := []string{
				"DELETE FROM audit_log WHERE target = $id AND seq <= (SELECT MAX(seq) FROM kept_audit)", "INSERT INTO audit_log SELECT * FROM kept_audit", "DROP TABLE kept_audit",
				"DELETE FROM events WHERE session = $id", "INSERT INTO events SELECT * FROM kept_events", "DROP TABLE kept_events",
				"UPDATE sessions SET cursor = 7 WHERE id = $id",
			}
			r.byHand(func(db *sql.DB) {
				if kept {
					exec(db, restore...)
				}
				kept = true
				exec(db, "CREATE TABLE kept_audit AS SELECT * FROM audit_log WHERE target = $id", "CREATE TABLE kept_events AS SELECT * FROM events WHERE session = $id")
				exec(db, c.edit...)
			})
			got := r.runIn("", "audit", "verify", id)
			lines := strings.Split(strings.TrimSpace(got.out), "\n")
			named := slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "rows are whole") })
			if got.code != cli.ExitRefused || !strings.Contains(got.err, "differ from what was written") {
				t.Errorf("%s: exit %d, %s%s", c.name, got.code, got.out, got.err)
			}
			if c.name == "the last row" {
				if len(named) != 1 || !strings.HasPrefix(named[0], c.lines[0]) || !strings.HasSuffix(named[0], c.lines[1]) {
					t.Errorf("%s: %q", c.name, got.out)
				}
			} else {
				for _, want := range c.lines {
					if !slices.ContainsFunc(named, func(l string) bool { return strings.HasPrefix(l, want) }) {
						t.Errorf("%s: %q is not among %q", c.name, want, named)
					}
				}
				rows := slices.DeleteFunc(slices.Clone(named), func(l string) bool { return strings.HasPrefix(l, "the state of") })
				if len(rows) != len(c.lines) {
					t.Errorf("%s: %q, want %q", c.name, named, c.lines)
				}
			}
			if c.name == "two rows swapped" {
				got := r.runIn("", "audit", "verify", id, "--json")
				if !strings.Contains(got.out, `{"chain":"audit","flaw":"audit row 2 is out of order: what stands there was written as 4","row":2}`) || !strings.Contains(got.out, `{"chain":"log","whole":true,"from":1,"to":7,"head":"`) {
					t.Errorf("%s: %s", c.name, got.out)
				}
			}
			if c.name == "a row and an event" {
				r.byHand(func(db *sql.DB) { exec(db, restore...) })
			}
		}
		clean()
		if out := r.ok("audit", "verify", r.owner()); !strings.HasPrefix(out, "audit: ") || strings.Contains(out, "log") {
			t.Errorf("the space's: %q", out)
		}
	})
}
