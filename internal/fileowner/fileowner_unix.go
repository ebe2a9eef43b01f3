//go:build unix

// Package fileowner gives files their owners: what one user writes in the place of another's
// file, that one goes on reading.
package fileowner

import (
	"io/fs"
	"os"
	"syscall"
)

// CopyFrom gives f the owner and the group of the file that it is to replace, or of its
// folder, as far as this user may, so that a server can still read its owner.ref after another
// user has rotated it.
func CopyFrom(f *os.File, was fs.FileInfo) {
	if owner, ok := was.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid))
	}
}
