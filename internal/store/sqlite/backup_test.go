package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gobuild"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/internal/store/upkeep"
	"github.com/mooring-rpc/mooring/internal/until"
)

// served is an open store, and its folder.
func served(tb testing.TB) (dir string, s *store.Store) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "data")
	s, err := Open(tb.Context(), Config{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return dir, s
}

// byHand runs a statement on a copy.
func byHand(t *testing.T, file, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

// TestBackupWhileOthersAppend: a copy is one state of the database, with all that was
// acknowledged before it began, and a server goes on from it.
func TestBackupWhileOthersAppend(t *testing.T) {
	t.Parallel()
	dir, s := served(t)
	first, second := harness.Appender(t, s), harness.Appender(t, s)
	writers := []func(){harness.Appender(t, s), harness.Appender(t, s)}
	const before = 20
	for range before {
		first()
		second()
	}
	end := make(chan struct{})
	var at [3]atomic.Int64
	var running sync.WaitGroup
	for i, commits := range [][]func(){{first, second}, writers[:1], writers[1:]} {
		running.Go(func() {
			for {
				for _, commit := range commits {
					commit()
				}
				at[i].Add(1)
				select {
				case <-end:
					return
				default:
				}
			}
		})
	}
	all := func(n int64) { // each has committed n times more
		for i := range at {
			for from, deadline := at[i].Load(), time.Now().Add(time.Minute); at[i].Load() < from+n && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "copy.db")
	all(3)
	acked := at[0].Load()
	made, err := Backup(t.Context(), dir, file, BackupOptions{})
	all(3)
	close(end)
	running.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes {
		t.Errorf("the copy: %v, %v", info, err)
	}
	if names, err := os.ReadDir(filepath.Dir(file)); err != nil || len(names) != 1 {
		t.Errorf("beside the copy is %v, %v", names, err)
	}
	c, found, err := Check(t.Context(), file)
	if err != nil || c != made || len(found.Flaws) > 0 || found.Sessions != 4 {
		t.Fatalf("%v, %+v, %v", c, found, err)
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var a, b int64 // of the first two sessions, which are appended to in turn
	if err := db.QueryRow("SELECT s.cursor, (SELECT o.cursor FROM sessions o ORDER BY o.id LIMIT 1 OFFSET 1) FROM sessions s ORDER BY s.id LIMIT 1").Scan(&a, &b); err != nil {
		t.Fatal(err)
	}
	if a < before+acked || a-b < 0 || a-b > 1 {
		t.Errorf("the copy has events %d and %d of what was appended in turn, of %d that were acknowledged", a, b, before+acked)
	}
	restored := t.TempDir()
	if err := os.Rename(file, filepath.Join(restored, fileName)); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Config{Dir: restored})
	if err != nil {
		t.Fatal(err)
	}
	harness.Appender(t, again)()
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestBackupLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir, s := served(t)
	harness.Appender(t, s)()
	to := t.TempDir()
	there := filepath.Join(to, "there")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		dir  string
		file string
		want fault.Code
	}{
		"a file that is there": {t.Context(), dir, there, fault.AlreadyExists},
		"no such folder":       {t.Context(), dir, filepath.Join(to, "none", "copy"), fault.Usage},
		"stopped":              {stopped, dir, filepath.Join(to, "copy"), fault.Canceled},
		"no database":          {t.Context(), to, filepath.Join(to, "copy"), fault.Usage},
	} {
		if _, err := Backup(c.ctx, c.dir, c.file, BackupOptions{}); fault.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if names, err := os.ReadDir(to); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if b, err := os.ReadFile(there); err != nil || string(b) != "mine" {
		t.Errorf("the file that was there has %q, %v", b, err)
	}
}

// TestBackupInPieces: what is committed between two pieces is not in the copy, and waits for
// none of them. With and without pauses it is the same.
func TestBackupInPieces(t *testing.T) {
	t.Parallel()
	for _, fast := range []bool{false, true} {
		dir, s := served(t)
		commit := harness.Appender(t, s)
		for range 50 {
			commit()
		}
		file, pieces := filepath.Join(t.TempDir(), "copy"), 0
		made, err := Backup(t.Context(), dir, file, BackupOptions{Fast: fast, Progress: func(done, total int64) {
			pieces++
			commit()
			if done != min(int64(pieces)*chunkSize, total) {
				t.Errorf("piece %d: %d of %d bytes", pieces, done, total)
			}
		}})
		if err != nil || pieces < 2 || made.Bytes > int64(pieces)*chunkSize {
			t.Fatalf("%+v in %d pieces, %v", made, pieces, err)
		}
		if _, found, err := Check(t.Context(), file); err != nil || len(found.Flaws) > 0 || found.Events != 51 {
			t.Errorf("the copy has %+v, %v", found, err)
		}
		if header, err := os.ReadFile(file); err != nil || header[18] != 1 || header[19] != 1 {
			t.Errorf("it wants a write-ahead log beside it: %v", err)
		}
	}
}

func TestBackupPauses(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]time.Duration{0: 0, 10 * time.Millisecond: 40 * time.Millisecond, time.Hour: time.Second} {
		if got := (BackupOptions{}).pause(took); got != want {
			t.Errorf("after a piece of %v: %v, want %v", took, got, want)
		}
		if got := (BackupOptions{Fast: true}).pause(took); got != 0 {
			t.Errorf("fast, after a piece of %v: %v", took, got)
		}
	}
}

// TestStoppedBackup: one that is stopped between two pieces leaves nothing, and is not in the
// way of what is purged any more.
func TestStoppedBackup(t *testing.T) {
	t.Parallel()
	dir, b, s, _ := watched(t, Config{Readers: 2})
	a := harness.NewAgent(t, s)
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	ctx, stop := context.WithCancel(t.Context())
	to := t.TempDir()
	_, err := Backup(ctx, dir, filepath.Join(to, "copy"), BackupOptions{Progress: func(done, total int64) {
		if done == total {
			t.Error("it was not stopped in time")
		}
		a.Do("purge", "key", "message/a")
		if !b.wal.pending.Load() {
			t.Error("the copy was not in the way: this test shows nothing")
		}
		stop()
	}})
	if fault.CodeOf(err) != fault.Canceled {
		t.Errorf("stopped: %v", err)
	}
	if names, err := os.ReadDir(to); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	until.True(t, "the secret leaves the files", func() bool { return stands(t, dir, "sk-leaked-4711") == nil })
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir, s := served(t)
	commit := harness.Appender(t, s)
	for range 3 {
		commit()
	}
	good := filepath.Join(t.TempDir(), "good")
	if _, err := Backup(t.Context(), dir, good, BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte, change string) (found *upkeep.IntegrityReport, err error) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "copy")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if change != "" {
			byHand(t, file, change)
		}
		_, found, err = Check(t.Context(), file)
		return found, err
	}
	if found, err := check(data, ""); err != nil || len(found.Flaws) != 0 || found.Events != 4 {
		t.Errorf("a good copy: %+v, %v", found, err)
	}
	for change, want := range map[string]string{
		"UPDATE events SET payload = CAST('{}' AS BLOB) WHERE cursor = 2": "event 2 has another payload than was written",
		"UPDATE events SET actor = 'x' WHERE cursor = 3":                  "event 3 was changed",
		"DELETE FROM events WHERE cursor = 4":                             "event 4 is missing",
		"UPDATE audit_log SET actor = 'x' WHERE seq = 1":                  "audit of ",
	} {
		if found, err := check(data, change); err != nil || len(found.Flaws) == 0 || !strings.Contains(found.Flaws[0], want) {
			t.Errorf("%s: %+v, %v", change, found, err)
		}
	}
	for name, b := range map[string][]byte{
		"no database":           []byte("something else, longer than a page of nothing"),
		"cut":                   data[:len(data)/2],
		"empty":                 {},
		"pages of another file": slices.Concat(data[:len(data)/2], make([]byte, len(data)-len(data)/2)),
	} {
		if found, err := check(b, ""); err == nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
	damaged := 0
	const page = 4096
	for at := page; at < len(data); at += page {
		if data[at] != 10 { // the leaf of an index
			continue
		}
		b := slices.Clone(data)
		b[at+page-1] ^= 1 // of a row in it
		if _, err := check(b, ""); err != nil && strings.Contains(err.Error(), "it is damaged: ") {
			damaged++
		}
	}
	if damaged == 0 {
		t.Error("no index that lacks a row is found")
	}
	if _, err := check(data, "INSERT INTO mooring_version (version_id, is_applied) VALUES (9999, 1)"); !errors.Is(err, fault.Incompatible) {
		t.Errorf("of a version to come: %v", err)
	}
}

// BenchmarkBackup measures what commits take while nothing else goes on and while the command
// copies the database, over and over, by turns (docs/benchmarks.md has figures). A ratio is the
// median of the rounds', each of which has its own quiet.
func BenchmarkBackup(b *testing.B) {
	const rounds, each = 5, 4 * time.Second
	dir, s := served(b)
	mooring := filepath.Join(b.TempDir(), "mooring")
	if err := gobuild.Program(mooring, "cmd/mooring"); err != nil {
		b.Fatal(err)
	}
	commit := harness.Appender(b, s)
	for range 20_000 {
		commit()
	}
	copies := map[string][]string{"quiet": nil, "copied": {"admin", "backup"}, "fast": {"admin", "backup", "--fast"}}
	measure := func(args []string) (p50, p99, most time.Duration, copies int) {
		ctx, stop := context.WithCancel(b.Context())
		var copying sync.WaitGroup
		n, began := 0, time.Now() // copies
		if args != nil {
			copying.Go(func() {
				for ctx.Err() == nil {
					file := filepath.Join(b.TempDir(), "copy")
					args := append(slices.Clone(args), "--data", dir, file)
					if out, err := exec.CommandContext(ctx, mooring, args...).CombinedOutput(); err == nil {
						n++
					} else if ctx.Err() == nil {
						b.Errorf("%v: %s", err, out)
						return
					}
					_ = os.Remove(file)
				}
			})
		}
		took := make([]time.Duration, 0, 20_000)
		for time.Since(began) < each {
			t := time.Now()
			commit()
			took = append(took, time.Since(t))
		}
		stop()
		copying.Wait()
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100], took[len(took)-1], n
	}
	for b.Loop() {
		figures := map[string][]float64{}
		for range rounds {
			var quiet time.Duration
			for _, name := range []string{"quiet", "copied", "fast"} {
				p50, p99, most, n := measure(copies[name])
				if name == "quiet" {
					quiet = p99
				}
				for unit, value := range map[string]float64{"p50-ms": p50.Seconds() * 1000, "p99-ms": p99.Seconds() * 1000,
					"max-ms": most.Seconds() * 1000, "p99-ratio": p99.Seconds() / quiet.Seconds(), "copies": float64(n)} {
					figures[name+"-"+unit] = append(figures[name+"-"+unit], value)
				}
			}
		}
		for name, all := range figures {
			slices.Sort(all)
			b.ReportMetric(all[len(all)/2], name)
			if strings.HasSuffix(name, "-p99-ratio") {
				b.Logf("%s: %.2f", name, all)
			}
		}
	}
}
