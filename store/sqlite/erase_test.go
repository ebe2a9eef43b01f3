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
	"testing"

	"github.com/mooring-rpc/mooring/session"
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
	if found := stands(t, dir, "sk-leaked-4711"); found != nil {
		t.Errorf("the secret stands in %v", found)
	}
	// A server that was killed before it came to that does so when it is back.
	if stands(t, crashed, "sk-leaked-4711") == nil {
		t.Error("the copy does not have it: this test shows nothing")
	}
	again := openIn(t, crashed)
	if _, err := again.Look(context.Background(), a.Session, nil); err != nil {
		t.Fatal(err)
	}
	if found := stands(t, crashed, "sk-leaked-4711"); found != nil {
		t.Errorf("after a crash the secret stands in %v", found)
	}
}
