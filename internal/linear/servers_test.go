//go:build linear

package linear

// The server processes: the real binary, any number of them on one database.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/gobuild"
)

// build makes the binary, with build tags if any are named.
func build(t *testing.T, tags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mooring")
	if err := gobuild.Program(path, "cmd/mooring", "-tags", strings.Join(tags, ",")); err != nil {
		t.Fatal(err)
	}
	return path
}

// servers are processes on one database, and the space ref that the first made.
type servers struct {
	addresses []string
	space     capability.Ref
	processes []*process
}

// process is one server, which may be killed and started again.
type process struct {
	binary, data, database string
	cmd                    *exec.Cmd
	said                   saying
}

// serve starts n processes on a database ("" is each one's own SQLite) that are
// killed when the test ends. They must not have had a defect of theirs.
func serve(t *testing.T, binary string, n int, database string) servers {
	t.Helper()
	var s servers
	for i := range n {
		p := &process{binary: binary, data: filepath.Join(t.TempDir(), "server"), database: database}
		t.Cleanup(func() {
			p.kill()
			if text := p.said.text(); strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
				t.Errorf("a server said:\n%s", text)
			}
		})
		address, err := p.start("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addresses, s.processes = append(s.addresses, address), append(s.processes, p)
		if i > 0 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(p.data, "owner.ref"))
		if err != nil {
			t.Fatal(err)
		}
		if s.space, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// start starts the process and gives the address it listens on.
func (p *process) start(listen string) (address string, err error) {
	args := []string{"serve", "--json", "--listen", listen, "--data", p.data}
	if p.database != "" {
		args = append(args, "--database-url", p.database)
	}
	p.cmd = exec.Command(p.binary, args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MOORING_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Stderr = &p.said
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	var banner struct {
		Listening string `json:"listening"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &banner)
	}
	if err != nil || banner.Listening == "" {
		p.kill()
		return "", fmt.Errorf("a server did not start: %w\n%s", err, p.said.text())
	}
	return banner.Listening, nil
}

// kill ends the process with SIGKILL; one that has ended already is left alone.
func (p *process) kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may be over
	_ = p.cmd.Wait()         // it was killed: that is its error
}

// reap kills one of the processes after the other, and starts it again at its
// address, until ctx ends. How many there were is its result.
func (s servers) reap(ctx context.Context) (killed int, err error) {
	for {
		pause(ctx, time.Duration(500+rand.IntN(1000))*time.Millisecond)
		if ctx.Err() != nil {
			return killed, nil
		}
		i := rand.IntN(len(s.processes))
		s.processes[i].kill()
		killed++
		if _, err := s.processes[i].start(s.addresses[i]); err != nil {
			return killed, err
		}
	}
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
