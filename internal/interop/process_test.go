// Foreign peers as processes: started, spoken to a line at a time, killed.

package interop

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/interop/gocapnp"
)

// gocapnpVar names the variable that makes this test's binary the go-capnp peer; it holds the arguments.
const gocapnpVar = "INTEROP_GOCAPNP"

func TestMain(m *testing.M) {
	if args := os.Getenv(gocapnpVar); args != "" {
		os.Exit(gocapnp.Main(strings.Fields(args)))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		for _, f := range atExit {
			f()
		}
		os.Exit(code)
	}))
}

// atExit is what is left to do when all tests are over.
var atExit []func()

// goCapnp is go-capnp as a process.
func goCapnp(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", gocapnpVar+"="+strings.Join(args, " "))
	return launch(t, cmd)
}

// process is a running peer.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  chan string   // its lines
	done chan struct{} // closed when it has ended and its output is read

	mu  sync.Mutex
	err strings.Builder
}

// launch starts a peer that is killed when the test ends, if it lives then.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: make(chan string, 1000), done: make(chan struct{})}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in = in
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = p
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.out <- s.Text()
		}
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if said := p.said(); t.Failed() && said != "" {
			t.Logf("%s said:\n%s", cmd.Path, said)
		}
	})
	return p
}

// Write takes what the process says to standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

// kill ends the process with SIGKILL and waits for it; one that has ended is left alone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// finish ends the process's input and waits for it to end well.
func (p *process) finish(t *testing.T) {
	t.Helper()
	_ = p.in.Close() // it may have ended
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the peer does not end with its input")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the peer ended with %d:\n%s", code, p.said())
	}
}

// line gives the next line of the process.
func (p *process) line(t *testing.T) string {
	t.Helper()
	select {
	case s := <-p.out:
		return s
	case <-p.done:
		select {
		case s := <-p.out:
			return s
		default:
		}
		t.Fatalf("the peer has ended:\n%s", p.said())
	case <-time.After(2 * patience):
		t.Fatalf("the peer says nothing:\n%s", p.said())
	}
	return ""
}

// expect takes the next line, which must be this.
func (p *process) expect(t *testing.T, want string) {
	t.Helper()
	if got := p.line(t); got != want {
		t.Fatalf("the peer says %q, want %q", got, want)
	}
}

// address takes the line by which a server says where it listens.
func (p *process) address(t *testing.T) string {
	t.Helper()
	line := p.line(t)
	address, ok := strings.CutPrefix(line, "listening ")
	if !ok {
		t.Fatalf("the peer says %q, want where it listens", line)
	}
	return address
}

// tell writes a line to the process.
func (p *process) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		t.Fatalf("the peer does not listen: %v\n%s", err, p.said())
	}
}
