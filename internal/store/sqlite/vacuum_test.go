package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// TestVacuumGivesSpaceBack: what the file has and nothing uses goes; what it holds stays, and
// while a server runs, or who asked is gone, nothing is done.
func TestVacuumGivesSpaceBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	harness.Appender(t, s)()
	if _, _, err := Vacuum(t.Context(), dir); !errors.Is(err, fault.InUse) {
		t.Errorf("while a server runs: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, fileName)
	const held = 4 << 20
	byHand(t, file, "CREATE TABLE was AS SELECT randomblob(4194304)")
	byHand(t, file, "DROP TABLE was")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := Vacuum(stopped, dir); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("stopped: %v", err)
	}
	before, after, err := Vacuum(t.Context(), dir)
	if err != nil || before-after < held || after <= 0 {
		t.Errorf("%d bytes became %d, %v", before, after, err)
	}
	if c, found, err := Check(t.Context(), file); err != nil || len(found.Flaws) > 0 || found.Events != 2 || c.Bytes != after {
		t.Errorf("afterwards it is %v, %+v, %v", c, found, err)
	}
	if _, _, err := Vacuum(t.Context(), t.TempDir()); err == nil {
		t.Error("where there is no database")
	}
	again, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	harness.Appender(t, again)()
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
