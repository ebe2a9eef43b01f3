// Package newfile gives a file that was written beside its place its name there, so that under that name it is whole whenever the
// machine stops.
package newfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fileowner"
)

// Replace makes text what the file name has. It is there whole or as it was before, and has the mode 0600.
func Replace(name string, text []byte) error {
	tmp, err := WriteTemp(name, text, nil)
	if err != nil {
		return err
	}
	return Rename(tmp, name)
}

// Cause returns the cause of an error about a file, without the file's name: it may be that of the temporary one.
func Cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Fault returns the error of a write to files, as people call them: DiskFull if there was no space, nil for nil.
func Fault(err error, files string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fault.DiskFull.Because(err, "there is no space left for %s: %v", files, err)
	}
	return fmt.Errorf("write %s: %w", files, err)
}

// WriteTemp writes text durably to a new file of the mode 0600 beside name, of the owner of was if that is not nil, and returns the new
// file's name: that of the other between "." and "-", and what makes it unique. An error leaves no file.
func WriteTemp(name string, text []byte, was fs.FileInfo) (tmp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return "", err
	}
	if was != nil {
		fileowner.CopyFrom(f, was)
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// Rename renames tmp to name, in the same folder, durably. If that fails it removes tmp.
func Rename(tmp, name string) error {
	if err := os.Rename(tmp, name); err != nil {
		_ = os.Remove(tmp)
		return err
	}
	return SyncDir(filepath.Dir(name))
}

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
