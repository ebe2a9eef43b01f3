// Copies of a database: made while its server runs, and checked.

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
	"syscall"
	"time"

	"modernc.org/sqlite"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/upkeep"
	"github.com/mooring-rpc/mooring/migrations"
)

// BackupInfo describes a copy.
type BackupInfo struct {
	Bytes   int64
	Version int64 // of its schema
}

// BackupOptions control how a copy is made.
type BackupOptions struct {
	// Fast makes the copy without pauses: it takes less time, and commits take longer meanwhile.
	Fast bool
	// Progress is called after each chunk with the bytes copied and the total; it may be nil.
	Progress func(done, total int64)
}

// Backup copies the database of the data folder dir to file, which must not exist: one state of it,
// as of now, in one read transaction that no commit waits for. The folder is not locked, so its
// server may run. The copy gets its name, mode 0600, once it is complete, synced and has passed a
// check; otherwise there is no file.
func Backup(ctx context.Context, dir, file string, how BackupOptions) (c BackupInfo, err error) {
	if _, err := os.Lstat(file); err == nil {
		return c, fault.AlreadyExists.With("%s is there already: name another file, or move that one away first", file)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return c, cannotWrite(file, err)
	}
	from, err := privatedir.FindDatabase(filepath.Join(dir, fileName))
	if err != nil {
		return c, fault.Usage.Because(err, "there is no database to copy: %v", err)
	}
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 0600
	if err != nil {
		return c, cannotWrite(file, err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if e := os.Remove(f.Name()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}()
	if err := copyTo(ctx, f, from, how); err != nil {
		err = translate(ctx, err)
		if fault.CodeOf(err) == fault.DiskFull || errors.Is(err, syscall.ENOSPC) { // the database is read alone
			err = fault.DiskFull.Because(err, "no space left for %s, or a quota is used up: free some, or name a file on another disk", file)
		}
		return c, fmt.Errorf("copy the database: %w", err)
	}
	if c, err = inspect(ctx, f.Name()); err != nil {
		return c, fmt.Errorf("the copy is incomplete, and was removed: %w", err)
	}
	if err = newfile.RenameNoReplace(f.Name(), file); err == nil {
		err = newfile.SyncDir(filepath.Dir(file))
	}
	if err != nil {
		return c, cannotWrite(file, err)
	}
	return c, nil
}

// cannotWrite returns the error of a copy's file, with the name that was given, not that of the temporary one.
func cannotWrite(file string, err error) error {
	return fault.Usage.Because(err, "the copy cannot be written to %s: %v", file, newfile.Cause(err))
}

// The disk writes the copy between the commits, whose syncs wait for it. So the copy is written and
// synced in small chunks, with pauses between them.
const (
	chunkSize = 64 << 10 // bytes
	// pauseFactor is the length of a pause relative to the chunk before it: a fast disk, or one
	// that is not the database's, is paused for less time, and a busy one for longer.
	pauseFactor = 4
	maxPause    = time.Second
)

// pause returns the pause after a chunk that took took.
func (how BackupOptions) pause(took time.Duration) time.Duration {
	if how.Fast {
		return 0
	}
	return min(pauseFactor*took, maxPause)
}

// copyTo writes the current database in file to f.
func copyTo(ctx context.Context, f *os.File, file string, how BackupOptions) (err error) {
	from, err := openReadOnly(ctx, file, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	var pageSize int64
	err = from.exec(ctx, "BEGIN")
	if err == nil { // which begins when the first page is read
		err = from.query(ctx, "SELECT page_size FROM pragma_page_size, (SELECT count(*) FROM meta)", nil,
			func(row dialect.Scanner) error { return row.Scan(&pageSize) })
	}
	if err != nil {
		return err
	}
	to := url.Values{"_pragma": {"journal_mode(OFF)", "synchronous(OFF)", "cache_size(-256)"}} // the file is useful only if complete
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
	// Mark the copy as a database without a write-ahead log (https://sqlite.org/fileformat2.html,
	// 1.3.3).
	if _, err := f.WriteAt([]byte{1, 1}, 18); err != nil {
		return err
	}
	return f.Sync()
}

// copySteps copies chunk by chunk, within one read transaction.
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

// openReadOnly connects to a database for reading, without changing anything. still means that no
// process writes to the file, so SQLite need not create files beside it.
func openReadOnly(ctx context.Context, file string, still bool) (*conn, error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {busyTimeout, "temp_store(MEMORY)", "cache_size(-16384)"}}
	if still {
		q.Set("immutable", "1")
	}
	return openConn(ctx, dsnURL(file, q))
}

// inspect checks a file that no process writes to: whether it is a sound database, and its version.
// It does not verify hash chains.
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
	err = conn.query(ctx, "PRAGMA integrity_check(1)", nil, func(row dialect.Scanner) error { return row.Scan(&said) })
	if err != nil {
		return c, notADatabase(ctx, err)
	}
	if said != "ok" {
		return c, fault.Malformed.With("it is damaged: %s", said)
	}
	err = conn.query(ctx, "SELECT COALESCE(MAX(version_id), 0) FROM "+migrations.SQLite.Table+" WHERE is_applied", nil,
		func(row dialect.Scanner) error { return row.Scan(&c.Version) })
	if err != nil {
		return c, notADatabase(ctx, err)
	}
	return c, migrations.SQLite.CheckVersion(c.Version)
}

// notADatabase replaces SQLite's error for an unreadable file: it is no database of a server.
func notADatabase(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return translate(ctx, err)
	}
	cause := err
	if e, ok := errors.AsType[codeError](err); ok { // without advice, which is for a server's own database
		cause = e
	}
	return fault.Malformed.Because(err, "it is no database of a server, or damaged: %v", cause)
}

// Check checks a copy without changing it: whether it is a sound database of a version that this
// binary can start on, and whether its logs and audits are intact. The error is for a copy that
// cannot be used at all; flaws are in found.
func Check(ctx context.Context, file string) (c BackupInfo, found *upkeep.IntegrityReport, err error) {
	// A copy made by hand may have a write-ahead log beside it; without one, create no files there.
	_, beside := os.Stat(file + "-wal")
	conn, err := openReadOnly(ctx, file, errors.Is(beside, fs.ErrNotExist))
	if err != nil {
		return c, nil, notADatabase(ctx, err)
	}
	defer func() { err = errors.Join(err, conn.close()) }()
	if c, err = checkIntegrity(ctx, conn, file); err != nil {
		return c, nil, err
	}
	_, err = transaction(ctx, conn, "BEGIN DEFERRED", false, func(r dialect.Runner) error {
		found, err = upkeep.CheckIntegrity(ctx, r)
		return err
	})
	return c, found, err
}

// String formats the copy's description.
func (c BackupInfo) String() string {
	return strconv.FormatInt(c.Bytes, 10) + " bytes, schema version " + strconv.FormatInt(c.Version, 10)
}
