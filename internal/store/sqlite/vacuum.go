// Vacuum: returning the free space within the file to the disk.

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/internal/privatedir"
)

// Vacuum rewrites the database of the data folder without the free space in its file, and returns
// the file's size before and after, in bytes. The folder is locked meanwhile: it fails with
// fault.InUse while a server runs. If it is stopped at any time, nothing has changed.
func Vacuum(ctx context.Context, dir string) (before, after int64, err error) {
	file, err := privatedir.FindDatabase(filepath.Join(dir, fileName))
	if err == nil {
		before, err = databaseSize(file)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockDatabase(dir, file)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	c, err := openConn(ctx, dsn(file, false))
	if err != nil {
		return 0, 0, err
	}
	// The temporary copy is as large as the database: it belongs on the disk.
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

// databaseSize returns the size of a database's file and of the write-ahead log that a killed
// server leaves.
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
