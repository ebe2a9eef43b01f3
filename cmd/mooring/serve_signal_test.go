//go:build unix

// Signals to a server that is a process of its own.

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/selfsigned"
)

// signalled is a server that is sent signals.
type signalled struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    lockbuf.Buffer
	banner struct {
		Listening, Metrics, Database string
		OwnerRef                     string `json:"owner_ref"`
	}
	ended chan struct{}
}

// serveLine is a command line that serves dir.
func serveLine(dir string, args ...string) []string {
	return append([]string{mooringProgram(), "serve", "--json", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--data", dir}, args...)
}

// startSignalled starts a server, whose line serveLine has made.
func startSignalled(t *testing.T, cmd *exec.Cmd) *signalled {
	t.Helper()
	s := &signalled{t: t, cmd: cmd, ended: make(chan struct{})}
	s.cmd.Stderr = &s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it may have ended
		<-s.ended
	})
	first, err := bufio.NewReader(out).ReadBytes('\n')
	go func() {
		_ = s.cmd.Wait() // its code is looked at
		close(s.ended)
	}()
	if err == nil {
		err = json.Unmarshal(first, &s.banner)
	}
	if err != nil {
		t.Fatalf("the server did not start: %v, %s", err, s.log.String())
	}
	return s
}

func (s *signalled) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// code waits for its end.
func (s *signalled) code() int {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(servePatience):
		s.t.Fatalf("the server does not end: %s", s.log.String())
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *signalled) until(label string, cond func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(servePatience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the server never %s: %s", label, s.log.String())
		}
	}
}

// withoutNohup has servers not inherit what the tests may run under.
func withoutNohup(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(hup) })
}

// SIGTERM lets what runs come to its end and be answered, and takes nothing new. The
// end of the terminal does not, under nohup.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, home := filepath.Join(dir, "data"), filepath.Join(dir, "home")
	s := startSignalled(t, exec.Command("sh", append([]string{"-c", `trap "" HUP && exec "$0" "$@"`}, serveLine(data)...)...))
	s.signal(syscall.SIGHUP)
	mooring := func(home, in string, args ...string) result {
		ctx, cancel := context.WithTimeout(context.Background(), 3*servePatience)
		defer cancel()
		var out, errOut lockbuf.Buffer
		code := runContext(ctx, append(args, "--home", home), strings.NewReader(in), &out, &errOut)
		return result{code, out.String(), errOut.String()}
	}
	got := mooring(home, `[{"type":"session","data":{"id":"ses_drained","title":"x"}}]`, "session", "import", "-", "--owner", "@"+s.banner.OwnerRef)
	if got.code != cli.ExitOK {
		t.Fatal(got)
	}
	// The database is kept from the server, so that an append is on its way for as long as it takes.
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, "mooring.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	appended := make(chan result, 1)
	go func() {
		appended <- mooring(home, putLine("under_way"), "session", "append", "ses_drained", "--wait")
	}()
	// The ref is being restored; the stream and the batch wait for that.
	s.until("has the batch", func() bool {
		return strings.Contains(scrape(t, s.banner.Metrics), "\n"+`mooring_vat_objects{table="queued_calls"} 2`+"\n")
	})
	s.signal(syscall.SIGTERM)
	s.until("drains", func() bool { return strings.Contains(s.log.String(), `"msg":"draining"`) })
	if status, answer := ask(t, "GET", "http://"+s.banner.Listening+"/readyz", ""); status == http.StatusOK {
		t.Errorf("it is ready for more: %s", answer)
	}
	late, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(dir, "late")), RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Redeem(t.Context(), mustRef(t, "@"+s.banner.OwnerRef)); !fault.CodeOf(err).Transient() {
		t.Errorf("a new call: %v", err)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-appended:
		t.Errorf("the append ended before it could: %+v", got)
	case <-s.ended:
		t.Error("the server did not wait for the append")
	default:
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if got := <-appended; got.code != cli.ExitOK || !strings.Contains(got.out, "  applied  cursor 3") {
		t.Errorf("the append under way: %+v", got)
	}
	if code := s.code(); code != cli.ExitOK || strings.Count(s.log.String(), `"msg":"draining"`) != 1 {
		t.Errorf("the server ended with %d: %s", code, s.log.String())
	}
}

// A drain's delay goes on serving, those who come now too, while /readyz sends balancers
// elsewhere. A second signal does not wait for it.
func TestDrainDelay(t *testing.T) {
	t.Parallel()
	line := serveLine(t.TempDir(), "--drain-delay", "1h")
	s := startSignalled(t, exec.Command(line[0], line[1:]...))
	before, err := net.Dial("tcp", s.banner.Listening)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	s.signal(syscall.SIGTERM)
	s.until("says that it will drain", func() bool {
		status, answer := ask(t, "GET", "http://"+s.banner.Listening+"/readyz", "")
		return status == http.StatusServiceUnavailable && answer == "draining\n"
	})
	file := filepath.Join(t.TempDir(), "session.json")
	if err := os.WriteFile(file, []byte(`[{"type":"session","data":{"id":"ses_late","title":"x"}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errText := command(t, "session", "import", file, "--owner", "@"+s.banner.OwnerRef, "--home", t.TempDir()); code != cli.ExitOK {
		t.Errorf("a client that comes then: %d %s", code, errText)
	}
	if _, err := before.Write([]byte("GET /healthz HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(before); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.0 200 ") {
		t.Errorf("a connection that was there: %s, %v", answer, err)
	}
	if log := s.log.String(); !strings.Contains(log, "draining soon") || strings.Contains(log, `"msg":"draining"`) {
		t.Errorf("the log says: %s", log)
	}
	s.signal(syscall.SIGTERM)
	s.code()
	if state, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !state.Signaled() {
		t.Errorf("a second signal: %v, %s", s.cmd.ProcessState, s.log.String())
	}
	short := startServe(t, t.TempDir(), "--drain-delay", "1ms")
	if code, log := short.stop(); code != cli.ExitOK || !strings.Contains(log, `"msg":"draining"`) {
		t.Errorf("after its delay: %d %s", code, log)
	}
}

// Where no terminal can end, SIGHUP has the server read its certificate and its limits
// again; SIGTERM drains it as ever.
func TestSIGHUP(t *testing.T) {
	t.Parallel()
	withoutNohup(t)
	dir := t.TempDir()
	cert, key, _ := selfsigned.Write(t, dir)
	limits := filepath.Join(dir, "limits")
	if err := os.WriteFile(limits, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	line := serveLine(t.TempDir(), "--tls-cert", cert, "--tls-key", key, "--limits", limits)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s := startSignalled(t, cmd)
	served := func() []byte {
		c, err := tls.Dial("tcp", s.banner.Listening, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Raw
	}
	if !bytes.Equal(served(), selfsigned.Read(t, cert)) {
		t.Error("it serves another certificate than its file has")
	}
	s.signal(syscall.SIGHUP)
	s.until("looks", func() bool { return strings.Contains(s.log.String(), "the certificate is unchanged") })
	selfsigned.Write(t, dir)
	s.signal(syscall.SIGHUP)
	s.until("serves the new certificate", func() bool { return bytes.Equal(served(), selfsigned.Read(t, cert)) })
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGHUP)
	s.until("complains", func() bool { return strings.Contains(s.log.String(), "the previous one stays") })
	if !bytes.Equal(served(), selfsigned.Read(t, cert)) {
		t.Error("a certificate without its key took away the one that was there")
	}
	// One connection is let in where one may be, and no second one, once that is read.
	secure := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer secure.CloseIdleConnections()
	browser := &http.Client{Transport: secure}
	first, _, err := websocket.Dial(t.Context(), "wss://"+s.banner.Listening+"/rpc", &websocket.DialOptions{HTTPClient: browser})
	if err != nil {
		t.Fatal(err)
	}
	defer first.CloseNow()
	batch := func() int {
		answer, err := browser.Post("https://"+s.banner.Listening+"/rpc", "text/plain", strings.NewReader(`["push",["pipeline",0,["hello"],[{"version":1}]]]`+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if status := batch(); status != http.StatusOK {
		t.Fatalf("a batch is answered %d", status)
	}
	if err := os.WriteFile(limits, []byte("max-connections = 1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.signal(syscall.SIGHUP)
	s.until("takes the limit", func() bool { return batch() == http.StatusServiceUnavailable })
	s.signal(syscall.SIGTERM)
	if code := s.code(); code != cli.ExitOK || strings.Count(s.log.String(), `"msg":"draining"`) != 1 {
		t.Errorf("the server ended with %d: %s", code, s.log.String())
	}
}
