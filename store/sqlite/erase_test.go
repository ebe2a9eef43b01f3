package sqlite

import (
	"bytes"
	"context"
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

	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/session"
	"github.com/mooring-rpc/mooring/store"
	"github.com/mooring-rpc/mooring/store/storetest"
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
				a := storetest.NewAgent(t, s)
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

// TestErasedAfterReader: a reader whose snapshot is older is in the way of that;
// when it is through, or the server is back, the files are rid of the secret.
func TestErasedAfterReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openIn(t, dir)
	a := storetest.NewAgent(t, s)
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	purged, crashed := false, t.TempDir()
	err := s.ReadState(context.Background(), a.Session, nil, 1<<20, func(p *session.StatePiece) error {
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
// without a read that began before the last commit, but where commits wait; until stop.
func overlapping(t *testing.T, s *store.Store, id string) (stop func()) {
	commit := storetest.Appender(t, s)
	var all sync.WaitGroup
	var ended atomic.Bool
	commits := make(chan struct{})
	all.Go(func() {
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
		err := s.ReadState(context.Background(), id, nil, 1<<20, func(*session.StatePiece) error {
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
		<-begun
		if before != nil {
			close(before)
		}
	}
	next()
	all.Go(func() {
		for !ended.Load() {
			for range 2 { // the first may be one that the last read saw
				select {
				case <-commits:
				case <-time.After(50 * time.Millisecond): // commits wait
				}
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
	dir := t.TempDir()
	s := openIn(t, dir)
	a := storetest.NewAgent(t, s)
	defer overlapping(t, s, a.Session)()
	a.Do("put", "key", "message/a", "payload", json.RawMessage(`{"text":"sk-leaked-4711"}`))
	a.Do("purge", "key", "message/a")
	until.True(t, "the secret leaves the files", func() bool { return stands(t, dir, "sk-leaked-4711") == nil })
}

// TestLogIsCut: so does a log that has become large.
func TestLogIsCut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 1 << 20
	s, err := Open(t.Context(), Config{Dir: dir, logMost: most, erasePause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	a := storetest.NewAgent(t, s)
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
