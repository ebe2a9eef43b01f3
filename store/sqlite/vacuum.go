// Space that the file has and nothing uses goes back to the disk.

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Vacuum has SQLite write the database of the data folder anew, without what is free in its
// file, and gives the file's size before and after. The folder is locked meanwhile: it
// fails with fault.InUse while a server runs. Stopped at any time, it has changed nothing.
func Vacuum(ctx context.Context, dir string) (before, after int64, err error) {
	file := filepath.Join(dir, fileName)
	if before, err = databaseSize(file); err != nil {
		return 0, 0, fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, unlockFile(lock)) }()
	c, err := openConn(ctx, dsn(file, false))
	if err != nil {
		return 0, 0, err
	}
	// What a database needs meanwhile is as large as itself: that belongs on the disk.
	if err = c.exec(ctx, "PRAGMA temp_store = FILE"); err == nil {
		err = c.exec(ctx, "VACUUM")
	}
	if err == nil {
		_, err = checkpoint(ctx, c, "TRUNCATE")
	}
	if err = errors.Join(translate(ctx, err), c.close()); err != nil {
		return 0, 0, fmt.Errorf("vacuum: %w", err)
	}
	after, err = databaseSize(file)
	return before, after, err
}

// databaseSize is that of a database's file and its write-ahead log, which a server that was killed leaves.
func databaseSize(file string) (bytes int64, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return 0, err
	}
	bytes = info.Size()
	info, err = os.Stat(file + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return bytes, nil
	}
	if err != nil {
		return 0, err
	}
	return bytes + info.Size(), nil
}
