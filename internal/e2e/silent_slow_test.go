//go:build crash

package e2e

// Five thousand readers who take nothing, on the real process.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/slowreader"
)

// silence is a server, a public share of opencode's and a session, both of which are written to.
type silence struct {
	*server
	t       *testing.T
	metrics string
	share   struct{ ID, Secret string }
	w       *writer
}

func newSilence(t *testing.T) *silence {
	path := filepath.Join(t.TempDir(), "mooring") // the race detector takes memory of its own
	cmd := exec.Command("go", "build", "-o", path, "../../cmd/mooring")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := &silence{t: t, server: startServer(t, serverConfig{Path: path, Wrap: []string{"env", "GOGC=10"}, Args: []string{"--metrics-listen", "127.0.0.1:0", "--max-connections-per-address", "10000"}})}
	var banner struct{ Metrics string }
	if err := json.Unmarshal([]byte(s.current().out.list()[0]), &banner); err != nil || banner.Metrics == "" {
		t.Fatalf("%v: %s", err, s.current().out.text())
	}
	s.metrics = banner.Metrics
	s.w = newWriter(t, makeSession(t, s.server), s.owner())
	h, creator := newHome(t), filepath.Join(t.TempDir(), "creator.ref")
	h.do("share", "@"+filepath.Join(s.data, "owner.ref"), "--rights", "create", "--to", creator)
	link := strings.TrimSpace(h.do("link", "@"+creator, "--opencode"))
	s.post("/t/"+link[strings.LastIndex(link, "/")+1:]+"/api/share", map[string]any{"sessionID": "ses_silent"}, &s.share)
	return s
}

func (s *silence) post(path string, body, answer any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.Post("http://"+s.address()+path, "application/json", bytes.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	said, err := io.ReadAll(res.Body)
	if err == nil && answer != nil {
		err = json.Unmarshal(said, answer)
	}
	if res.StatusCode != http.StatusOK || err != nil {
		s.t.Fatalf("POST %s: %d %s %v", path, res.StatusCode, said, err)
	}
}

// write writes one event to both.
func (s *silence) write(n int, text string) {
	s.t.Helper()
	s.post("/api/share/"+s.share.ID+"/sync", map[string]any{"secret": s.share.Secret, "data": []any{map[string]any{"type": "part",
		"data": map[string]any{"id": fmt.Sprintf("prt_%04d", n), "messageID": "msg_1", "sessionID": "ses_silent", "type": "text", "n": n, "text": text}}}}, nil)
	s.w.must(put("message/m", map[string]any{"n": n, "text": text}))
}

// held is what the process has on its heap, garbage as well, and in stacks.
func (s *silence) held() (heap, stacks float64) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get(s.metrics)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	heap, stacks = math.NaN(), math.NaN()
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "go_memstats_heap_alloc_bytes %g", &heap)
		_, _ = fmt.Sscanf(lines.Text(), "go_memstats_stack_inuse_bytes %g", &stacks)
	}
	return heap, stacks
}

// allowed is how long a patient reader may take nothing; on a slow machine it is over before anybody has read.
const allowed = 30 * time.Second

// Each of 5,000 readers who take nothing costs a few KB: all that the process has on its heap is counted, with connections,
// requests, buffers and garbage. Some of them read then, and have missed nothing; who was silent for longer than it may is cut
// off, and reads all of it on another connection, where that has it.
func TestFiveThousandSilentReaders(t *testing.T) {
	const total, some, events, size, bound = 5000, 8, 15, 32 << 10, 48 << 10
	s := newSilence(t)
	text := strings.Repeat("x", size)
	target := slowreader.Target{Host: s.address(), Share: s.share.ID, Session: s.w.ref.Target(), Bearer: s.w.ref.ID + "#" + s.w.ref.Secret.RevealText()}
	before, _ := s.held()
	began := time.Now() // who is open takes nothing from then on
	readers := make([]*slowreader.Reader, total)
	var opening sync.WaitGroup
	for i := range 8 {
		opening.Go(func() {
			for j := i; j < total; j += 8 {
				r, err := target.Open(t.Context(), slowreader.Endpoints[j%len(slowreader.Endpoints)])
				if err != nil {
					t.Errorf("reader %d: %v", j, err)
					return
				}
				readers[j] = r
			}
		})
	}
	opening.Wait()
	defer func() {
		for _, r := range readers {
			if r != nil {
				r.Close()
			}
		}
	}()
	if t.Failed() {
		return
	}
	idle, _ := s.held()
	for n := range events {
		s.write(n+1, text)
	}
	var reading sync.WaitGroup
	for _, r := range readers[:some] {
		if r.Endpoint.LongTimeout {
			reading.Go(func() {
				ctx := bounded(t)
				defer func() { r.Close() }()
				for err := r.Read(ctx, 1, events); err != nil; err = r.Read(ctx, 1, events) {
					if time.Since(began) < allowed || errors.Is(err, slowreader.ErrMissed) || ctx.Err() != nil {
						t.Error(err)
						return
					}
					if !r.Endpoint.Replays {
						return // there is nothing to come back to
					}
					r.Close()
					again, err := target.Open(ctx, r.Endpoint)
					if err != nil {
						t.Error(err)
						return
					}
					r = again
				}
			})
		}
	}
	least, stacks := math.Inf(1), 0.0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end) && (least-before)/total > bound; time.Sleep(100 * time.Millisecond) {
		if heap, st := s.held(); heap < least {
			least, stacks = heap, st
		}
	}
	t.Logf("each of %d readers takes %.1f KiB of heap, %.1f while there is nothing, and %.1f of stacks", total, (least-before)/total/1024, (idle-before)/total/1024, stacks/total/1024)
	if (least-before)/total > bound {
		t.Errorf("each of %d readers who take nothing takes %.1f KiB of heap", total, (least-before)/total/1024)
	}
	reading.Wait()
}
