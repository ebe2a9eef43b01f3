//go:build unix

package privatedir

import (
	"io/fs"
	"syscall"
)

// ownerOf is the id of a file's owner; of a link, its own.
func ownerOf(info fs.FileInfo) (id int, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return int(stat.Uid), true
}

// namesOf returns how many names (hard links) a file has.
func namesOf(info fs.FileInfo) uint64 {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 1
	}
	return uint64(stat.Nlink)
}

func writableByAll(m fs.FileMode) bool { return m.Perm()&0o002 != 0 }
