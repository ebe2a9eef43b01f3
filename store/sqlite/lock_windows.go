// The data folder's lock, held by the kernel for as long as the process lives.

package sqlite

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/windows"

	"github.com/mooring-rpc/mooring/fault"
)

// lockFile makes and locks a file; closing it lets go.
func lockFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, errors.Join(inUse(), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data folder: %w", err), f.Close())
	}
	return f, nil
}

func inUse() error {
	return fault.InUse.With("another server has the data folder open: stop it, or give this one a folder of its own with --data")
}
