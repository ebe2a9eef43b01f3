package sqlite

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// freeSpaceAt returns how many bytes this user may still write on the file's disk.
func freeSpaceAt(file string) (bytes uint64, err error) {
	dir, err := windows.UTF16PtrFromString(filepath.Dir(file))
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(dir, &bytes, nil, nil)
	}
	return bytes, err
}
