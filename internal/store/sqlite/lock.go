// The data folder's lock.

package sqlite

import (
	"errors"
	"fmt"
	"os"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
)

// lockFile locks a file until filelock.Close.
func lockFile(name string) (*os.File, error) {
	f, err := filelock.Open(name)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fault.InUse.With("another server has the data folder open: stop it, or give this one a folder of its own with --data")
	case err != nil && f != nil:
		err = errors.Join(err, f.Close())
		fallthrough
	case err != nil:
		return nil, fmt.Errorf("lock data folder: %w", err)
	}
	return f, nil
}
