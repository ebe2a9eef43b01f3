package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestAnAccountOfBefore: what an account holds when it is first added up is spared, but not
// before it is known what its sessions hold.
func TestAnAccountOfBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	space := capability.FixedID(capability.SpacePrefix+"01ARZ3NDEKTSV4RRFFQ69G5FAV", "top")
	ref := &capability.Grant{ID: space, Target: capability.Target(space), Parent: space[:len(space)-1] + "x", Rights: capability.Create}
	err = s.Update(t.Context(), func(tx session.Tx) error {
		return tx.Save(t.Context(), &session.Changes{Grants: []*capability.Grant{ref}})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		before string
		spared int64
	}{
		{"UPDATE grants SET spared = -1; INSERT INTO sessions (id) VALUES ('ses_1')", -1},
		{"UPDATE sessions SET spared = 0", 0},
	} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.Exec(c.before)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, err = Open(t.Context(), Config{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if bytes, spared, err := s.AccountUsage(t.Context(), ref.ID); err != nil || bytes != 0 || spared != c.spared {
				t.Errorf("%s: holds %d, %d spared, %v", c.before, bytes, spared, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
