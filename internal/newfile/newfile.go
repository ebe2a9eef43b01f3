// Package newfile gives a file that was written beside its place its name there.
package newfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// RenameNoReplace renames tmp to name, in the same folder, unless a file has that name: then the error
// is fs.ErrExist, and tmp stays. SyncDir makes the name durable.
func RenameNoReplace(tmp, name string) error {
	err := os.Link(tmp, name)
	if err == nil {
		return os.Remove(tmp)
	}
	if _, there := os.Lstat(name); !errors.Is(there, fs.ErrNotExist) {
		return err
	}
	return os.Rename(tmp, name) // a file system without links
}

// SyncDir makes durable which names a folder has.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the folder: %w", err)
	}
	defer d.Close()
	// Some file systems cannot sync a folder; then its names are as durable as they get.
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return fmt.Errorf("sync the folder: %w", err)
	}
	return nil
}
