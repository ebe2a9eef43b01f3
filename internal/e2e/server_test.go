package e2e

// A server's process: started, killed, started again on another port behind the
// proxy that its refs name.

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// patience is how long anything may take that happens by itself.
const patience = 60 * time.Second

// database says what a server keeps its rows in.
type database struct {
	name string
	url  func(t testing.TB) string // "" for SQLite in the data folder
}

var (
	onSQLite   = database{"sqlite", func(testing.TB) string { return "" }}
	onPostgres = database{"postgres", teststore.PostgresURL}
)

// onBoth runs a test on both databases, in parallel.
func onBoth(t *testing.T, test func(t *testing.T, db database)) {
	t.Helper()
	t.Parallel()
	for _, db := range []database{onSQLite, onPostgres} {
		t.Run(db.name, func(t *testing.T) {
			t.Parallel()
			test(t, db)
		})
	}
}

// serverConfig says how a server is started.
type serverConfig struct {
	URL  string   // of its Postgres; "" for SQLite
	Data string   // its data folder; "" makes one
	Args []string // further flags
	Path string   // of the binary, if it is another
	Wrap []string // a command that runs the server's command line, its last arguments
}

// server is one serving process and its successors, with a proxy before it.
type server struct {
	t     testing.TB
	cfg   serverConfig
	data  string
	proxy *faultproxy.Proxy
	hosts []string // that its refs name: the proxy's address, unless changed before the first start

	mu   sync.Mutex
	addr string     // the present process's own
	run  *process   // nil before the first start
	all  []*process // the present one and those before
}

// process is one started command whose output is read to its end.
type process struct {
	cmd  *exec.Cmd
	out  lines
	err  lines
	done chan struct{} // closed when it has ended and its output is read
}

// startServer starts a server that is killed when the test ends.
func startServer(t testing.TB, cfg serverConfig) *server {
	t.Helper()
	s := newServer(t, cfg)
	s.start("")
	return s
}

// newServer prepares a server without starting it.
func newServer(t testing.TB, cfg serverConfig) *server {
	t.Helper()
	proxy, err := faultproxy.Listen("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, cfg: cfg, data: cfg.Data, proxy: proxy, hosts: []string{proxy.Addr()}}
	if s.data == "" {
		s.data = filepath.Join(t.TempDir(), "server")
	}
	t.Cleanup(func() {
		s.kill()
		if err := proxy.Close(); err != nil {
			t.Errorf("close proxy: %v", err)
		}
		for _, p := range s.all {
			p.checkDefects(t)
		}
	})
	return s
}

// start starts the process, armed with a crash point if one is named, and waits
// until it listens.
func (s *server) start(point string) {
	s.t.Helper()
	if err := s.tryStart(point); err != nil {
		s.t.Fatal(err)
	}
}

// tryStart is start for a process that may not come up. Safe from any goroutine.
func (s *server) tryStart(point string) error {
	args := []string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", s.data, "--advertise", "mooring://" + strings.Join(s.hosts, ",")}
	if s.cfg.URL != "" {
		args = append(args, "--database-url", s.cfg.URL)
	}
	line := slices.Concat(s.cfg.Wrap, []string{cmp.Or(s.cfg.Path, mooring)}, args, s.cfg.Args)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = environment(point)
	p, err := launch(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.run, s.all = p, append(s.all, p)
	s.mu.Unlock()
	var banner struct {
		Listening string `json:"listening"`
	}
	_, ok := p.out.await(p.done, func(l string) bool {
		return json.Unmarshal([]byte(l), &banner) == nil && banner.Listening != ""
	})
	if !ok {
		p.kill()
		return fmt.Errorf("the server did not start:\n%s%s", p.out.text(), p.err.text())
	}
	s.mu.Lock()
	s.addr = banner.Listening
	s.mu.Unlock()
	s.proxy.SetTarget(banner.Listening)
	return nil
}

func (s *server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// address is where the present process listens, without the proxy.
func (s *server) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// kill ends the process with SIGKILL; one that has ended already is left alone.
func (s *server) kill() {
	if p := s.current(); p != nil {
		p.kill()
	}
}

// restart kills the process and starts another on the same data.
func (s *server) restart() {
	s.t.Helper()
	s.kill()
	s.start("")
}

// owner is the owner's ref as the first start wrote it.
func (s *server) owner() capability.Ref {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data, "owner.ref"))
	if err != nil {
		s.t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	return ref
}

// healthy fails the test unless the process runs and comes to say that it is well.
func (s *server) healthy() {
	s.t.Helper()
	if code, text := s.get("/healthz"); code != http.StatusOK {
		s.t.Errorf("GET /healthz: %d %s", code, text)
	}
	eventually(s.t, "/readyz", func() bool { // it looks once a second whether what was wrong is over
		code, _ := s.get("/readyz")
		return code == http.StatusOK
	})
}

// get asks the process itself, without the proxy; the code is 0 if it does not answer.
func (s *server) get(path string) (code int, text string) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + s.address() + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	return r.StatusCode, string(body)
}

// environment is this process's, without what would change the child's behaviour.
func environment(point string) []string {
	env := []string{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MOORING_") {
			env = append(env, v)
		}
	}
	if point != "" {
		env = append(env, crashpoint.Env+"="+point)
	}
	return env
}

// launch starts cmd and reads its output.
func launch(cmd *exec.Cmd) (*process, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errOut, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.out.init()
	p.err.init()
	var reading sync.WaitGroup
	reading.Go(func() { p.out.read(out) })
	reading.Go(func() { p.err.read(errOut) })
	go func() {
		reading.Wait()
		_ = cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	return p, nil
}

// kill ends the process and waits for it.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic("e2e: kill a child: " + err.Error())
	}
	<-p.done
}

// checkDefects fails the test if the process complained about itself.
func (p *process) checkDefects(t testing.TB) {
	t.Helper()
	if said := p.err.text(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic") || strings.Contains(said, "goroutine ") {
		t.Errorf("%s said:\n%s", p.cmd.Path, said)
	}
}

// killed says whether the process ended by SIGKILL.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// lines is a process's output, a line at a time.
type lines struct {
	mu   sync.Mutex
	all  []string
	more chan struct{} // closed and replaced with every line
}

func (l *lines) init() { l.more = make(chan struct{}) }

func (l *lines) read(r io.Reader) {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 64<<20)
	for scan.Scan() {
		l.mu.Lock()
		l.all = append(l.all, scan.Text())
		close(l.more)
		l.more = make(chan struct{})
		l.mu.Unlock()
	}
}

// list gives what has been printed so far.
func (l *lines) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

func (l *lines) text() string {
	if all := l.list(); len(all) > 0 {
		return strings.Join(all, "\n") + "\n"
	}
	return ""
}

// await gives the first line that fits, or false when the process has ended or
// patience is over without one.
func (l *lines) await(done <-chan struct{}, fits func(string) bool) (string, bool) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for seen, last := 0, false; ; {
		l.mu.Lock()
		news, more := l.all[seen:], l.more
		l.mu.Unlock()
		for _, line := range news {
			if fits(line) {
				return line, true
			}
		}
		seen += len(news)
		if last {
			return "", false
		}
		select {
		case <-more:
		case <-done:
			last = true
		case <-deadline.C:
			return "", false
		}
	}
}

// within says whether a channel is closed in time.
func within(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// eventually polls until cond holds, for states that have no signal of their own.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
