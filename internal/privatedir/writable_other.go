//go:build !unix

package privatedir

import "os"

// checkWritable returns the error with which a file cannot be opened for writing. To close it ends no lock of another descriptor here.
func checkWritable(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}
