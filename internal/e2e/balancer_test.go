//go:build nginx

package e2e

// Servers behind nginx and HAProxy, set up as docs/operating.md says: one that is killed, or drains, makes no request fail. make
// e2e runs this: it needs both.

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// balancer is a proxy in front of servers.
type balancer struct {
	dir  string
	port int
	path string // below which it has them
	cert string // its own, for 127.0.0.1
	web  *http.Client
}

// freePort is one of this machine's that nobody listens at. It is below those that connections get for themselves: a
// connection would keep a server that was killed from coming back to its port.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000)))
		if err != nil {
			continue
		}
		defer ln.Close()
		return ln.Addr().(*net.TCPAddr).Port
	}
	t.Fatal("no port is free")
	return 0
}

func newBalancer(t *testing.T, path string) *balancer {
	n := &balancer{dir: t.TempDir(), port: freePort(t), path: path}
	lent := httptest.NewUnstartedServer(nil)
	lent.EnableHTTP2 = true
	lent.StartTLS()
	lent.Close()
	pair := lent.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	n.web, n.cert = lent.Client(), filepath.Join(n.dir, "cert.pem")
	t.Cleanup(n.web.CloseIdleConnections)
	chainPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	n.write(t, "cert.pem", chainPEM)
	n.write(t, "key.pem", keyPEM)
	n.write(t, "both.pem", append(chainPEM, keyPEM...))
	return n
}

func (n *balancer) write(t *testing.T, name string, data []byte) {
	if err := os.WriteFile(filepath.Join(n.dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *balancer) address() string { return fmt.Sprintf("127.0.0.1:%d%s", n.port, n.path) }

// settings are the document's of a language, changed for this machine.
func (n *balancer) settings(t *testing.T, language string, nth int, changes [][2]string) string {
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(text), "```"+language+"\n")
	if len(blocks) < nth+2 {
		t.Fatalf("the document has %d settings for %s", len(blocks)-1, language)
	}
	settings, _, _ := strings.Cut(blocks[nth+1], "```")
	for _, c := range changes {
		if !strings.Contains(settings, c[0]) {
			t.Fatalf("the document's settings have no %s", c[0])
		}
		settings = strings.ReplaceAll(settings, c[0], c[1])
	}
	return settings
}

// answers waits until it does.
func (n *balancer) answers(t *testing.T, p *process) {
	if !until(t.Context(), patience, func() bool { code, _ := n.ask(t, "GET", "/healthz", "", nil); return code == http.StatusOK }) {
		t.Fatalf("it does not answer:\n%s", p.err.text())
	}
}

// startHAProxy runs HAProxy with the document's settings, but for addresses and files.
func (n *balancer) startHAProxy(t *testing.T, targets ...string) *process {
	n.write(t, "haproxy.cfg", []byte(n.settings(t, "haproxy", 0, [][2]string{
		{":443 ssl", fmt.Sprintf("127.0.0.1:%d ssl", n.port)}, {"/etc/ssl/mooring.example.both.pem", filepath.Join(n.dir, "both.pem")},
		{"10.0.0.1:7600", targets[0]}, {"10.0.0.2:7600", targets[1]},
	})))
	p, err := launch(exec.Command("haproxy", "-db", "-f", filepath.Join(n.dir, "haproxy.cfg")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	n.answers(t, p)
	return p
}

// ask sends a request with a ref as its token; the code is 0 if nobody answers.
func (n *balancer) ask(t *testing.T, method, path, token string, body []byte) (code int, text string) {
	r, err := http.NewRequestWithContext(bounded(t), method, "https://"+n.address()+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	w, err := n.web.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer w.Body.Close()
	got, err := io.ReadAll(w.Body)
	if err != nil {
		t.Error(err)
	}
	if w.ProtoMajor != 2 {
		t.Errorf("%s speaks %s", path, w.Proto)
	}
	return w.StatusCode, string(got)
}

// events follows a session by server-sent events and gives its lines of data.
func (n *balancer) events(t *testing.T, session, token string) <-chan string {
	r, err := http.NewRequestWithContext(bounded(t), "GET", "https://"+n.address()+"/api/v1/sessions/"+session+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "text/event-stream")
	w, err := n.web.Do(r)
	if err != nil || w.StatusCode != http.StatusOK {
		t.Fatalf("events: %v %v", w, err)
	}
	data := make(chan string, 1000)
	go func() {
		defer close(data)
		defer w.Body.Close()
		lines := bufio.NewScanner(w.Body)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
				data <- text
			}
		}
	}()
	return data
}

// httpWriter appends over HTTP, a batch a request, and tries none again.
type httpWriter struct {
	t       *testing.T
	to      *balancer
	id, ref string
	secret  string
	seq     int
}

// writes sends n batches.
func (w *httpWriter) writes(when string, n int) {
	w.t.Helper()
	for range n {
		w.seq++
		body := fmt.Sprintf(`{"outbox":"balanced","secret":"%s","incarnation":1,"batch_id":"01M7XHZXQMGNPZVGCRHG%06d","ops":[{"op_id":"01M7XHZXQMGNPZVGCRHH%06d",`+
			`"seq":%d,"method":"put","args":{"key":"message/m%d","payload":{"n":%[3]d}}}]}`, w.secret, w.seq, w.seq, w.seq, w.seq%7)
		if code, said := w.to.ask(w.t, "POST", "/api/v1/sessions/"+w.id+"/batches", w.ref, []byte(body)); code != http.StatusOK || !strings.Contains(said, "applied") {
			w.t.Errorf("%s, batch %d: %d %.300s", when, w.seq, code, said)
		}
	}
}

func TestBalancedReplicas(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		start func(*balancer, *testing.T, ...string) *process
		asks  bool // for /readyz
	}{
		"nginx":   {"/agents", (*balancer).startNginx, false},
		"HAProxy": {"", (*balancer).startHAProxy, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, database := newBalancer(t, c.path), pgtest.URL(t)
			var pair []*server
			for range 2 { // on ports that stay theirs: a proxy of the test's own would take connections that nobody is there for
				pair = append(pair, startServer(t, serverConfig{URL: database, Args: []string{"--listen", fmt.Sprintf("127.0.0.1:%d", freePort(t)),
					"--advertise", "moorings://" + n.address(), "--drain-delay", "1h"}}))
			}
			running := c.start(n, t, pair[0].address(), pair[1].address())
			sees := func(words string) {
				t.Helper()
				if !c.asks {
					return
				}
				if _, ok := running.err.await(running.done, func(l string) bool { return strings.Contains(l, words) }); !ok {
					t.Fatalf("it never says %s:\n%s", words, running.err.text())
				}
			}
			owner, reader := newHome(t), newHome(t)
			owner.env, reader.env = []string{"MOORING_TLS_CA=" + n.cert}, []string{"MOORING_TLS_CA=" + n.cert}
			id := strings.TrimSpace(owner.feed(`[{"type":"session","data":{"id":"ses_balanced","title":"x"}}]`, "session", "import", "-", "--owner", "@"+filepath.Join(pair[0].data, "owner.ref")))
			ref := strings.TrimSpace(owner.do("share", id, "--rights", "read,append"))
			tail := reader.follow("session", "tail", ref, "--follow", "--json")
			w := &httpWriter{t: t, to: n, id: id, ref: ref, secret: capability.NewSecret().RevealText()}
			w.writes("with both", 10)

			pair[0].kill()
			w.writes("with the first killed", 20)
			sees("Server mooring/a is DOWN")
			pair[0].start("")
			pair[0].healthy()
			sees("Server mooring/a is UP")
			pair[1].kill() // what the first one's end has left behind does not count now
			w.writes("with the second killed", 20)
			sees("Server mooring/b is DOWN")
			pair[1].start("")
			pair[1].healthy()
			sees("Server mooring/b is UP")
			owner.feed(`{"method":"put","key":"message/cli","payload":{"n":1}}`+"\n", "session", "append", id, "--wait")

			if c.asks {
				if err := pair[0].current().cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
				w.writes("while the first is to drain", 10)
				sees("Server mooring/a is DOWN, reason: Layer7 wrong status, code: 503")
				pair[0].kill()
				w.writes("with the first drained", 10)
			}
			last := fmt.Sprintf(`{"cursor":%d,`, w.seq+4)
			if _, ok := tail.out.await(tail.done, func(l string) bool { return strings.HasPrefix(l, last) }); !ok {
				t.Fatalf("the tail does not come to %s:\n%s%s", last, tail.out.text(), tail.err.text())
			}
			gapless(t, "tail", tailedLines(t, tail.out.list()), 0, uint64(w.seq+4))
		})
	}
}
