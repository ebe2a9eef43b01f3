package privatedir

import (
	"errors"
	"io/fs"
	"os"
)

// EnsureDatabase makes the file of an SQLite database (mode 0600) if it is not there, so
// that nobody else can read it from its first moment. One that is there, and what
// SQLite keeps beside it, others can read no more afterwards: SQLite itself gives
// -wal and -shm the database's mode only when it makes them.
func EnsureDatabase(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	err = f.Close()
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, e := os.Stat(name)
		if e == nil && info.Mode().Perm()&0o077 != 0 {
			e = os.Chmod(name, info.Mode().Perm()&^0o077)
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
