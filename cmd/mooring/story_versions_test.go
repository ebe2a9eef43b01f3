//go:build unix

// Servers of different versions on one database: one apart they share it, two
// apart the older one refuses.

package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// newerBinary does to a database what a server one version newer would: a
// migration that this one can live with, noted in the table of versions. It
// gives the version.
func newerBinary(t *testing.T, r *cliRig) int {
	t.Helper()
	driver, source := "sqlite", "file:"+filepath.Join(r.data(), "mooring.db")+"?_pragma=busy_timeout(10000)"
	if r.database != "" {
		driver, source = "pgx", r.database
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var newest int
	if err := db.QueryRow("SELECT max(version_id) FROM mooring_version").Scan(&newest); err != nil {
		t.Fatal(err)
	}
	column := "later_" + strings.Repeat("x", newest)
	if _, err := db.Exec("ALTER TABLE sessions ADD COLUMN " + column + " TEXT NOT NULL DEFAULT ''"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO mooring_version (version_id, is_applied) VALUES ($1, true)", newest+1); err != nil {
		t.Fatal(err)
	}
	return newest + 1
}

func TestVersionsOneApartServeTwoApartRefuse(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.create("ses_versions")
		if database == "" {
			r.stop() // nobody else may have the file open
		}
		newerBinary(t, r)
		if database != "" { // a replica that runs goes on under the newer one's feet
			r.okIn(putLine("running"), "session", "append", id, "--wait")
			r.stop()
		}
		r.start()
		r.okIn(putLine("started"), "session", "append", id, "--wait")
		other := r.create("ses_later")
		if keys := r.keys(id); count(keys, "started") != 1 || len(r.keys(other)) != 2 {
			t.Errorf("one version apart the events are of %q", keys)
		}
		r.stop()

		at := newerBinary(t, r)
		args := []string{"serve", "--listen", "127.0.0.1:0", "--data", r.data()}
		if database != "" {
			args = append(args, "--database-url", database)
		}
		code, out, text := command(t, args...)
		if code != cli.ExitRefused || out != "" || strings.Count(text, "\n") != 1 {
			t.Errorf("two versions apart: exit %d, printed %q, said %q", code, out, text)
		}
		for _, w := range []string{"incompatible", "run a newer mooring", fmt.Sprint("version ", at), fmt.Sprint("knows ", at-2), "one version apart"} {
			if !strings.Contains(text, w) {
				t.Errorf("the refusal %q is without %q", text, w)
			}
		}
	})
}
