package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/internal/until"
)

// stands names the files of a data folder in which text stands.
func stands(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(data, []byte(text)); n > 0 {
			found = append(found, fmt.Sprintf("%s (%d times)", filepath.Base(name), n))
		}
	}
	return found
}

// TestPurgedLeavesTheFiles: what was purged, or was in a deleted session, stands
// nowhere in the data folder's files, although it had been put, replaced, copied
// into other events and moved about between pages before.
func TestPurgedLeavesTheFiles(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 200, 3000, 50_000} {
		for _, how := range []string{session.MethodPurge, session.MethodDelete} {
			if how == session.MethodDelete && size != 3000 {
				continue // it takes the pages as a purge does
			}
			t.Run(fmt.Sprintf("%s of %d bytes", how, size), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				s := openIn(t, dir)
				a := harness.NewAgent(t, s)
				r := rand.New(rand.NewPCG(uint64(size), 1))
				secret := "sk-leaked-4711"
				value := func() json.RawMessage {
					return json.RawMessage(fmt.Sprintf(`{"text":"%s%s"}`, strings.Repeat("x", r.IntN(size+1)), secret))
				}
				a.Do("put", "key", "message/before", "payload", value())
				for i := range 60 {
					m := fmt.Sprintf("m%d", r.IntN(30))
					a.Try("begin", "message", m, "payload", json.RawMessage(`{}`))
					a.Try("put", "key", "part/"+m+"/other", "payload", json.RawMessage(fmt.Sprintf(`{"n":%d,"fill":"%s"}`, i, strings.Repeat("y", r.IntN(2000)))))
					a.Try("put", "key", "part/m1/p", "payload", value())
					a.Try("finalize", "message", m, "status", "completed")
					a.Try("put", "key", "message/before", "payload", value())
					if i%7 == 0 {
						a.Do("remove", "key", "part/m1/p")
					}
				}
				a.Do("put", "key", "part/m1/p", "payload", value())
				if stands(t, dir, secret) == nil {
					t.Fatal("the secret was never in the files")
				}
				if how == session.MethodDelete {
					a.Do("delete")
				} else {
					a.Do("purge", "key", "part/m1/p")
					a.Do("purge", "key", "message/before")
				}
				if found := stands(t, dir, secret); found != nil {
					t.Errorf("the secret stands in %v", found)
				}
			})
		}
	}
}

// TestPurgedAfterARevertLeavesTheFiles: also a value that a settled revert has removed from the state, and whose row has not left
// yet, in a log that has it or is trimmed.
func TestPurgedAfterARevertLeavesTheFiles(t *testing.T) {
	t.Parallel()
	for _, trimmed := range []bool{false, true} {
		for _, together := range []bool{false, true} {
			dir := t.TempDir()
			s := openIn(t, dir)
			a := harness.NewAgent(t, s)
			secret := func(key string) json.RawMessage { return json.RawMessage(`{"text":"sk-leaked-4711-` + key + `"}`) }
			a.Do("put", "key", "message/a", "payload", json.RawMessage(`{}`))
			a.Do("begin", "message", "b", "payload", secret("b"))
			a.Do("put", "key", "part/b/1", "payload", secret("1"))
			a.Do("finalize", "message", "b", "status", "completed", "parts", json.RawMessage(`[{"id":"2","payload":{"text":"sk-leaked-4711-2"}}]`))
			a.Do("put", "key", "part/b/3", "payload", json.RawMessage(`{"kept":"kept-3"}`))
			if trimmed {
				for more := true; more; {
					var err error
					if more, err = s.Trim(t.Context(), a.Session, -time.Hour, 100, 1<<20); err != nil {
						t.Fatal(err)
					}
				}
			}
			a.Do("revert", "to", "message/b")
			purges := [][]any{{"purge", "key", "part/b/1"}, {"purge", "key", "part/b/2"}, {"purge", "key", "message/b"}}
			if together { // in the group of the settle
				a.DoAll(append([][]any{{"put", "key", "message/c", "payload", json.RawMessage(`{}`)}}, purges...)...)
			} else {
				a.Do("put", "key", "message/c", "payload", json.RawMessage(`{}`))
				if stands(t, dir, "sk-leaked-4711") == nil {
					t.Fatal("the secret was never in the files")
				}
				for _, p := range purges {
					a.Do(p[0].(string), p[1:]...)
				}
			}
			if found := stands(t, dir, "sk-leaked-4711"); found != nil {
				t.Errorf("trimmed %v, together %v: the secret stands in %v", trimmed, together, found)
			}
			a.Do("put", "key", "part/b/1", "payload", json.RawMessage(`{}`))
		}
	}
}

// TestPurgedEditsLeaveTheFiles: also what an edit of a large value added, which is stored apart; and
// nothing is stored apart any more of a value that is put whole, or gone.
func TestPurgedEditsLeaveTheFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	a := harness.NewAgent(t, s)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, fileName)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	apart := func(when string, want int) {
		t.Helper()
		var rows int
		if err := db.QueryRow("SELECT count(*) FROM entry_edits").Scan(&rows); err != nil || rows != want {
			t.Errorf("%s: the edits of %d values are stored apart, %v, want %d", when, rows, err, want)
		}
	}
	document := json.RawMessage(`{"n":1,"fill":"` + strings.Repeat("x", 9000) + `"}`)
	edit := func(value string) {
		t.Helper()
		a.Do("patch", "key", "doc/1", "patch", json.RawMessage(`{"n":"`+value+`"}`))
	}
	for _, gone := range []string{"put", "remove", "purge", "delete"} {
		secret := "sk-leaked-4711-" + gone
		a.Do("put", "key", "doc/1", "payload", document)
		edit("first")
		edit(secret)
		apart("before a "+gone, 1)
		switch gone {
		case "put":
			a.Do(gone, "key", "doc/1", "payload", document)
		case "delete":
			a.Do(gone)
		default:
			a.Do(gone, "key", "doc/1")
		}
		apart("after a "+gone, 0)
		if found := stands(t, dir, secret); (gone == "purge" || gone == "delete") != (found == nil) {
			t.Errorf("after a %s what an edit added stands in %v", gone, found)
		}
	}
}

// TestErasedAfterReader: a reader whose snapshot is older is in the way of that;
// when it is through, or the server is back, the files are rid of the secret.
func TestErasedAfterReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	a := harness.NewAgent(t, s)
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	purged, crashed := false, t.TempDir()
	err := s.ReadState(context.Background(), a.Session, nil, 1<<20, nil, func(p *session.Unscoped[*session.StateChunk]) error {
		if !purged {
			purged = true
			a.Do("purge", "key", "message/a")
			if stands(t, dir, "sk-leaked-4711") == nil {
				t.Error("a reader was not in the way: this test shows nothing")
			}
			if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil || !purged {
		t.Fatal(err)
	}
	gone := func(dir string) func() bool {
		return func() bool { return stands(t, dir, "sk-leaked-4711") == nil }
	}
	until.True(t, "the secret leaves the files", gone(dir))
	// A server that was killed before it came to that does so when it is back.
	if stands(t, crashed, "sk-leaked-4711") == nil {
		t.Error("the copy does not have it: this test shows nothing")
	}
	openIn(t, crashed)
	until.True(t, "after a crash it leaves the files", gone(crashed))
}

// overlapping has someone read and someone commit all the time, so that there is no moment
// without a read that began before the last commit, but where reads are held; until stop.
func overlapping(t *testing.T, s *store.Store, id string) (stop func()) {
	commit := harness.Appender(t, s)
	var all sync.WaitGroup
	var ended atomic.Bool
	commits := make(chan struct{})
	all.Go(func() {
		defer close(commits)
		for !ended.Load() {
			commit()
			select {
			case commits <- struct{}{}:
			default:
			}
		}
	})
	read := func(begun chan<- struct{}, end <-chan struct{}) {
		first := true
		err := s.ReadState(context.Background(), id, nil, 1<<20, nil, func(*session.Unscoped[*session.StateChunk]) error {
			if first {
				first = false
				close(begun)
				<-end
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	var end chan struct{}
	next := func() {
		before, begun := end, make(chan struct{})
		end = make(chan struct{})
		of := end
		all.Go(func() { read(begun, of) })
		select {
		case <-begun:
		case <-time.After(20 * time.Millisecond): // it is held
		}
		if before != nil {
			close(before)
		}
	}
	next()
	all.Go(func() {
		for !ended.Load() {
			for range 2 { // the first may be one that the last read saw
				<-commits
			}
			next()
		}
		close(end)
	})
	return func() {
		ended.Store(true)
		all.Wait()
	}
}

// TestErasedUnderReaders: what was purged leaves the files also where others read and write
// without a pause.
func TestErasedUnderReaders(t *testing.T) {
	t.Parallel()
	dir, b := openWith(t, Config{Readers: 2, truncateInterval: 200 * time.Millisecond})
	s := store.New(b)
	a := harness.NewAgent(t, s)
	defer overlapping(t, s, a.Session)()
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	a.Do("purge", "key", "message/a")
	until.True(t, "the secret leaves the files", func() bool { return stands(t, dir, "sk-leaked-4711") == nil })
}

// TestLogIsCut: so does a log that has become large.
func TestLogIsCut(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	dir, b := openWith(t, Config{Readers: 2, maxWALBytes: most, truncateInterval: 200 * time.Millisecond})
	s := store.New(b)
	a := harness.NewAgent(t, s)
	defer overlapping(t, s, a.Session)()
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, fileName+"-wal"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for range 2 {
		until.True(t, "the log is large", func() bool { return size() > most })
		until.True(t, "the log is cut", func() bool { return size() < most })
	}
}

const (
	truncateNow       = "PRAGMA wal_checkpoint(TRUNCATE)"
	checkpointOnly    = "PRAGMA wal_checkpoint(PASSIVE)"
	autoCheckpointOff = "PRAGMA wal_autocheckpoint(0)"
	autoCheckpointOn  = "PRAGMA wal_autocheckpoint(1000)"
)

// checkpoints is what is said to SQLite about its log.
type checkpoints struct {
	mu      sync.Mutex
	timeout string          // the writing connection waits for so long now
	waited  int             // cuts for which commits could have waited
	seen    map[string]int  // how often it was said
	holding string          // what does not go on
	hold    chan struct{}   // nil, or closed when it may
	held    chan<- struct{} // told each time that it does not
}

// hears is a driver's ear.
func (p *checkpoints) hears(text string) bool {
	p.mu.Lock()
	holding, hold, held := p.holding, p.hold, p.held
	switch {
	case strings.HasPrefix(text, "PRAGMA busy_timeout"):
		p.timeout = text
	case text == truncateNow && p.timeout != "PRAGMA busy_timeout(0)":
		p.waited++
	}
	p.seen[text]++
	p.mu.Unlock()
	if hold != nil && text == holding {
		held <- struct{}{}
		<-hold
	}
	return true
}

func (p *checkpoints) said(text string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[text]
}

func (p *checkpoints) couldWait() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited
}

// holds has a statement stand still, and tells each time, until release.
func (p *checkpoints) holds(text string) (held <-chan struct{}, release func()) {
	hold, tells := make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding, p.hold, p.held = text, hold, tells
	return tells, func() {
		p.mu.Lock()
		p.hold = nil
		p.mu.Unlock()
		close(hold)
	}
}

// watched is an open store of whose checkpoints all is known, and that tries again at once.
func watched(t *testing.T, cfg Config) (dir string, b *backend, s *store.Store, p *checkpoints) {
	t.Helper()
	p = &checkpoints{seen: map[string]int{}}
	cfg.Driver, cfg.truncateInterval = stmtfault.SQLite(t, p.hears).Name(), time.Millisecond
	dir, b = openWith(t, cfg)
	return dir, b, store.New(b), p
}

// otherReads has another program read the database until end.
func otherReads(t *testing.T, dir string) (end func()) {
	t.Helper()
	c, err := openReadOnly(t.Context(), filepath.Join(dir, fileName), false)
	if err == nil {
		err = c.exec(t.Context(), "BEGIN")
	}
	if err == nil {
		err = c.exec(t.Context(), "SELECT count(*) FROM meta")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCommitsWaitForNoRead: while another program reads, or one of the store's own reads does
// not end, purges and commits go on, and none waits for it; when it is over, what was purged
// leaves the files.
func TestCommitsWaitForNoRead(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		t.Run(map[bool]string{false: "another program's", true: "the store's"}[own], func(t *testing.T) {
			t.Parallel()
			dir, b, s, p := watched(t, Config{Readers: 2, maxWALBytes: 256 << 10})
			a := harness.NewAgent(t, s)
			commit := harness.Appender(t, s)
			a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
			read := func(during func()) {
				end := otherReads(t, dir)
				defer end()
				during()
			}
			if own {
				read = func(during func()) {
					err := b.Snapshot(t.Context(), func(r dialect.Runner) error {
						if err := r.(*runner).conn.exec(t.Context(), "SELECT count(*) FROM meta"); err != nil {
							return err
						}
						during()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			}
			read(func() {
				a.Do("purge", "key", "message/a")
				for at := p.said(truncateNow); p.said(truncateNow) < at+10 || p.said(autoCheckpointOff) == 0; {
					commit()
				}
				held, release := p.holds(checkpointOnly)
				<-held
				for range 20 { // while an attempt is under way
					commit()
				}
				release()
				if !b.wal.pending.Load() || stands(t, dir, "sk-leaked-4711") == nil {
					t.Error("nothing is in the way: this test shows nothing")
				}
			})
			until.True(t, "the secret leaves the files", func() bool { return stands(t, dir, "sk-leaked-4711") == nil })
			if n := p.couldWait(); n > 0 {
				t.Errorf("commits could have waited for a read, %d times", n)
			}
		})
	}
}

// TestCutLeavesPatience: commits after a cut wait for another program's lock as those before did.
func TestCutLeavesPatience(t *testing.T) {
	t.Parallel()
	dir, b := openWith(t, Config{truncateInterval: time.Minute})
	commit := harness.Appender(t, store.New(b))
	for _, inTheWay := range []bool{false, true} {
		end := func() {}
		if inTheWay {
			end = otherReads(t, dir)
		}
		commit()
		c := <-b.writeConn
		b.truncateWAL(c)
		var patience int64
		err := c.query(t.Context(), "PRAGMA busy_timeout", nil, func(row dialect.Scanner) error { return row.Scan(&patience) })
		b.writeConn <- c
		end()
		if got := fmt.Sprintf("busy_timeout(%d)", patience); err != nil || got != busyTimeout {
			t.Errorf("a read in the way %t: %s, %v", inTheWay, got, err)
		}
	}
}

// TestReadsWaitForNoOtherProgram: where another program's read alone keeps the log from being
// cut, those of the store's do not wait for each other; once it is over the log is cut.
func TestReadsWaitForNoOtherProgram(t *testing.T) {
	t.Parallel()
	dir, b := openWith(t, Config{Readers: 2, truncateInterval: time.Minute})
	s := store.New(b)
	commit := harness.Appender(t, s)
	until.True(t, "what may have been left is cut", func() bool { return !b.wal.pending.Load() })
	end := otherReads(t, dir)
	commit()
	b.wal.pending.Store(true) // the test's own attempts are the only ones
	at := truncateAttempt{drains: true, stuckAt: -1}
	b.tryTruncate(&conn{}, &at)
	if at.stuckAt < 0 || !b.wal.pending.Load() {
		t.Errorf("of another program's read is known: %+v", at)
	}
	own, err := b.reads.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.reads.end(own)
	commit()
	b.tryTruncate(&conn{}, &at)
	if b.reads.stalled.n > 0 || !b.wal.pending.Load() {
		t.Error("reads have waited")
	}
	end()
	b.tryTruncate(&conn{}, &at)
	if b.wal.pending.Load() {
		t.Error("the log is not cut")
	}
}

// TestLongLogIsWrittenBackBesideCommits: where a read has let the log grow, no commit writes
// all of it back when that is over.
func TestLongLogIsWrittenBackBesideCommits(t *testing.T) {
	t.Parallel()
	dir, b, s, p := watched(t, Config{Readers: 2, maxWALBytes: 256 << 10})
	commit := harness.Appender(t, s)
	end := otherReads(t, dir)
	for deadline := time.Now().Add(time.Minute); p.said(autoCheckpointOff) == 0 && time.Now().Before(deadline); {
		commit()
	}
	if p.said(autoCheckpointOff) == 0 || p.said(autoCheckpointOn) > 0 {
		t.Errorf("commits were told %d times not to write the log back, and %d times to do so", p.said(autoCheckpointOff), p.said(autoCheckpointOn))
	}
	end()
	until.True(t, "the log is cut", func() bool { return p.said(autoCheckpointOn) == 1 })
	if info, err := os.Stat(b.wal.file); err != nil || info.Size() > 0 || p.couldWait() > 0 {
		t.Errorf("the log: %v, %v; commits could have waited %d times", info, err, p.couldWait())
	}
}

// TestCloseWaitsForNoRead: a store whose log cannot be cut closes, and the next one cuts it.
func TestCloseWaitsForNoRead(t *testing.T) {
	t.Parallel()
	dir, b, s, p := watched(t, Config{Readers: 2})
	a := harness.NewAgent(t, s)
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	end := otherReads(t, dir)
	a.Do("purge", "key", "message/a")
	held, release := p.holds(truncateNow)
	<-held // an attempt is under way
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-b.wal.stop
	release()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	tried := p.said(truncateNow)
	if stands(t, dir, "sk-leaked-4711") == nil {
		t.Error("nothing was in the way: this test shows nothing")
	}
	end()
	if p.said(truncateNow) != tried {
		t.Error("it is tried after Close")
	}
	openIn(t, dir)
	until.True(t, "the secret leaves the files", func() bool { return stands(t, dir, "sk-leaked-4711") == nil })
}
