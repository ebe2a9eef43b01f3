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

func writableByAll(m fs.FileMode) bool { return m.Perm()&0o002 != 0 }
