package newfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

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
