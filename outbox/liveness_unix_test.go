//go:build unix

package outbox

// The mark of a living sender and the lease: a dead holder is succeeded at once,
// a stopped one when its lease has lapsed, a living one never.

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/lease"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// withLiveness opens a Box in a new file and takes the mark as another process.
func withLiveness(t *testing.T, cfg Config) (b *Box, release func()) {
	b = newPlace(t, "sqlite").open(t, cfg)
	release, held, known := sqlite.LockFile(b.db.(*sqlite.DB).LivenessPath)
	if !held || !known {
		t.Fatal("the mark cannot be had")
	}
	t.Cleanup(release) // closing twice does no harm
	return b, release
}

// leased writes the lease of another process, which has the mark or not.
func leased(t *testing.T, b *Box, until time.Time, pid int) {
	t.Helper()
	err := b.w.Do(limited(t), func(ctx context.Context, q sqlstore.Querier) error {
		_, err := q.Exec(ctx, "UPDATE mooring_outbox SET holder = 'other', lease_until = $1, holder_pid = $2", until.UnixMilli(), pid)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoppedSenderLosesItsLease has a holder that keeps the mark and renews
// nothing, as a process does that was stopped: the next one sends, and gets the
// mark once it is free, so that its own death would show.
func TestStoppedSenderLosesItsLease(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Lease = 100 * time.Millisecond
	b, release := withLiveness(t, cfg)
	leased(t, b, time.Now().Add(cfg.Lease), 1)
	session := withSession(t, b)
	run(t, b, newFakeServer())
	wait(t, b, commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}))
	if row := boxRowOf(t, b); row.Holder != b.t.HolderID || row.HolderPID != 0 {
		t.Fatalf("%+v", row)
	}
	release()
	eventually(t, "it has the mark", func() bool { return boxRowOf(t, b).HolderPID != 0 })
	if _, held, known := sqlite.LockFile(b.db.(*sqlite.DB).LivenessPath); held || !known {
		t.Error("the mark is free")
	}
}

// TestLivingSenderIsLeftAlone has a holder that is late with renewing, as after
// the machine slept.
func TestLivingSenderIsLeftAlone(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Lease = time.Hour
	b, _ := withLiveness(t, cfg)
	w := &lease.Waiter{LivenessTaken: true, Step: 1}
	try := func(want bool, what string) {
		t.Helper()
		tk, _, err := b.lease.TryAcquire(limited(t), w)
		if err != nil || (tk != nil) != want {
			t.Fatalf("%s: %+v, %v", what, tk, err)
		}
	}
	lapsed := time.Now().Add(-time.Minute)
	leased(t, b, lapsed, 1)
	try(false, "lapsed, and seen for the first time")
	w.Since = w.Since.Add(-cfg.Lease)
	leased(t, b, lapsed.Add(time.Second), 1)
	try(false, "renewed meanwhile")
	w.Since = w.Since.Add(-cfg.Lease)
	try(true, "not renewed for so long")
}

// TestTwoNamesOfOneFile: processes that open it by different names know of each other's senders.
func TestTwoNamesOfOneFile(t *testing.T) {
	t.Parallel()
	dir, links := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "o.db")
	cfg := quick()
	cfg.Lease = time.Hour
	one := place{kind: "sqlite", at: path}.open(t, cfg)
	run(t, one, newFakeServer())
	eventually(t, "the first sends", func() bool { return boxRowOf(t, one).HolderPID != 0 })
	for to, name := range map[string]string{path: filepath.Join(links, "file"), dir: filepath.Join(links, "folder")} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		if to == dir {
			name = filepath.Join(name, "o.db")
		}
		two := place{kind: "sqlite", at: name}.open(t, cfg)
		if release, held, known := two.db.TryLivenessLock(two.t.Box); held || !known {
			release()
			t.Errorf("by %s it has the mark of a living sender, too", name)
		}
	}
}

// TestMarkIsNotTheLease has a holder without the mark, which another process
// kept: getting the mark says nothing about this one.
func TestMarkIsNotTheLease(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	leased(t, b, time.Now().Add(time.Hour), 0)
	if tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{HasLiveness: true, Step: 1}); err != nil || tk != nil {
		t.Fatalf("a living holder lost its lease: %+v, %v", tk, err)
	}
	leased(t, b, time.Now().Add(time.Hour), 1)
	if tk, _, err := b.lease.TryAcquire(limited(t), &lease.Waiter{HasLiveness: true, Step: 1}); err != nil || tk == nil {
		t.Fatalf("a dead holder kept its lease: %v", err)
	}
}

// TestMarks are had by one at a time, and where their file cannot be had nobody knows.
func TestMarks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mark")
	release, held, known := sqlite.LockFile(path)
	if !held || !known {
		t.Fatal(held, known)
	}
	if again, held, known := sqlite.LockFile(path); again != nil || held || !known {
		t.Errorf("a second time: %t, %t", held, known)
	}
	release()
	release, held, known = sqlite.LockFile(path)
	if !held || !known {
		t.Errorf("after it was given back: %t, %t", held, known)
	} else {
		release()
	}
	if release, held, known := sqlite.LockFile(filepath.Join(path, "mark")); release != nil || held || known {
		t.Errorf("in no folder: %t, %t", held, known)
	}
}
