// Package filelock locks files against other processes. The kernel gives a lock back when its process ends, however.
package filelock

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked is Open's error when another process has the lock.
var ErrLocked = errors.New("another process has the lock")

// Open opens or creates a file (mode 0600) and locks it, until Close. The file stays, since removing it would race with
// those that wait for it. Where the file system has no locks it returns the open file with an error, neither nil nor ErrLocked; any other
// error comes without a file.
func Open(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := try(f); {
	case errors.Is(err, errHeld):
		return nil, errors.Join(ErrLocked, f.Close())
	case err != nil:
		return f, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// Close unlocks and closes a file of Open. A child process that is being started shares all open files until it executes
// its program, so closing the file alone is not enough.
func Close(f *os.File) error { return errors.Join(unlock(f), f.Close()) }
