package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// TestOpenTightens: a database that others could read is the server's alone once it is open.
func TestOpenTightens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fileName)
	if err := errors.Join(s.Close(), os.Chmod(file, 0o666)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func openIn(t *testing.T, dir string) *store.Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// TestFolder: any name of a folder will do, it is made for its owner alone,
// and a second server is refused without being told where it is.
func TestFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a?b#c%d e&f", "data")
	openIn(t, dir)
	for name, want := range map[string]os.FileMode{"": 0o700, fileName: 0o600, fileName + "-wal": 0o600, lockName: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%q: %v", name, err)
		} else if info.Mode().Perm() != want {
			t.Errorf("%q has mode %v, want %v", name, info.Mode().Perm(), want)
		}
	}
	_, err := Open(t.Context(), Config{Dir: dir})
	if fault.CodeOf(err) != fault.InUse || strings.Contains(err.Error(), dir) {
		t.Errorf("a second server: %v", err)
	}
}

// TestLinkedDatabase: servers whose data folders have links to one database are one too many, whichever is first; a database of two
// names is refused.
func TestLinkedDatabase(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	folder := func(name, to string) string {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if to != "" {
			if err := os.Symlink(to, filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	own := folder("own", "")
	elsewhere := filepath.Join(folder("disk", ""), "other.db")
	for _, dirs := range [][]string{
		{own, folder("first", "../own/"+fileName), folder("second", filepath.Join(own, fileName))},
		{folder("third", elsewhere), folder("fourth", "../disk/other.db")},
	} {
		for _, first := range dirs {
			s, err := Open(t.Context(), Config{Dir: first})
			if err != nil {
				t.Fatal(err)
			}
			for _, dir := range dirs {
				if _, err := Open(t.Context(), Config{Dir: dir}); fault.CodeOf(err) != fault.InUse {
					t.Errorf("%s while %s is served: %v", dir, first, err)
				}
				if _, _, err := Vacuum(t.Context(), dir); fault.CodeOf(err) != fault.InUse {
					t.Errorf("a vacuum of %s while %s is served: %v", dir, first, err)
				}
				if _, err := Backup(t.Context(), dir, filepath.Join(t.TempDir(), "copy"), BackupOptions{Fast: true}); err != nil {
					t.Errorf("a copy of %s while %s is served: %v", dir, first, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}

	// A server of an earlier version locks the folder alone.
	linked := filepath.Join(root, "first")
	older, err := lockFile(filepath.Join(linked, lockName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dir: linked}); fault.CodeOf(err) != fault.InUse {
		t.Errorf("beside a server of an earlier version: %v", err)
	}
	if err := filelock.Close(older); err != nil {
		t.Error(err)
	}

	hard := folder("hard", "")
	if err := os.Link(filepath.Join(own, fileName), filepath.Join(hard, fileName)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{own, linked, hard} {
		_, err := Open(t.Context(), Config{Dir: dir})
		_, _, vacuumed := Vacuum(t.Context(), dir)
		_, copied := Backup(t.Context(), dir, filepath.Join(t.TempDir(), "copy"), BackupOptions{})
		for _, err := range []error{err, vacuumed, copied} {
			if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "2 names") {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

// TestWithoutALog: a database for which SQLite keeps no write-ahead log is refused.
func TestWithoutALog(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, refused := range map[string]bool{filepath.Join(t.TempDir(), fileName): false, ":memory:": true} {
		c := &conn{now: time.Now}
		if err := c.open(db.Driver(), dsn(name, false)); err != nil {
			t.Fatal(err)
		}
		if err := checkWAL(t.Context(), c); (fault.CodeOf(err) == fault.UnsafeStore) != refused || (err != nil) != refused {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFolderUnusable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), Config{Dir: filepath.Join(file, "data")}); err == nil {
		t.Errorf("a folder inside a file was opened: %v", s.Close())
	}
	// A file that is no database is refused, and the folder's lock let go.
	dir := t.TempDir()
	garbage := filepath.Join(dir, fileName)
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), Config{Dir: dir}); err == nil {
		t.Errorf("garbage was opened: %v", s.Close())
	}
	if err := os.Remove(garbage); err != nil {
		t.Fatal(err)
	}
	openIn(t, dir)
}

// TestClock: now is the injected clock's.
func TestClock(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), Now: func() time.Time { return time.UnixMilli(1234567) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	sight, err := s.ReadAccess(t.Context(), "", nil)
	if err != nil || sight.Now != 1234567 {
		t.Errorf("now is %d, %v", sight.Now, err)
	}
}

// TestDiskFull: a full disk is a clear refusal, what was acknowledged stays,
// reading goes on, and so does writing once there is space.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, err := open(ctx, Config{Dir: t.TempDir(), Now: time.Now, Readers: 2})
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(b)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const id = "ses_1"
	cursor := uint64(0)
	write := func() error {
		return s.Update(ctx, func(tx session.Tx) error {
			if _, err := tx.Load(ctx, &session.ReadSet{Sessions: []string{id}}); err != nil {
				return err
			}
			return tx.Save(ctx, &session.Changes{Sessions: []*session.Row{{ID: id, Cursor: cursor + 1}},
				Events: []*session.Event{{Session: id, Cursor: cursor + 1, Payload: make([]byte, 20_000)}}})
		})
	}
	pages := func(pragma string) {
		c := <-b.writeConn
		defer func() { b.writeConn <- c }()
		if err := c.exec(ctx, pragma); err != nil {
			t.Fatal(err)
		}
	}
	pages("PRAGMA max_page_count = 120")
	for err = write(); err == nil; err = write() {
		cursor++
	}
	if fault.CodeOf(err) != fault.DiskFull || cursor == 0 {
		t.Fatalf("after %d writes: %v", cursor, err)
	}
	for range 3 {
		if err := write(); fault.CodeOf(err) != fault.DiskFull {
			t.Errorf("a write to a full disk: %v", err)
		}
	}
	page, err := s.ReadLog(ctx, id, 0, 1<<30, 1000, nil)
	if err != nil || uint64(session.EventsOf(page).Len()) != cursor || page.Access().Row.Cursor != cursor {
		t.Errorf("the log of a full disk: %d events of %d, %v", session.EventsOf(page).Len(), cursor, err)
	}
	pages("PRAGMA max_page_count = 150")
	if err := s.Probe(ctx, 0); err != nil {
		t.Errorf("a small probe on a nearly full disk: %v", err)
	}
	if err := s.Probe(ctx, 1<<20); fault.CodeOf(err) != fault.DiskFull {
		t.Errorf("a large probe on a nearly full disk: %v", err)
	}
	pages("PRAGMA max_page_count = 1000000")
	if err := write(); err != nil {
		t.Errorf("a write when there is space again: %v", err)
	}
	size := func() (n int64) {
		t.Helper()
		err := b.Snapshot(ctx, func(r dialect.Runner) error {
			r.Queue(&dialect.Statement{SQLite: dialect.Forms{One: "SELECT page_count FROM pragma_page_count"}}, nil, nil,
				func(row dialect.Scanner) error { return row.Scan(&n) })
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if err := s.Probe(ctx, 1<<20); err != nil {
		t.Errorf("a large probe when there is space again: %v", err)
	}
	before := size()
	if err := s.Probe(ctx, 1<<20); err != nil {
		t.Errorf("another: %v", err)
	}
	if now := size(); now != before {
		t.Errorf("the database has %d pages after one probe, and %d after two", before, now)
	}
}

// TestInterrupt: a long read ends when its caller gives up, and its connection
// goes on.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	const id = "ses_1"
	err = s.Update(t.Context(), func(tx session.Tx) error {
		if _, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{id}}); err != nil {
			return err
		}
		c := &session.Changes{Grants: []*capability.Grant{{ID: id + ".x", Target: id}}}
		for i := range 200 {
			c.Entries = append(c.Entries, &session.Entry{Session: id, Key: "message/" + string(rune('a'+i)), Payload: []byte(`{}`)})
		}
		return tx.Save(t.Context(), c)
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		err = s.ReadState(ctx, id, nil, 0, nil, func(*session.Unscoped[*session.StateChunk]) error {
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || fault.CodeOf(err) != fault.Canceled {
			t.Errorf("a read whose caller gave up: %v", err)
		}
		if _, err := s.ReadAccess(t.Context(), id, nil); err != nil {
			t.Errorf("the next read on that connection: %v", err)
		}
	}
}
