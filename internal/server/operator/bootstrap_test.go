//go:build unix

// The first start: the space and its owner's ref are made once.

package operator

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

func TestBootstrapKeepsTheOwner(t *testing.T) {
	t.Parallel()
	st, dir := teststore.SQLite(t), t.TempDir()
	here := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	path := filepath.Join(dir, OwnerFile)
	first, err := Bootstrap(t.Context(), st, dir, here, true)
	if err != nil || !first.Created || first.Path != path {
		t.Fatalf("the first start: %+v, %v", first, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info.Mode(), err)
	}
	before, _ := os.ReadFile(path)
	again, err := Bootstrap(t.Context(), st, dir, here, true)
	after, _ := os.ReadFile(path)
	if err != nil || again.Created || again.Space != first.Space || string(before) != string(after) {
		t.Fatalf("the second start: %+v, %v", again, err)
	}
	moved := capability.Ref{TLS: true, Hosts: []string{"a.example:7600", "b.example:7600"}, Prefix: "p"}
	if _, err = Bootstrap(t.Context(), st, dir, moved, true); err != nil {
		t.Fatal(err)
	}
	ref, err := readOwnerFile(path)
	if err != nil || ref.Address() != "moorings://a.example,b.example/p" || !strings.HasSuffix(string(before), ref.Secret.RevealText()+"\n") {
		t.Errorf("after a move: %v, %v", ref, err)
	}

	elsewhere, err := Bootstrap(t.Context(), st, t.TempDir(), here, true)
	if err != nil || elsewhere.Created || elsewhere.Path != "" || elsewhere.Space != first.Space {
		t.Errorf("with another folder: %+v, %v", elsewhere, err)
	}
	strange, err := Bootstrap(t.Context(), teststore.SQLite(t), dir, here, true)
	if err != nil || !strange.Created || strange.Space != first.Space {
		t.Errorf("with a new database the folder's owner is its owner: %+v, %v", strange, err)
	}
	other, otherDir := teststore.SQLite(t), t.TempDir()
	if _, err := Bootstrap(t.Context(), other, otherDir, here, true); err != nil {
		t.Fatal(err)
	}
	if o, err := Bootstrap(t.Context(), other, dir, here, true); err != nil || !o.Foreign {
		t.Errorf("with a folder of another database: %+v, %v", o, err)
	}
	if err := os.WriteFile(path, []byte("mooring://h/spc_1#secret-text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Bootstrap(t.Context(), st, dir, here, true)
	if !errors.Is(err, fault.BadRefText) {
		t.Fatalf("a damaged file: %v", err)
	}
	if strings.Contains(err.Error(), "secret-text") {
		t.Errorf("the error repeats the file: %v", err)
	}
}

func TestTwoServersStartAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	here := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	shared := t.TempDir()
	dirs := []string{shared, shared, t.TempDir(), t.TempDir()}
	owners := make([]*Owner, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		st := teststore.Postgres(t, url)
		wg.Go(func() {
			var err error
			if owners[i], err = Bootstrap(t.Context(), st, dir, here, false); err != nil {
				t.Errorf("server %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	created := 0
	for i, o := range owners {
		if o.Created {
			created++
		}
		if o.Space != owners[0].Space {
			t.Errorf("server %d has space %s, server 0 has %s", i, o.Space, owners[0].Space)
		}
		_, err := os.Stat(filepath.Join(dirs[i], OwnerFile))
		if (o.Path == "") != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("server %d: path %q, but the file: %v", i, o.Path, err)
		}
	}
	if created != 1 {
		t.Errorf("%d servers made the space", created)
	}
}
