package newfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A file that is replaced is what it was or what it is to be, for its owner alone, and nothing is left beside it.
func TestReplace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "name")
	for _, text := range []string{"first", "", "second"} {
		if err := Replace(name, []byte(text)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if got, _ := os.ReadFile(name); err != nil || string(got) != text || info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
			t.Errorf("it has %q, %v, %v", got, info, err)
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(folder, []byte("x")); err == nil {
		t.Error("a folder is replaced")
	}
	if err := Replace(filepath.Join(dir, "none", "name"), []byte("x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left is %v, %v", left, err)
	}
	tmp, err := WriteTemp(name, []byte("third"), nil)
	if got, _ := os.ReadFile(tmp); err != nil || string(got) != "third" || filepath.Dir(tmp) != dir || !strings.HasPrefix(filepath.Base(tmp), ".name-") {
		t.Errorf("written beside it: %s, %q, %v", tmp, got, err)
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "name")
	for i, want := range []string{"first", "first"} {
		tmp := filepath.Join(dir, "tmp")
		if err := os.WriteFile(tmp, []byte([]string{"first", "second"}[i]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := RenameNoReplace(tmp, name); i == 0 && err != nil || i == 1 && !errors.Is(err, fs.ErrExist) {
			t.Errorf("%d: %v", i, err)
		}
		if _, err := os.Stat(tmp); errors.Is(err, fs.ErrNotExist) != (i == 0) {
			t.Errorf("%d: what was written beside it: %v", i, err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%d: it has %q, %v", i, got, err)
		}
	}
	if err := RenameNoReplace(filepath.Join(dir, "none"), filepath.Join(dir, "other")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing was placed: %v", err)
	}
	if err := errors.Join(SyncDir(dir), os.RemoveAll(name)); err != nil {
		t.Error(err)
	}
	if err := SyncDir(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
