//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/writecmd"
)

// age lets a session's last event be from days ago.
func (r *cliRig) age(days int, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.sql(fmt.Sprintf("UPDATE sessions SET updated = updated - %d WHERE id = '%s'", int64(days)*86_400_000, id))
	}
}

// session delete --older-than: what is listed, asked, done, left and repeated, and by whom.
func TestDeleteOlder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		old1, old2, young, running := r.create("old1"), r.create("old2"), r.create("young"), r.create("running")
		child := strings.TrimSpace(r.ok("session", "create", "--owner", r.owner(), "--parent", old1))
		r.okIn(`{"method":"begin","message":"m","payload":{"role":"assistant"}}`, "session", "append", running, "--wait")
		reader := r.shareTo("reader", old1, "--rights", "read")
		r.okAs(r.otherHome("reader"), "", "session", "show", reader)
		r.age(100, old1, old2, running)
		r.age(80, young)

		older := []string{"session", "delete", "--older-than", "90d", "--space", r.owner()}
		with := func(more ...string) []string { return append(slices.Clone(older), more...) }
		r.fails(cli.ExitUsage, "--yes", older...)
		r.fails(cli.ExitUsage, "no REF", with(old1, "--yes")...)
		r.fails(cli.ExitUsage, "--space", "session", "delete", "--older-than", "90d", "--yes")
		r.fails(cli.ExitUsage, "--older-than", "session", "delete", old1, "--dry-run", "--yes")
		for _, bad := range []string{"90", "-90d", "0", "0d", "1ms", "soon"} {
			r.fails(cli.ExitUsage, "older-than", "session", "delete", "--older-than="+bad, "--space", r.owner(), "--yes")
		}
		creator := r.shareTo("creator", r.owner(), "--rights", "create")
		r.refusedAs(r.otherHome("creator"), "", []string{"missing_right"}, "session", "delete", "--older-than", "90d", "--space", creator, "--yes")

		listed := map[string]writecmd.OldSession{}
		for line := range strings.Lines(r.ok(with("--dry-run", "--json")...)) {
			var one writecmd.OldSession
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			listed[one.Session] = one
		}
		if len(listed) != 3 || listed[old1].Left != "" || listed[old1].Events == 0 || listed[old1].Bytes == 0 || listed[running].Left != "turn_open" {
			t.Errorf("listed: %+v", listed)
		}
		if got := r.runIn("", with("--dry-run")...); !strings.Contains(got.out, old2) || strings.Contains(got.out, young) || !strings.Contains(got.err, "2 sessions would be deleted") || !strings.Contains(got.err, "a turn is running") {
			t.Errorf("a dry run: %+v", got)
		}
		var done writecmd.RemovedOlder
		if err := json.Unmarshal([]byte(r.ok(with("--yes", "--json")...)), &done); err != nil || done.Deleted != 2 || done.Left != 1 || done.Failed != 0 || done.Before == 0 {
			t.Errorf("deleted: %+v, %v", done, err)
		}
		for range 2 { // again, nothing
			if got := r.runIn("", with("--yes")...); got.code != cli.ExitOK || got.out != "" || !strings.Contains(got.err, "there is no session") {
				t.Errorf("again: %+v", got)
			}
		}
		r.fails(cli.ExitRefused, "session_deleted", "session", "show", old1)
		r.refusedAs(r.otherHome("reader"), "", []string{"session_deleted"}, "session", "show", reader)
		for _, id := range []string{young, running, child} {
			r.ok("session", "show", id)
		}
		for _, ref := range []string{r.owner(), old2} {
			deletes := 0
			for _, row := range r.auditRows(ref) {
				if row.Act == "delete" {
					deletes++
				}
			}
			if want := map[bool]int{true: 2, false: 1}[ref == r.owner()]; deletes != want {
				t.Errorf("%d deletes in the audit of %s, want %d", deletes, ref, want)
			}
		}
		if got := r.ok(with("--yes", "--older-than", "70d")...); got != "deleted 1 session; 1 left: changed meanwhile, or a turn is running\n" {
			t.Errorf("the younger: %q", got)
		}
	})
}

// session purge KEY --older-than: the key alone goes, and the session has changed then.
func TestPurgeOlder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		has, hasNot, young := r.create("has"), r.create("has not"), r.create("young")
		for _, id := range []string{has, young} {
			r.okIn(`{"method":"put","key":"env/secrets","payload":{"text":"`+leakedKey+`"}}`+"\n"+putLine("stays"), "session", "append", id, "--wait")
		}
		r.age(40, has, hasNot)
		purge := []string{"session", "purge", "env/secrets", "--older-than", "30d", "--space", r.owner()}
		r.fails(cli.ExitUsage, "KEY and no REF", "session", "purge", "--older-than", "30d", "--space", r.owner(), "--yes")
		r.fails(cli.ExitUsage, "KEY and no REF", append(slices.Clone(purge), has, "--yes")...)
		if got := r.runIn("", append(slices.Clone(purge), "--dry-run")...); !strings.Contains(got.err, "env/secrets would be purged from those of 2 sessions that have it") {
			t.Errorf("a dry run: %+v", got)
		}
		if got := r.ok(append(slices.Clone(purge), "--yes")...); got != "purged env/secrets from 1 session; 1 have nothing of it\n" {
			t.Errorf("purged: %q", got)
		}
		r.fails(cli.ExitRefused, "not_found", "session", "get", has, "env/secrets")
		r.ok("session", "get", has, "message/stays")
		r.ok("session", "get", young, "env/secrets")
		r.ok("session", "verify", has)
		if got := r.ok(append(slices.Clone(purge), "--yes")...); got != "purged env/secrets from 0 sessions; 1 have nothing of it\n" {
			t.Errorf("again: %q", got)
		}
	})
}
