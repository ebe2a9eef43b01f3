//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// keepOwner gives f the owner of the file that it is to replace, as far as this
// user may: a server goes on reading its owner.ref whoever has rotated it.
func keepOwner(f *os.File, was fs.FileInfo) {
	if owner, ok := was.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(owner.Uid), int(owner.Gid))
	}
}
