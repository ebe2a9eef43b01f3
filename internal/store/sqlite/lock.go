// The data folder's lock, which the kernel holds until the process ends.

package sqlite

import (
	"errors"
	"fmt"
	"os"

	"github.com/mooring-rpc/mooring/fault"
)

// lockFile creates and locks a file, until unlockFile. The file stays, since removing it would race
// with processes that wait for it.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	switch err := tryLock(f); {
	case errors.Is(err, errLocked):
		inUse := fault.InUse.With("another server has the data folder open: stop it, or give this one a folder of its own with --data")
		return nil, errors.Join(inUse, f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock data folder: %w", err), f.Close())
	}
	return f, nil
}

// unlockFile unlocks and closes a file of lockFile. A child process that is being started shares
// all open files until it executes its program, so closing the file is not enough.
func unlockFile(f *os.File) error { return errors.Join(unlock(f), f.Close()) }
