package privatedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
)

// creating is held while EnsureDatabase has a file open that it makes.
var creating sync.Mutex

// EnsureDatabase makes the file of an SQLite database (mode 0600) if it is not there, so
// that nobody else can read it from its first moment. One that is there, and what
// SQLite keeps beside it, others can read no more afterwards: SQLite itself gives
// -wal and -shm the database's mode only when it makes them.
//
// It may be called while this process has the database open: a file that is there is not opened. On Unix a process loses all
// its locks on a file when it closes any descriptor of that; another process that ends would then take the log for
// abandoned, and remove it with what is committed to it from then on.
//
// It returns the file's name behind symbolic links, as of FindDatabase.
func EnsureDatabase(file string) (string, error) {
	if err := makeFile(file); err != nil {
		return "", err
	}
	file, err := FindDatabase(file)
	if err != nil {
		return "", err
	}
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, e := os.Stat(name)
		if e == nil && info.Mode().Perm()&0o077 != 0 {
			e = os.Chmod(name, info.Mode().Perm()&^0o077)
		}
		if !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return file, err
}

// FindDatabase returns the absolute name, behind symbolic links, of the file of an SQLite database: what SQLite keeps
// beside the file, it keeps beside that. It fails with [fault.Usage] if the file has another name as well (a hard
// link): a program that opens the database by the other name keeps another log, and what one of them commits is lost.
func FindDatabase(file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if names := namesOf(info); names > 1 {
		return "", fault.Usage.With("the database's file has %d names (hard links), and programs that open it by different ones lose each other's data: remove the other names, or give this one a copy of its own", names)
	}
	return file, nil
}

// makeFile makes a file that is not there, and checks that one that is there can be written.
func makeFile(file string) error {
	creating.Lock()
	defer creating.Unlock()
	if _, err := os.Stat(file); err == nil {
		return checkWritable(file)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
