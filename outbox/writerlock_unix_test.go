//go:build unix

package outbox

// Turns between processes that share an outbox's file.

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// TestCommitBesideABusyProcess commits while another process writes without a
// pause: it has its turn after the transaction that runs, not when the other
// has done.
func TestCommitBesideABusyProcess(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	busy, b := p.open(t, quick()), p.open(t, quick())
	session := withSession(t, b)
	const held = 200 * time.Millisecond // longer than SQLite's own wait polls
	ctx, stop := context.WithCancel(limited(t))
	turns := make(chan int)
	began := make(chan struct{})
	go func() {
		n := 0
		for ctx.Err() == nil {
			_, _ = busy.db.Write(context.WithoutCancel(ctx), func(sqlstore.Querier) error { time.Sleep(held); return nil })
			if n++; n == 1 {
				close(began)
			}
		}
		turns <- n
	}()
	<-began
	const commits = 3
	for range commits {
		commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	}
	stop()
	if n := <-turns; n > 5*commits {
		t.Errorf("%d transactions of the other process beside %d commits", n, commits)
	}
}

// TestTurnWaitedForInVain gives up while another process holds the turn, and
// leaves no lock behind that would keep the others out.
func TestTurnWaitedForInVain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	one, two := sqlite.OpenWriterLock(path), sqlite.OpenWriterLock(path)
	defer one.Close()
	defer two.Close()
	leave, err := one.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := two.Acquire(short); err == nil {
		t.Fatal("both have the turn")
	}
	leave()
	eventually(t, "who has given up gets it", func() bool {
		two.Mu.Lock()
		defer two.Mu.Unlock()
		return two.Waiting == nil
	})
	for range 2 { // also for who had given up
		for _, turn := range []*sqlite.WriterLock{one, two} {
			leave, err := turn.Acquire(limited(t))
			if err != nil {
				t.Fatal(err)
			}
			leave()
		}
	}
}

// TestTurnThatIsWaitedFor is had by who waited for it, also once in vain, until that one
// leaves.
func TestTurnThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "turn")
	one, two, three := sqlite.OpenWriterLock(path), sqlite.OpenWriterLock(path), sqlite.OpenWriterLock(path)
	defer one.Close()
	defer two.Close()
	leave, err := one.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := two.Acquire(over); err == nil {
		t.Fatal("both have the turn")
	}
	got := make(chan error, 1)
	var leaveTwo func()
	go func() {
		var err error
		leaveTwo, err = two.Acquire(limited(t))
		got <- err
	}()
	eventually(t, "it waits again", func() bool {
		two.Mu.Lock()
		defer two.Mu.Unlock()
		return two.Wanted
	})
	leave()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if _, err := three.Acquire(over); err == nil {
		t.Error("one that did not wait has it, too")
	}
	leaveTwo()
	three.Close() // when it has had its turn
	if leave, err = one.Acquire(limited(t)); err != nil {
		t.Fatal(err)
	}
	leave()
}

// TestTurnOfAStoppedProcess commits while a process that waits for its turn to
// end was stopped: turns are for fairness, and nobody depends on them.
func TestTurnOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	session := withSession(t, b)
	stopped := sqlite.OpenWriterLock(b.db.(*sqlite.DB).WriterLock.File.Name())
	defer stopped.Close()
	leave, err := stopped.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
}

// TestLookingWhileOthersCommit has a process look for what others have committed
// all the time: what it looks with must not be in the way of its own commits.
func TestLookingWhileOthersCommit(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	cfg := quick()
	cfg.Poll = 10 * time.Microsecond
	looking, other := p.open(t, cfg), p.open(t, quick())
	session := withSession(t, looking)
	ctx, stop := context.WithCancel(limited(t))
	var watching sync.WaitGroup
	defer watching.Wait() // before the box is closed
	defer stop()
	watching.Go(func() { looking.db.Watch(ctx, "", func() {}, func(int64) {}) })
	var wg sync.WaitGroup
	for _, b := range []*Box{looking, other} {
		wg.Go(func() {
			for range 300 {
				if _, err := b.Commit(ctx, Batch{Session: session, Ops: []Op{put("1")}}); err != nil {
					t.Errorf("commit: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}
