//go:build unix

package outbox

// A process that stands in its transaction is named to those who wait for it.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlite"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

func TestTransactionHolderIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	frozen := p.open(t, quick())
	var log lockbuf.Buffer
	cfg := quick()
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := p.open(t, cfg)
	db := b.db.(*sqlite.DB)
	session := withSession(t, b)
	x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	standing := func() int {
		t.Helper()
		st, err := b.Status(limited(t))
		if err != nil {
			t.Fatal(err)
		}
		return st.BlockingPID
	}
	db.BlockingAfter = 0
	if pid := standing(); pid != 0 {
		t.Errorf("nobody writes, and %d stands", pid)
	}
	inside, thaw, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		_, err := frozen.db.Write(limited(t), func(sqlstore.Querier) error { close(inside); <-thaw; return nil })
		if err != nil {
			t.Error(err)
		}
	}()
	<-inside
	if pid := standing(); pid != os.Getpid() {
		t.Errorf("%d stands", pid)
	}
	name := fmt.Sprintf("process %d has kept", os.Getpid())
	if err := db.LockedBy(fault.Unavailable); !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), name) {
		t.Errorf("who cannot write is told %v", err)
	}
	db.BlockingAfter = time.Hour
	if pid := standing(); pid != 0 {
		t.Errorf("%d stands, only just", pid)
	}
	if err := db.LockedBy(fault.Unavailable); strings.Contains(err.Error(), name) {
		t.Errorf("who waited for others too is told %v", err)
	}
	db.BlockingAfter = 0
	waiting, stop := context.WithCancel(limited(t))
	waited := make(chan error, 2)
	go func() { _, err := b.Wait(waiting, x.Batch); waited <- err }()
	go func() { waited <- b.Drain(waiting, nil) }()
	pid := fmt.Sprintf("pid=%d", os.Getpid())
	eventually(t, "who waits says so", func() bool { return strings.Contains(log.String(), pid) })
	b.warnBlocking(limited(t))
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

// TestDeadProcessHoldsNoTransaction: neither is a dead process named, nor one that has
// got its number.
func TestDeadProcessHoldsNoTransaction(t *testing.T) {
	t.Parallel()
	b := newPlace(t, "sqlite").open(t, quick())
	db := b.db.(*sqlite.DB)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{dead.Process.Pid, os.Getpid()} {
		record := fmt.Appendf(nil, "%-*s", sqlite.WriterBytes, fmt.Sprintf("%d 1", pid))
		if _, err := db.WriterLock.File.WriteAt(record, 0); err != nil {
			t.Fatal(err)
		}
		if got, _ := db.BlockingWriter(limited(t)); got != 0 {
			t.Errorf("%d stands", got)
		}
		err := db.LockedBy(fault.Unavailable)
		if named := strings.Contains(err.Error(), fmt.Sprintf("process %d ", pid)); named != (pid == os.Getpid()) {
			t.Errorf("who cannot write hears of %d: %v", pid, err)
		}
	}
	withSession(t, b)
	var left [sqlite.WriterBytes]byte
	if _, err := db.WriterLock.File.ReadAt(left[:], 0); err != nil || len(bytes.TrimSpace(left[:])) != 0 {
		t.Errorf("the file says %q, %v", left, err)
	}
}

// frozen is a process that was stopped inside its transaction on the outbox. It does go on
// once it may.
func frozen(t *testing.T, p place) (child *exec.Cmd) {
	t.Helper()
	child = exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childVar+"="+p.kind, childPlace+"="+p.at, childName+"="+p.name, childStands+"=1", crashpoint.Env+"=", "PGAPPNAME=")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "inside\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(child.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == nil && status.Stopped() {
			break
		}
		if err != syscall.EINTR {
			t.Fatalf("the child was not stopped: %v, %v", status, err)
		}
	}
	if _, err := in.Write([]byte("\n")); err != nil { // it would end now
		t.Fatal(err)
	}
	return child
}

// TestAFrozenProcessIsNamed: who cannot write because of a process that is stopped is told
// its number, and goes on when that does.
func TestAFrozenProcessIsNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sqlite")
	b := p.open(t, quick())
	db := b.db.(*sqlite.DB)
	session := withSession(t, b)
	child := frozen(t, p)
	db.BlockingAfter = 0
	patience := func(d time.Duration) {
		t.Helper()
		db.Mu.Lock()
		defer db.Mu.Unlock()
		if _, err := db.Writer.Conn.ExecContext(limited(t), fmt.Sprintf("PRAGMA busy_timeout = %d", d.Milliseconds())); err != nil {
			t.Fatal(err)
		}
	}
	patience(time.Millisecond)
	_, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{put("1")}})
	if !errors.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), fmt.Sprintf("process %d has kept", child.Process.Pid)) {
		t.Errorf("who cannot commit is told %v", err)
	}
	if st, err := b.Status(limited(t)); err != nil || st.BlockingPID != child.Process.Pid {
		t.Errorf("%d stands, %v; want %d", st.BlockingPID, err, child.Process.Pid)
	}
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	patience(sqlite.BusyTimeout)
	commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
	if err := child.Wait(); err != nil {
		t.Errorf("the child, when it goes on: %v", err)
	}
	if st, err := b.Status(limited(t)); err != nil || st.BlockingPID != 0 {
		t.Errorf("%d stands after all, %v", st.BlockingPID, err)
	}
}

// TestAFrozenProcessOnPostgres: the database tells whose transaction it is, and undoes it,
// so that the others go on.
func TestAFrozenProcessOnPostgres(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "postgres")
	b := p.open(t, quick())
	child := frozen(t, p)
	var n int
	err := b.db.(*postgres.DB).Pool.QueryRow(limited(t), "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE $1",
		fmt.Sprintf("mooring %d on %%", child.Process.Pid)).Scan(&n)
	if err != nil || n == 0 {
		t.Errorf("%d connections of the child are named, %v", n, err)
	}
	lapse(t, b) // waits for the child's lock
	if err := child.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("the child has committed what the database undid")
	}
}
