package e2e

// Servers' disks that are full: limits of a process and file systems, as Linux has them.

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// limit is how much a process under a limited file size may write to one file.
const limit = 2 << 20

// limited runs a command with a soft limit on the size of the files it writes,
// which a write runs into as it does into a disk that is full. It works for
// every user, and can be lifted while the command runs.
var limited = []string{"sh", "-c", fmt.Sprintf(`ulimit -S -f %d && exec "$0" "$@"`, limit/512)}

// lift takes the limit of a running process away.
func lift(t *testing.T, pid int) {
	t.Helper()
	wide := syscall.Rlimit{Cur: 1 << 40, Max: ^uint64(0)}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(pid), syscall.RLIMIT_FSIZE, uintptr(unsafe.Pointer(&wide)), 0, 0, 0)
	runtime.KeepAlive(&wide)
	if errno != 0 {
		t.Fatalf("prlimit: %v", errno)
	}
}

func TestServersDiskFull(t *testing.T) {
	t.Parallel()
	srv := newServer(t, serverConfig{Wrap: limited, Args: measured})
	srv.start("")
	diskFull(t, srv, nil, func() { lift(t, srv.current().cmd.Process.Pid) })
}

// noise is text that no database can make smaller.
func noise(bytes int) string {
	raw := make([]byte, bytes*3/4)
	_, _ = rand.Read(raw) // never fails
	return base64.StdEncoding.EncodeToString(raw)
}

// diskFull appends until the server's disk is full, after fill, if that is not nil. The server must say so, stay
// up and go on reading; what was appended waits in the outbox and arrives when
// there is space.
func diskFull(t *testing.T, srv *server, fill, free func()) {
	t.Helper()
	owner := makeSession(t, srv)
	ref := "@" + writeRef(t, owner)
	// A reader that has redeemed its ref already: to redeem one is audited, which takes a row.
	s := view(t, openClient(t), owner)
	mustSnapshot(t, s, 0)
	h := newHome(t)
	const n = 10
	line := func(i int) string {
		return fmt.Sprintf(`{"method":"put","key":"message/m%d","batch":"%d","payload":{"n":%d,"text":"%s"}}`+"\n", i, i, i, noise(400<<10))
	}
	h.feed(line(0), "session", "append", ref, "-", "--wait")
	if fill != nil {
		fill()
	}
	var lines strings.Builder
	for i := range n - 1 {
		lines.WriteString(line(i + 1))
	}
	h.feed(lines.String(), "session", "append", ref, "-")
	eventually(t, "the outbox says that the disk is full", func() bool {
		// Any command sends; this one also shows what the server last said.
		h.try("", "outbox", "drain", "--timeout", "1s")
		return strings.Contains(h.do("outbox", "status"), "disk_full")
	})
	if code, text := srv.get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz with a full disk: %d %s", code, text)
	}
	eventually(t, "/readyz says that the disk is full", func() bool {
		code, text := srv.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "(disk_full): no space left")
	})
	const gauge = `mooring_commits_stopped{cause="disk_full"} `
	if !strings.Contains(metricsOf(t, srv), gauge+"1\n") {
		t.Error("the metric does not say that the disk is full")
	}
	before := mustSnapshot(t, s, 0)
	if len(before.Entries) == 0 || len(before.Entries) == n {
		t.Errorf("%d entries were committed before the disk was full", len(before.Entries))
	}
	// Whoever waits is told for what; one that is not the outbox's sender leaves it to the one that is, and says why.
	file := func(name, text string) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	more := file("more.jsonl", `{"method":"put","key":"message/more","payload":{}}`)
	large := file("large.json", `{"info":{"id":"ses_large"},"messages":[{"info":{"id":"msg_1"},"parts":[{"id":"prt_1","messageID":"msg_1","text":"`+noise(3<<20)+`"}]}]}`)
	waiting := []*process{
		h.follow("session", "append", ref, more, "--wait"),
		h.follow("session", "import", large, "--owner", "@"+filepath.Join(srv.data, "owner.ref")),
	}
	for _, p := range waiting {
		eventually(t, "it says what it waits for", func() bool {
			return regexp.MustCompile(`(waiting: |outbox drain \()disk_full: `).MatchString(p.err.text())
		})
	}
	free()
	for _, p := range waiting {
		if !within(patience, p.done) || p.cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("%v: %v\n%s", p.cmd.Args[1:], p.cmd.ProcessState, p.err.text())
		}
	}
	if got := mustSnapshot(t, s, 0); len(got.Entries) != n+1 {
		t.Errorf("%d entries in the end", len(got.Entries))
	}
	if log := readLog(t, s); len(log) != 1+n+1 {
		t.Errorf("%d events", len(log))
	}
	srv.healthy()
	if !strings.Contains(metricsOf(t, srv), gauge+"0\n") {
		t.Error("the metric says that the disk is full")
	}
	log := srv.current().err.text()
	if n := strings.Count(log, "nothing can be committed"); n == 0 || n != strings.Count(log, "commits succeed again") {
		t.Errorf("the log says %d times that nothing can be committed:\n%s", n, log)
	}
}

// measured are flags for a server that tells its metrics.
var measured = []string{"--metrics-listen", "127.0.0.1:0"}

func metricsOf(t *testing.T, srv *server) string {
	t.Helper()
	var banner struct{ Metrics string }
	if err := json.Unmarshal([]byte(srv.current().out.list()[0]), &banner); err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(banner.Metrics)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
