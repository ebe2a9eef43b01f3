//go:build unix

package acprun

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/mooring-rpc/mooring/fault"
)

// lockedFile opens a file of which one process at a time has the lock, until that closes it or ends.
func lockedFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(fault.InUse.With("another mooring run has this session: end that first"), f.Close())
	}
	return f, nil // also on a file system without locks
}
