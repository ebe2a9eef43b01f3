//go:build unix

package privatedir

import (
	"os"

	"golang.org/x/sys/unix"
)

// checkWritable returns the error with which a file could not be opened for writing, without opening it.
func checkWritable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return &os.PathError{Op: "open", Path: file, Err: unix.EISDIR}
	}
	if err := unix.Access(file, unix.R_OK|unix.W_OK); err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	return nil
}
