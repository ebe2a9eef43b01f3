// The lock that keeps other servers from a database.

package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
)

// databaseLock is the locks that a server holds.
type databaseLock []*os.File

// lockDatabase locks the data folder dir and its database's file, which a link in the folder may lead to: what is locked
// is beside the file itself, so that two folders with links to it share the lock. It fails with fault.InUse if another
// process has one of them.
func lockDatabase(dir, file string) (databaseLock, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	names := []string{filepath.Join(dir, lockName)} // the only one of earlier versions
	if file != filepath.Join(dir, fileName) {
		beside := file + ".lock"
		if filepath.Base(file) == fileName { // it may be a data folder as well
			beside = filepath.Join(filepath.Dir(file), lockName)
		}
		names = append(names, beside)
	}
	var locks databaseLock
	for _, name := range names {
		f, err := lockFile(name)
		if err != nil {
			return nil, errors.Join(err, locks.Close())
		}
		locks = append(locks, f)
	}
	return locks, nil
}

// Close gives the locks back.
func (l databaseLock) Close() error {
	var errs []error
	for _, f := range l {
		errs = append(errs, filelock.Close(f))
	}
	return errors.Join(errs...)
}

// lockFile locks a file until filelock.Close.
func lockFile(name string) (*os.File, error) {
	f, err := filelock.Open(name)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fault.InUse.With("another server has the database open: stop it, or give this one a data folder of its own with --data")
	case err != nil && f != nil:
		err = errors.Join(err, f.Close())
		fallthrough
	case err != nil:
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return f, nil
}
