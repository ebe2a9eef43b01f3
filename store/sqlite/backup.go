// Copies of a database: made while its server runs, and looked over.

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/migrations"
	"github.com/mooring-rpc/mooring/store"
)

// BackupInfo is what is known of a copy.
type BackupInfo struct {
	Bytes   int64
	Version int64 // of its schema
}

// BackupOptions say how a copy is made.
type BackupOptions struct {
	// Fast has it made without pauses: it is there sooner, and commits take longer meanwhile.
	Fast bool
	// Progress is told of the bytes that are copied and of all there are, after each piece; it may be nil.
	Progress func(done, total int64)
}

// Backup copies the database of the data folder dir to file, which must not be there:
// one state of it, as it is now, in one read transaction that no commit waits for. The
// folder is not locked, so its server may run. The copy gets its name, mode 0600, once it
// is whole, synced and was found sound; if that does not come to be, there is no file.
func Backup(ctx context.Context, dir, file string, how BackupOptions) (c BackupInfo, err error) {
	if _, err := os.Lstat(file); err == nil {
		return c, fault.AlreadyExists.With("%s is there already: name another file, or move that one away first", file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return c, cannotWrite(err)
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err != nil {
		return c, fault.Usage.Because(err, "there is no database to copy: %v", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // of mode 0600
	if err != nil {
		return c, cannotWrite(err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := copyTo(ctx, f, filepath.Join(dir, fileName), how); err != nil {
		return c, fmt.Errorf("copy the database: %w", translate(ctx, err))
	}
	if c, err = inspect(ctx, f.Name()); err != nil {
		return c, fmt.Errorf("the copy is not whole, and was removed: %w", err)
	}
	if err = newfile.RenameNoReplace(f.Name(), file); err == nil {
		err = newfile.SyncDir(filepath.Dir(file))
	}
	if err != nil {
		return c, cannotWrite(err)
	}
	return c, nil
}

func cannotWrite(err error) error {
	return fault.Usage.Because(err, "the copy cannot be written: %v", err)
}

// What a copy writes, the disk does beside the commits, whose own syncs wait for that. So it is
// written and synced in pieces so small that they wait for little, with pauses between.
const (
	chunkSize = 64 << 10 // bytes
	// pauseFactor is how many times as long as a piece took is waited before the next: a disk that
	// is fast, or another than the database's, is left alone for less time, and one that is busy for more.
	pauseFactor = 4
	maxPause    = time.Second
)

// pause is how long is waited after a piece that took so long.
func (how BackupOptions) pause(took time.Duration) time.Duration {
	if how.Fast {
		return 0
	}
	return min(pauseFactor*took, maxPause)
}

// copyTo writes to f what the database in file is now.
func copyTo(ctx context.Context, f *os.File, file string, how BackupOptions) (err error) {
	from, err := openReadOnly(ctx, file, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	var pageSize int64
	err = from.exec(ctx, "BEGIN")
	if err == nil { // which begins with the first page that is read
		err = from.query(ctx, "SELECT page_size FROM pragma_page_size, (SELECT count(*) FROM meta)", nil,
			func(row store.Scanner) error { return row.Scan(&pageSize) })
	}
	if err != nil {
		return err
	}
	to := url.Values{"_pragma": {"journal_mode(OFF)", "synchronous(OFF)", "cache_size(-256)"}} // the file is of use as a whole or not at all
	b, err := from.driver.(interface {
		NewBackup(to string) (*sqlite.Backup, error)
	}).NewBackup(dsnURL(f.Name(), to))
	if err != nil {
		return err
	}
	err = copySteps(ctx, f, b, pageSize, how)
	if end := b.Finish(); err == nil {
		err = end
	}
	if err != nil {
		return err
	}
	// It is no database with a write-ahead log beside it (https://sqlite.org/fileformat2.html, 1.3.3).
	if _, err := f.WriteAt([]byte{1, 1}, 18); err != nil {
		return err
	}
	return f.Sync()
}

// copySteps copies piece by piece. While it takes, the read transaction stands.
func copySteps(ctx context.Context, f *os.File, b *sqlite.Backup, pageSize int64, how BackupOptions) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		more, err := b.Step(int32(chunkSize / pageSize))
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			return err
		}
		if how.Progress != nil {
			how.Progress(int64(b.PageCount()-b.Remaining())*pageSize, int64(b.PageCount())*pageSize)
		}
		if !more {
			return nil
		}
		pause.Reset(how.pause(time.Since(began)))
	}
}

// openReadOnly connects to a database to read it, and to leave everything as it is. A file
// that is still says that nobody writes to it, so nothing is kept beside it.
func openReadOnly(ctx context.Context, file string, still bool) (*conn, error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {busyTimeout, "temp_store(MEMORY)", "cache_size(-16384)"}}
	if still {
		q.Set("immutable", "1")
	}
	return openConn(ctx, dsnURL(file, q))
}

// inspect looks at a file that nobody writes to: is it a sound database, and of which
// version? Chains are not gone over.
func inspect(ctx context.Context, file string) (c BackupInfo, err error) {
	conn, err := openReadOnly(ctx, file, true)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	return checkIntegrity(ctx, conn, file)
}

func checkIntegrity(ctx context.Context, conn *conn, file string) (c BackupInfo, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return c, err
	}
	c.Bytes = info.Size()
	var said string
	err = conn.query(ctx, "PRAGMA integrity_check(1)", nil, func(row store.Scanner) error { return row.Scan(&said) })
	if err != nil {
		return c, notADatabase(ctx, err)
	}
	if said != "ok" {
		return c, fault.Internal.With("it is damaged: %s", said)
	}
	err = conn.query(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+migrations.SQLite.Table+" WHERE is_applied", nil,
		func(row store.Scanner) error { return row.Scan(&c.Version) })
	if err != nil {
		return c, notADatabase(ctx, err)
	}
	return c, migrations.SQLite.CheckVersion(c.Version)
}

// notADatabase says of what SQLite cannot read that it is no database of a server's.
func notADatabase(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return translate(ctx, err)
	}
	return fault.Internal.Because(err, "it is no database of a server, or damaged (%v)", err)
}

// Check looks a copy over, of which nothing is changed: is it a sound database of a
// version that this binary can start on, and are its logs and audits the ones that were
// written? The error is for what keeps it from being used at all; flaws are in Checked.
func Check(ctx context.Context, file string) (c BackupInfo, found *store.IntegrityReport, err error) {
	// What a copy by hand has beside it belongs to it; without that nothing is made there.
	_, beside := os.Stat(file + "-wal")
	conn, err := openReadOnly(ctx, file, errors.Is(beside, fs.ErrNotExist))
	if err != nil {
		return c, nil, notADatabase(ctx, err)
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	if c, err = checkIntegrity(ctx, conn, file); err != nil {
		return c, nil, err
	}
	_, err = transaction(ctx, conn, "BEGIN DEFERRED", false, func(r store.Runner) error {
		found, err = store.CheckIntegrity(ctx, r)
		return err
	})
	return c, found, err
}

// String is a copy in words.
func (c BackupInfo) String() string {
	return strconv.FormatInt(c.Bytes, 10) + " bytes, schema version " + strconv.FormatInt(c.Version, 10)
}
