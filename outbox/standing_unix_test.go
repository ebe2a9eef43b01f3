//go:build unix

package outbox

// A process that stands in its transaction is named to those who wait for it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

func TestWhoStandsInItsTransactionIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	frozen := p.open(t, quick())
	var log lockbuf.Buffer
	cfg := quick()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := p.open(t, cfg)
	db := b.db.(*sqliteDB)
	session := withSession(t, b)
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	standing := func() int {
		t.Helper()
		st, err := b.Status(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		return st.Standing
	}
	db.stands = 0
	if pid := standing(); pid != 0 {
		t.Errorf("nobody writes, and %d stands", pid)
	}
	inside, thaw, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		_, err := frozen.db.write(limited(t), func(querier) error { close(inside); <-thaw; return nil })
		if err != nil {
			t.Error(err)
		}
	}()
	<-inside
	if pid := standing(); pid != os.Getpid() {
		t.Errorf("%d stands", pid)
	}
	name := fmt.Sprintf("process %d has kept", os.Getpid())
	if err := db.lockedBy(fault.Unavailable); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), name) {
		t.Errorf("who cannot write is told %v", err)
	}
	db.stands = time.Hour
	if pid := standing(); pid != 0 {
		t.Errorf("%d stands, only just", pid)
	}
	if err := db.lockedBy(fault.Unavailable); strings.Contains(err.Error(), name) {
		t.Errorf("who waited for others too is told %v", err)
	}
	db.stands = 0
	waiting, stop := context.WithCancel(limited(t))
	waited := make(chan error, 2)
	go func() { _, err := b.Wait(waiting, x.Batch); waited <- err }()
	go func() { waited <- b.Drain(waiting, nil) }()
	pid := fmt.Sprintf("pid=%d", os.Getpid())
	eventually(t, "who waits says so", func() bool { return strings.Contains(log.String(), pid) })
	b.sayStanding(limited(t))
	if n := strings.Count(log.String(), pid); n != 1 {
		t.Errorf("said %d times", n)
	}
	stop()
	for range cap(waited) {
		if err := <-waited; !errors.Is(err, fault.Canceled) {
			t.Error(err)
		}
	}
	close(thaw)
	<-over
	if pid := standing(); pid != 0 {
		t.Errorf("it has ended, and %d stands", pid)
	}
}

// TestWhoDiedInItsTransactionStandsNowhere: neither is a dead process named, nor one that has
// got its number.
func TestWhoDiedInItsTransactionStandsNowhere(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	db := b.db.(*sqliteDB)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{dead.Process.Pid, os.Getpid()} {
		record := fmt.Appendf(nil, "%-*s", writerBytes, fmt.Sprintf("%d 1", pid))
		if _, err := db.turn.file.WriteAt(record, 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := db.standing(limited(t)); got != 0 {
			t.Errorf("%d stands", got)
		}
		err := db.lockedBy(fault.Unavailable)
		if named := strings.Contains(err.Error(), fmt.Sprintf("process %d ", pid)); named != (pid == os.Getpid()) {
			t.Errorf("who cannot write hears of %d: %v", pid, err)
		}
	}
	withSession(t, b)
	var left [writerBytes]byte
	if _, err := db.turn.file.ReadAt(left[:], 0); err != nil || len(bytes.TrimSpace(left[:])) != 0 {
		t.Errorf("the file says %q, %v", left, err)
	}
}
