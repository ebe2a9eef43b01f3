//go:build unix

package privatedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

func TestMake(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "home")
	for range 2 {
		if err := Make(dir, "the home folder"); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "outbox.db")); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, "the home folder"); err != nil {
		t.Errorf("with a link of its owner's: %v", err)
	}
	refused := func(words string, err error) {
		t.Helper()
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want usage with %q", err, words)
		}
	}
	other := os.Geteuid() + 1
	refused("the home folder belongs to another user", check(dir, "the home folder", other))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	refused("every user may write", Make(dir, "the home folder"))
}

// TestFilesOfOthers makes its files as root where it can, and elsewhere looks at the
// folder from which root's files cannot be told from one's own.
func TestFilesOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "outbox.db")
	if err := os.Symlink("/tmp/elsewhere", link); err != nil {
		t.Fatal(err)
	}
	user := os.Geteuid()
	if user == 0 { // the folder and its link belong to two users, neither of them root
		user = 1001
		if err := errors.Join(os.Chown(dir, user, -1), os.Lchown(link, 1002, -1)); err != nil {
			t.Fatal(err)
		}
		err := check(dir, "the home folder", user)
		if !errors.Is(err, fault.Usage) || !strings.Contains(err.Error(), `"outbox.db" in the home folder belongs to another user (id 1002`) {
			t.Errorf("%v", err)
		}
		return
	}
	if err := check(dir, "the home folder", user); err != nil {
		t.Errorf("one's own link: %v", err)
	}
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "some.db")
	perm := func(name string) os.FileMode {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	if name, err := EnsureDatabase(file); err != nil || name != file || perm(file) != 0o600 {
		t.Errorf("%v, mode %o", err, perm(file))
	}
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		if err := errors.Join(os.WriteFile(name, []byte("kept"), 0o666), os.Chmod(name, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := EnsureDatabase(file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		if text, _ := os.ReadFile(name); perm(name) != 0o600 || string(text) != "kept" {
			t.Errorf("%s: mode %o, %q", name, perm(name), text)
		}
	}
}

// TestDatabaseOfSeveralNames: a symbolic link leads to the file's own name, before there is a file too; a file with a second
// name of its own is refused.
func TestDatabaseOfSeveralNames(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link := filepath.Join(dir, "own.db"), filepath.Join(dir, "link.db")
	if err := os.Symlink("own.db", link); err != nil {
		t.Fatal(err)
	}
	if _, err := FindDatabase(link); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link to no file: %v", err)
	}
	for range 2 {
		if name, err := EnsureDatabase(link); err != nil || name != file {
			t.Errorf("%s, %v; want %s", name, err, file)
		}
	}
	if err := os.Link(file, filepath.Join(dir, "second.db")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, link, filepath.Join(dir, "second.db")} {
		if _, err := EnsureDatabase(name); fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "2 names") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
