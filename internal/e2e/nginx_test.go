//go:build nginx

package e2e

// The server behind nginx, set up as docs/operating.md says. make e2e runs this: it needs nginx.

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// nginx is one in front of a server.
type nginx struct {
	dir  string
	port int
	cert string // its own, for 127.0.0.1
	web  *http.Client
}

func newNginx(t *testing.T) *nginx {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nginx{dir: t.TempDir(), port: ln.Addr().(*net.TCPAddr).Port}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
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
	n.write(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
	n.write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	return n
}

func (n *nginx) write(t *testing.T, name string, data []byte) {
	if err := os.WriteFile(filepath.Join(n.dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n *nginx) address() string { return fmt.Sprintf("127.0.0.1:%d/agents", n.port) }

// start runs it with the document's settings, but for addresses and files.
func (n *nginx) start(t *testing.T, target string) *process {
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```nginx\n")
	settings, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the document has no settings of nginx")
	}
	for _, c := range [][2]string{
		{"listen 443 ssl http2;", fmt.Sprintf("listen 127.0.0.1:%d ssl http2;", n.port)}, {"server_name mooring.example", "server_name 127.0.0.1"},
		{"/etc/ssl/mooring.example.pem", n.cert}, {"/etc/ssl/mooring.example.key", filepath.Join(n.dir, "key.pem")}, {"127.0.0.1:7600", target},
		{"/var/log/nginx/", n.dir + "/"},
	} {
		if !strings.Contains(settings, c[0]) {
			t.Fatalf("the document's settings have no %s", c[0])
		}
		settings = strings.ReplaceAll(settings, c[0], c[1])
	}
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // who else could read the test's folder
	}
	n.write(t, "nginx.conf", []byte(user+"daemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"+
		"client_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n"+settings+"}\n"))
	p, err := launch(exec.Command("nginx", "-p", n.dir, "-e", "stderr", "-c", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t, p) })
	if !until(t.Context(), patience, func() bool { code, _ := n.ask(t, "GET", "/healthz", "", nil); return code == http.StatusOK }) {
		t.Fatalf("nginx does not answer:\n%s", p.err.text())
	}
	return p
}

// stop ends it and its workers at once, and with them all connections.
func (n *nginx) stop(t *testing.T, p *process) {
	select {
	case <-p.done:
		return
	default:
	}
	if out, err := exec.Command("nginx", "-p", n.dir, "-e", "stderr", "-c", "nginx.conf", "-s", "stop").CombinedOutput(); err != nil {
		t.Errorf("nginx -s stop: %v\n%s", err, out)
		p.kill()
	}
	<-p.done
}

// ask sends a request with a ref as its token; the code is 0 if nobody answers.
func (n *nginx) ask(t *testing.T, method, path, token string, body []byte) (code int, text string) {
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
func (n *nginx) events(t *testing.T, session, token string) <-chan string {
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

func TestNginx(t *testing.T) {
	n := newNginx(t)
	srv := startServer(t, serverConfig{Args: []string{"--advertise", "moorings://" + n.address()}})
	running := n.start(t, srv.address())
	owner, reader := newHome(t), newHome(t)
	owner.env, reader.env = []string{"MOORING_TLS_CA=" + n.cert}, []string{"MOORING_TLS_CA=" + n.cert}

	// The command line, over a WebSocket with TLS and a prefix.
	id := strings.TrimSpace(owner.do("session", "import", "../../testdata/opencode/b-long-1.18.33.jsonl", "--owner", "@"+filepath.Join(srv.data, "owner.ref")))
	ref := filepath.Join(t.TempDir(), "reader.ref")
	owner.do("share", id, "--rights", "read", "--to", ref)
	tail := reader.follow("session", "tail", "@"+ref, "--follow", "--json")
	seen := func(cursor int) {
		t.Helper()
		if _, ok := tail.out.await(tail.done, func(l string) bool { return strings.HasPrefix(l, fmt.Sprintf(`{"cursor":%d,`, cursor)) }); !ok {
			t.Fatalf("event %d is not seen:\n%s%s", cursor, tail.out.text(), tail.err.text())
		}
	}
	seen(238) // the share itself
	large := fmt.Sprintf(`{"method":"put","key":"message/large","payload":{"text":"%s"}}`, strings.Repeat("x", 3<<20))
	owner.feed(large+"\n", "session", "append", id, "--wait")
	seen(239)

	// HTTP: a request larger than nginx lets through by itself, and events as they come.
	text, err := os.ReadFile(ref)
	if err != nil {
		t.Fatal(err)
	}
	full := strings.TrimSpace(owner.do("share", id, "--rights", "read,append"))
	if !strings.HasPrefix(full, "moorings://"+n.address()+"/") {
		t.Fatalf("a ref is at %s", strings.SplitN(full, "#", 2)[0])
	}
	data := n.events(t, id, strings.TrimSpace(string(text)))
	batch := fmt.Sprintf(`{"outbox":"nginx","secret":"%s","incarnation":1,"batch_id":"01M7XHZXQMGNPZVGCRHFRZXZNV","ops":[{"op_id":"01M7XHZXQMGNPZVGCRHFRZXZNW",`+
		`"seq":1,"method":"put","args":{"key":"message/http","payload":{"text":"%s"}}}]}`, capability.NewSecret().RevealText(), strings.Repeat("y", 3<<20))
	if code, said := n.ask(t, "POST", "/api/v1/sessions/"+id+"/batches", full, []byte(batch)); code != http.StatusOK || !strings.Contains(said, "applied") {
		t.Fatalf("a batch by HTTP: %d %.300s", code, said)
	}
	seen(241)
	var last string
	for last = range data {
		if strings.Contains(last, `"cursor":241,`) {
			break
		}
	}
	if !strings.Contains(last, `"cursor":241,`) {
		t.Errorf("events end with %.300s", last)
	}

	n.keepsSecrets(t, srv, owner, full)

	// nginx goes, with every connection, and comes back.
	n.stop(t, running)
	owner.feed(`{"method":"put","key":"message/a","payload":{"n":1}}`+"\n", "session", "append", id)
	n.start(t, srv.address())
	owner.do("outbox", "drain")
	seen(242)
	owner.do("revoke", "@"+ref)
	if <-tail.done; tail.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(tail.err.text(), "revoked") {
		t.Errorf("the tail ends with %d\n%s", tail.cmd.ProcessState.ExitCode(), tail.err.text())
	}
	gapless(t, "tail", tailedLines(t, tail.out.list()), 0, 242)
}

// keepsSecrets has opencode share by way of a create ref, whose secret stands in the path, and looks for it, and for what else
// opens something, in nginx's logs: while the server is there, and while it is not.
func (n *nginx) keepsSecrets(t *testing.T, srv *server, owner *home, reader string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "creator.ref")
	owner.do("share", "@"+filepath.Join(srv.data, "owner.ref"), "--rights", "create", "--to", file)
	creator := strings.TrimPrefix(strings.TrimSpace(owner.do("link", "@"+file, "--opencode")), "https://"+n.address())
	code, said := n.ask(t, "POST", creator+"/api/share", "", []byte(`{"sessionID":"ses_logged"}`))
	var share struct{ ID string }
	if err := json.Unmarshal([]byte(said), &share); code != http.StatusOK || err != nil || share.ID == "" {
		t.Fatalf("a create by its ref: %d %s", code, said)
	}
	page := "/s/" + strings.TrimPrefix(strings.SplitN(reader, "#", 2)[0], "moorings://"+n.address()+"/")
	for _, path := range []string{"/share/" + share.ID, "/share/" + share.ID + "/block?key=session", page, "/T/" + creator, "/%74" + creator[2:]} {
		n.ask(t, "GET", path, "", nil)
	}
	srv.kill()
	if code, _ := n.ask(t, "POST", creator+"/api/share", "", []byte(`{"sessionID":"ses_logged"}`)); code != http.StatusBadGateway {
		t.Errorf("without a server: %d", code)
	}
	srv.start("")
	var logs string
	for _, name := range []string{"mooring.log", "mooring-error.log"} {
		text, err := os.ReadFile(filepath.Join(n.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		logs += string(text)
	}
	for _, line := range []string{`"POST /agents/t HTTP/2.0" 200 `, `"POST /agents/t HTTP/2.0" 502 `, `"GET /agents/share HTTP/2.0" 200 `, `"GET /agents/s HTTP/2.0" 200 `, `"POST /agents/api/v1 `} {
		if !strings.Contains(logs, line) {
			t.Errorf("no line has %s:\n%s", line, logs)
		}
	}
	for what, text := range map[string]string{"a create ref": strings.TrimPrefix(creator, "/t/"), "a public id": share.ID, "a ref's id": strings.TrimPrefix(page, "/s/")} {
		if strings.Contains(logs, text) {
			t.Errorf("the logs have %s", what)
		}
	}
}
