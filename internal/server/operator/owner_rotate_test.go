//go:build unix

package operator

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// TestRotateOwnerOutlivesACrash: wherever a rescue is interrupted, doing it again
// or the next start leaves a file whose ref is the one that lives.
func TestRotateOwnerOutlivesACrash(t *testing.T) {
	t.Parallel()
	here := capability.Ref{Hosts: []string{"127.0.0.1:7600"}}
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		db := st
		dir := t.TempDir()
		if _, err := RotateOwner(t.Context(), db, dir, here); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("of a database without a space: %v", err)
		}
		if _, err := Bootstrap(t.Context(), st, dir, here, false); err != nil {
			t.Fatal(err)
		}
		path, fresh := filepath.Join(dir, OwnerFile), filepath.Join(dir, newOwnerFile)
		lives := func(label string) capability.Ref {
			t.Helper()
			ref, err := readOwnerFile(path)
			if err != nil {
				t.Fatal(err)
			}
			access, err := st.ReadAccess(t.Context(), "", []string{ref.ID})
			if err != nil {
				t.Fatal(err)
			}
			if g := access.Grants[ref.ID]; g == nil || g.Revoked != 0 || !capability.SecretMatches(g, ref.Secret) || g.Rights != capability.SpaceRights {
				t.Errorf("%s: the file's ref is %+v", label, g)
			}
			if _, err := os.Stat(fresh); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: the other file is there still (%v)", label, err)
			}
			return ref
		}
		first := lives("the first start")

		// Before the database knew: nothing happened, and again means with the same ref.
		next := first.New(first.Target())
		if err := replaceOwnerFile(fresh, next); err != nil {
			t.Fatal(err)
		}
		if _, err := Bootstrap(t.Context(), st, dir, here, false); err != nil {
			t.Fatal(err)
		}
		if ref, err := readOwnerFile(path); err != nil || ref.ID != first.ID {
			t.Errorf("a start took a ref that nobody knows: %v, %v", ref, err)
		}
		done, err := RotateOwner(t.Context(), db, dir, here)
		if err != nil || done.Ref != next.ID || done.Old != first.ID {
			t.Errorf("again: %+v, %v", done, err)
		}
		lives("done again")

		// After it: the next start puts the file in place, or the same again does.
		for _, how := range []string{"start", "again"} {
			was := lives(how)
			after := was.New(was.Target())
			if err := replaceOwnerFile(fresh, after); err != nil {
				t.Fatal(err)
			}
			if _, err := db.RotateRoot(t.Context(), &capability.Grant{ID: after.ID, Target: after.Target(), Hash: after.Secret.Hash(), Label: "root"}); err != nil {
				t.Fatal(err)
			}
			if how == "start" {
				_, err = Bootstrap(t.Context(), st, dir, here, false)
			} else {
				_, err = RotateOwner(t.Context(), db, dir, here)
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := lives(how); got.ID != after.ID {
				t.Errorf("%s: the file has %s, not %s", how, got.ID, after.ID)
			}
		}

		// What is left of an old rescue, and dead since, is not used again.
		if err := replaceOwnerFile(fresh, first); err != nil {
			t.Fatal(err)
		}
		if done, err := RotateOwner(t.Context(), db, dir, here); err != nil || done.Ref == first.ID {
			t.Errorf("over what was left: %+v, %v", done, err)
		}
		last := lives("over what was left")

		other := t.TempDir()
		foreign := here.New(capability.SpacePrefix + first.Target()[len(capability.SpacePrefix):len(first.Target())-1] + "0")
		if foreign.Target() == last.Target() {
			foreign = here.New(capability.SpacePrefix + first.Target()[len(capability.SpacePrefix):len(first.Target())-1] + "1")
		}
		if err := replaceOwnerFile(filepath.Join(other, OwnerFile), foreign); err != nil {
			t.Fatal(err)
		}
		if _, err := RotateOwner(t.Context(), db, other, here); fault.CodeOf(err) != fault.Ambiguous {
			t.Errorf("in the folder of another database: %v", err)
		}
	})
}
