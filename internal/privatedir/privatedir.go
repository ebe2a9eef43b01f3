// Package privatedir makes and checks folders that hold secrets, such as a home
// folder: one that others own or may write to is not used, since they could read what
// is put there, or have planted a link that leads it elsewhere.
package privatedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/mooring-rpc/mooring/fault"
)

// maxEntries bounds the check of a folder's files. A home folder has some ten; of a
// larger folder, which serves something else as well, the first ones are looked at.
const maxEntries = 1000

// Make makes the folder (mode 0700) if it is not there. It fails with
// [fault.Usage] if the folder or a file in it belongs to another user, or if every
// user may write to it. What belongs to root is trusted. On systems whose files
// have no Unix owners only the making is done. Messages call the folder by what.
func Make(dir, what string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", what, err)
	}
	return check(dir, what, os.Geteuid())
}

// check is Make's check for the user with this id.
func check(dir, what string, user int) error {
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open %s: %w", what, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at %s: %w", what, err)
	}
	if owner, known := ownerOf(info); known && owner != user {
		return fault.Usage.With("%s belongs to another user (id %d, yours is %d): name a folder of your own", what, owner, user)
	}
	if writableByAll(info.Mode()) {
		return fault.Usage.With("every user may write to %s: run chmod go-w on it, or name another", what)
	}
	entries, err := f.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", what, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("look at %s: %w", what, err)
		}
		if owner, known := ownerOf(info); known && owner != user && owner != 0 {
			return fault.Usage.With("%q in %s belongs to another user (id %d, yours is %d), who may have planted it: look at it, and remove it", e.Name(), what, owner, user)
		}
	}
	return nil
}
