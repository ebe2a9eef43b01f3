package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/until"
)

// openBackend opens a data folder without the store on top.
func openBackend(t *testing.T) (dir string, b *backend) {
	t.Helper()
	return openWith(t, Config{Readers: 2})
}

func openWith(t *testing.T, cfg Config) (dir string, b *backend) {
	t.Helper()
	dir = t.TempDir()
	cfg.Dir, cfg.Now = dir, time.Now
	b, err := open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir, b
}

// group has updates wait for the writing connection until all do, and gives their answers.
func group(t *testing.T, b *backend, updates ...func() error) []error {
	t.Helper()
	c := <-b.writeConn
	errs := make([]error, len(updates))
	var all sync.WaitGroup
	for i, update := range updates {
		all.Go(func() { errs[i] = update() })
		until.True(t, "it waits", func() bool {
			b.queue.mu.Lock()
			defer b.queue.mu.Unlock()
			return len(b.queue.updates) == i+1
		})
	}
	b.writeConn <- c
	all.Wait()
	return errs
}

// note is an update that writes a row, and does then what more does.
func note(ctx context.Context, b *backend, name string, more func(*runner) error) func() error {
	return func() error {
		return b.Update(ctx, func(r dialect.Runner) error {
			if err := r.(*runner).conn.exec(context.Background(), "INSERT INTO meta (name, value) VALUES (?1, '')", name); err != nil {
				return translate(ctx, err)
			}
			if more == nil {
				return nil
			}
			return more(r.(*runner))
		})
	}
}

// noted are the rows that such updates have written.
func noted(ctx context.Context, t *testing.T, b *backend) string {
	var names []string
	err := b.Snapshot(ctx, func(r dialect.Runner) error {
		return r.(*runner).conn.query(ctx, "SELECT name FROM meta WHERE name GLOB 'note*' ORDER BY name", nil, func(row dialect.Scanner) error {
			var name string
			err := row.Scan(&name)
			names = append(names, strings.TrimPrefix(name, "note "))
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
	return strings.Join(names, " ")
}

// TestUpdatesShareATransaction: those that wait are committed at once, in order, and what
// fails in between, whichever way, leaves no trace and is nothing to the others.
func TestUpdatesShareATransaction(t *testing.T) {
	t.Parallel()
	_, b := openBackend(t)
	ctx := t.Context()
	refused := errors.New("refused")
	leaving, leave := context.WithCancel(ctx)
	late, expire := context.WithCancel(ctx)
	panicked := func() (err error) {
		defer func() { err = fmt.Errorf("panicked: %v", recover()) }()
		return note(ctx, b, "note panics", func(*runner) error { panic("a defect") })()
	}
	errs := group(t, b,
		note(ctx, b, "note a", func(*runner) error { leave(); return nil }),
		note(ctx, b, "note refused", func(*runner) error { return refused }),
		note(ctx, b, "note twice", func(r *runner) error {
			return r.conn.exec(ctx, "INSERT INTO meta (name, value) VALUES ('note a', '')")
		}),
		panicked,
		note(leaving, b, "note left", nil),
		note(late, b, "note late", func(*runner) error { expire(); return nil }),
		note(ctx, b, "note b", func(*runner) error {
			if got := noted(ctx, t, b); got != "" {
				t.Errorf("committed before the last one of the group: %s", got)
			}
			return nil
		}))
	for i, want := range []error{nil, refused, nil, nil, fault.Canceled, fault.Canceled, nil} {
		switch {
		case i == 2:
			if errs[i] == nil || !strings.Contains(errs[i].Error(), "UNIQUE") {
				t.Errorf("a statement that fails: %v", errs[i])
			}
		case i == 3:
			if errs[i] == nil || errs[i].Error() != "panicked: a defect" {
				t.Errorf("a panic: %v", errs[i])
			}
		case !errors.Is(errs[i], want):
			t.Errorf("update %d: %v, want %v", i, errs[i], want)
		}
	}
	if got := noted(ctx, t, b); got != "a b" {
		t.Errorf("committed: %s", got)
	}
}

// TestTheDiskIsFullInAGroup: SQLite rolls back all of a transaction then. Who was in it
// before is told, too, and who comes after it has another.
func TestTheDiskIsFullInAGroup(t *testing.T) {
	t.Parallel()
	_, b := openBackend(t)
	ctx := t.Context()
	limit := func(r *runner, pages string) error { return r.conn.exec(ctx, "PRAGMA max_page_count("+pages+")") }
	errs := group(t, b,
		note(ctx, b, "note a", nil),
		note(ctx, b, "note full", func(r *runner) error {
			if err := limit(r, "1"); err != nil { // that is: no more than there are
				return err
			}
			return translate(ctx, r.conn.exec(ctx, "INSERT INTO meta (name, value) VALUES ('note large', ?1)", strings.Repeat("x", 1<<20)))
		}),
		note(ctx, b, "note b", func(r *runner) error { return limit(r, "1000000") }))
	if !errors.Is(errs[0], fault.DiskFull) || !errors.Is(errs[1], fault.DiskFull) || errs[2] != nil {
		t.Errorf("answers: %v", errs)
	}
	if got := noted(ctx, t, b); got != "b" {
		t.Errorf("committed: %s", got)
	}
}

// TestAnUpdateEndsTheTransaction: what it is answered then is for its caller alone, who asked for something else than the others.
func TestAnUpdateEndsTheTransaction(t *testing.T) {
	t.Parallel()
	_, b := openBackend(t)
	ctx := t.Context()
	errs := group(t, b,
		note(ctx, b, "note a", nil),
		note(ctx, b, "note ends", func(r *runner) error {
			if err := r.conn.exec(ctx, "ROLLBACK"); err != nil { // as SQLite does by itself
				return err
			}
			return fault.NotFound.With("no such ref")
		}),
		note(ctx, b, "note b", nil))
	if fault.CodeOf(errs[0]) != fault.Unavailable || fault.CodeOf(errs[1]) != fault.NotFound || errs[2] != nil {
		t.Errorf("answers: %v", errs)
	}
	if got := noted(ctx, t, b); got != "b" {
		t.Errorf("committed: %s", got)
	}
}

// TestOneCutForAll: updates of a group in which some erase are answered when the log is cut.
func TestOneCutForAll(t *testing.T) {
	t.Parallel()
	dir, b := openBackend(t)
	updates := make([]func() error, 10)
	for i := range updates {
		updates[i] = func() error {
			err := note(t.Context(), b, fmt.Sprintf("note %d", i), func(r *runner) error {
				if i%2 == 0 {
					r.Erase()
				}
				return nil
			})()
			if info, e := os.Stat(filepath.Join(dir, fileName+"-wal")); e != nil || info.Size() != 0 {
				t.Errorf("the log after an answer: %v, %v", info, e)
			}
			return err
		}
	}
	if err := errors.Join(group(t, b, updates...)...); err != nil {
		t.Error(err)
	}
}

// TestMoreThanAGroup: the others come next.
func TestMoreThanAGroup(t *testing.T) {
	t.Parallel()
	_, b := openBackend(t)
	var updates []func() error
	for i := range 2*maxGroup + 2 {
		updates = append(updates, note(t.Context(), b, fmt.Sprintf("note %d", i), nil))
	}
	if err := errors.Join(group(t, b, updates...)...); err != nil {
		t.Error(err)
	}
	if n := len(strings.Fields(noted(t.Context(), t, b))); n != len(updates) {
		t.Errorf("%d of %d are committed", n, len(updates))
	}
}

// TestGroupsEndWithTheStore: whoever still waits when the store is closed is told.
func TestGroupsEndWithTheStore(t *testing.T) {
	t.Parallel()
	_, b := openBackend(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if err := note(t.Context(), b, fmt.Sprintf("note %d", i), nil)(); err != nil && !errors.Is(err, dialect.ErrClosed) {
				t.Error(err)
			}
		})
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
}
