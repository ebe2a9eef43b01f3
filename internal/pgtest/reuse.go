//go:build unix

// Databases that one test after the other uses.

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// reused is what Reuse turned on.
var reused struct {
	sync.Mutex
	on   bool
	free map[*Template][]string // URLs of databases that nobody uses
}

// Reuse has a test's database be emptied, renamed and given to a later test, instead of being dropped: to make and drop
// one takes a server longer than most tests do. What it returns drops them and ends the process, for goleak.Cleanup in a
// TestMain.
func Reuse() (exit func(code int)) {
	reused.Lock()
	defer reused.Unlock()
	reused.on, reused.free = true, map[*Template][]string{}
	return func(code int) {
		if err := dropFree(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: drop database:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
}

func dropFree() error {
	reused.Lock()
	defer reused.Unlock()
	reused.on = false
	var errs []error
	for _, urls := range reused.free {
		for _, u := range urls {
			errs = append(errs, drop(process.url, nameOf(u)))
		}
	}
	return errors.Join(errs...)
}

// Template makes databases that have something in them when a test gets them: what Make put there. Tests add rows and
// take them away, but leave the tables as they are.
type Template struct {
	Make func(url string) error
}

// empty is what URL hands out.
var empty = new(Template)

// URL is the function URL for a database that has been prepared.
func (p *Template) URL(tb testing.TB) string {
	tb.Helper()
	server, err := ServerURL(context.Background())
	if err != nil {
		tb.Fatalf("pgtest: no Postgres for this test: %v", err)
	}
	at, ok := p.take()
	if !ok {
		at = withDatabase(server, newName())
		err = p.create(server, at)
	}
	tb.Cleanup(func() {
		if err := p.giveBack(server, at, err != nil || tb.Failed()); err != nil {
			tb.Errorf("pgtest: drop database: %v", err)
		}
	})
	if err != nil {
		tb.Fatalf("pgtest: create database: %v", err)
	}
	return at
}

func (p *Template) take() (at string, ok bool) {
	reused.Lock()
	defer reused.Unlock()
	free := reused.free[p]
	if len(free) == 0 {
		return "", false
	}
	reused.free[p] = free[:len(free)-1]
	return free[len(free)-1], true
}

func (p *Template) create(server, at string) error {
	if err := createFrom(server, "template0", nameOf(at)); err != nil || p.Make == nil {
		return err
	}
	if err := p.Make(at); err != nil {
		return err
	}
	return execute(at, saveSQL)
}

// giveBack makes a database what it was when the first test got it, for the next one. What a failed test used is dropped.
func (p *Template) giveBack(server, used string, failed bool) error {
	reused.Lock()
	on := reused.on
	reused.Unlock()
	next := used
	if on && !failed {
		next = withDatabase(server, newName())
		if p.restore(server, used, next) == nil {
			reused.Lock()
			defer reused.Unlock()
			reused.free[p] = append(reused.free[p], next)
			return nil
		}
	}
	return errors.Join(drop(server, nameOf(used)), drop(server, nameOf(next)))
}

// restore renames a database, so that whoever still knows it by its old name finds nothing there, and restores what was in it.
func (p *Template) restore(server, used, next string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// Renaming waits for others to leave too, but looks once in a tenth of a second.
	for left := 1; left > 0; pause(ctx, 2*time.Millisecond) {
		err := conn.QueryRow(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1", nameOf(used)).Scan(&left)
		if err != nil {
			return err
		}
	}
	for _, do := range []string{"ALTER DATABASE " + nameOf(used) + " RENAME TO " + nameOf(next), "ALTER DATABASE " + nameOf(next) + " RESET ALL"} {
		if _, err := conn.Exec(ctx, do); err != nil {
			return err
		}
	}
	if p.Make == nil {
		return execute(next, emptySQL)
	}
	return execute(next, restoreSQL)
}

// emptySQL leaves a database as template0 is.
const emptySQL = `SET client_min_messages = warning;
DO $$
DECLARE s name;
BEGIN
	FOR s IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
		EXECUTE format('DROP SCHEMA %I CASCADE', s);
	END LOOP;
	CREATE SCHEMA public;
END $$`

// saveSQL copies the rows that there are, and restores has them be the only ones again. A table that has been emptied is as
// new; the others have not been touched.
const (
	saveSQL = `CREATE SCHEMA kept;
DO $$
DECLARE t name;
BEGIN
	FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 LOOP
		EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', t, t);
	END LOOP;
END $$`
	restoreSQL = `SET client_min_messages = warning;
DO $$
DECLARE t name;
BEGIN
	FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 LOOP
		EXECUTE format('TRUNCATE public.%I CASCADE', t);
	END LOOP;
	FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'kept'::regnamespace AND relkind = 'r' LOOP
		EXECUTE format('INSERT INTO public.%I OVERRIDING SYSTEM VALUE TABLE kept.%I', t, t);
	END LOOP;
END $$`
)

// nameOf gives the name of the database that a URL of this package's leads to.
func nameOf(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic("pgtest: not a database's URL")
	}
	return strings.TrimPrefix(u.Path, "/")
}
