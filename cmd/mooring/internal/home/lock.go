// Locks of the home folder: of imports, while one finds or creates its session, and of relays, of which one runs at a time.

package home

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/internal/filelock"
)

// Lock waits for a folder's lock. The kernel releases it when the process ends. On a file system without locks it
// does nothing: of two first imports of one file at the same moment one may be refused (already_exists), and has
// to be repeated.
func Lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		f, err := filelock.Open(name)
		switch {
		case f != nil:
			return func() { _ = filelock.Close(f) }, nil
		case !errors.Is(err, filelock.ErrLocked):
			return nil, fmt.Errorf("lock the home folder: %w", err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
