//go:build linux || darwin || freebsd

package sqlite

import "golang.org/x/sys/unix"

// freeSpaceAt returns how many bytes this user may still write on the file's disk.
func freeSpaceAt(file string) (bytes uint64, err error) {
	var fs unix.Statfs_t
	err = unix.Statfs(file, &fs)
	return uint64(max(fs.Bavail, 0)) * uint64(fs.Bsize), err
}
