package capability

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

func TestRefFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name := filepath.Join(dir, "x.ref")
	at, err := ParseAddress("moorings://a.example,b.example:7700/agents")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("something longer than a ref "+strings.Repeat("x", 500)), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.ref")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{name, link, filepath.Join(dir, "new.ref")} {
		ref := at.New("ses_01JABCDEFGHJKMNPQRSTVWXYZ0")
		if err := WriteRefFile(to, ref); err != nil {
			t.Fatal(err)
		}
		got, err := ReadRefFile(to)
		if err != nil || got.Text() != ref.Text() {
			t.Errorf("%s: %v, %v", filepath.Base(to), got, err)
		}
		if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", filepath.Base(to), info.Mode(), err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v", err)
	}
	for _, ref := range []Ref{{}, at, {Secret: NewSecret()}, {ID: at.New("ses_01JABCDEFGHJKMNPQRSTVWXYZ0").ID}} {
		if err := WriteRefFile(name, ref); fault.CodeOf(err) != fault.BadRefText {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{filepath.Join(dir, "none", "x.ref"), filepath.Join(dir, "folder")} {
		if err := WriteRefFile(to, at.New("ses_01JABCDEFGHJKMNPQRSTVWXYZ0")); err == nil || !strings.HasPrefix(err.Error(), "write the ref: ") {
			t.Errorf("written to a folder, or to one that is not there: %v", err)
		}
	}
	if _, err := ReadRefFile(filepath.Join(dir, "none")); fault.CodeOf(err) != fault.BadRefText || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("read from nowhere: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
