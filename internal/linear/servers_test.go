//go:build linear

package linear

// The server processes: the real binary, any number of them on one database.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// build makes the binary, with build tags if any are named.
func build(t *testing.T, tags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mooring")
	cmd := exec.Command("go", "build", "-o", path, "-tags", strings.Join(tags, ","), "../../cmd/mooring")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return path
}

// servers are processes on one database, and the space ref that the first made.
type servers struct {
	addresses []string
	space     capability.Ref
}

// serve starts n processes on a database ("" is each one's own SQLite) that are
// killed when the test ends. They must not have had a defect of theirs.
func serve(t *testing.T, binary string, n int, database string) servers {
	t.Helper()
	var s servers
	for i := range n {
		data := filepath.Join(t.TempDir(), "server")
		s.addresses = append(s.addresses, start(t, binary, data, database))
		if i > 0 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(data, "owner.ref"))
		if err != nil {
			t.Fatal(err)
		}
		if s.space, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func start(t *testing.T, binary, data, database string) (address string) {
	t.Helper()
	args := []string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", data}
	if database != "" {
		args = append(args, "--database-url", database)
	}
	cmd := exec.Command(binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MOORING_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var said saying
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("kill a server: %v", err)
		}
		_ = cmd.Wait() // it was killed
		if text := said.text(); strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
			t.Errorf("a server said:\n%s", text)
		}
	})
	var banner struct {
		Listening string `json:"listening"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &banner)
	}
	if err != nil || banner.Listening == "" {
		t.Fatalf("a server did not start: %v\n%s", err, said.text())
	}
	return banner.Listening
}

// saying is what a process wrote to its log, the beginning of it.
type saying struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *saying) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.Len() < 1<<20 {
		s.all.Write(b)
	}
	return len(b), nil
}

func (s *saying) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}
