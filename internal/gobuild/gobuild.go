// Package gobuild compiles programs of this module for tests that start, kill or measure them as processes.
package gobuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

const module = "github.com/mooring-rpc/mooring/"

// Program compiles the program of a folder of this module, such as "cmd/mooring", to path: without C and without the race
// detector, whatever the test itself is built with, so that a process starts in a tenth of the time, and without tables for
// debuggers, which take a third of the linker's. What it does is raced by the tests of its packages. Further arguments are flags of go build.
func Program(path, folder string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-ldflags=-s -w", "-o", path}, flags...), module+folder)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Once compiles a program when its path is first asked for, into a temporary folder. Its methods may be called concurrently.
type Once struct {
	Folder string // such as "cmd/mooring"

	once sync.Once
	dir  string
	err  error
}

// Path returns where the program is.
func (o *Once) Path() (string, error) {
	o.once.Do(func() {
		if o.dir, o.err = os.MkdirTemp("", "mooring-test-"); o.err == nil {
			o.err = Program(o.path(), o.Folder)
		}
	})
	return o.path(), o.err
}

func (o *Once) path() string { return filepath.Join(o.dir, filepath.Base(o.Folder)) }

// Remove removes the program, if there is one; to be called when the tests have ended.
func (o *Once) Remove() {
	o.once.Do(func() {}) // never compiled
	if o.dir != "" {
		_ = os.RemoveAll(o.dir)
	}
}
