//go:build nginx

package e2e

// The server behind nginx, set up as docs/operating.md says. make e2e runs this: it needs nginx.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// startNginx runs nginx with the document's settings, but for addresses and files.
func (n *balancer) startNginx(t *testing.T, targets ...string) *process {
	group := ""
	settings := n.settings(t, "nginx", 0, [][2]string{
		{"listen 443 ssl http2;", fmt.Sprintf("listen 127.0.0.1:%d ssl http2;", n.port)}, {"server_name mooring.example", "server_name 127.0.0.1"},
		{"/etc/ssl/mooring.example.pem", n.cert}, {"/etc/ssl/mooring.example.key", filepath.Join(n.dir, "key.pem")},
		{"/var/log/nginx/", n.dir + "/"},
	})
	if len(targets) > 1 {
		group = n.settings(t, "nginx", 1, [][2]string{{"10.0.0.1:7600", targets[0]}, {"10.0.0.2:7600", targets[1]}})
		targets = []string{"mooring"}
	}
	settings = strings.Replace(settings, "127.0.0.1:7600", targets[0], 1)
	user := ""
	if os.Geteuid() == 0 {
		user = "user root;\n" // who else could read the test's folder
	}
	n.write(t, "nginx.conf", []byte(user+"daemon off;\npid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n"+
		"client_body_temp_path body;\nproxy_temp_path proxy;\nfastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n"+group+settings+"}\n"))
	p, err := launch(exec.Command("nginx", "-p", n.dir, "-e", "stderr", "-c", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNginx(t, n.dir, p) })
	n.answers(t, p)
	return p
}

// stopNginx ends it and its workers at once, and with them all connections.
func stopNginx(t *testing.T, dir string, p *process) {
	select {
	case <-p.done:
		return
	default:
	}
	if out, err := exec.Command("nginx", "-p", dir, "-e", "stderr", "-c", "nginx.conf", "-s", "stop").CombinedOutput(); err != nil {
		t.Errorf("nginx -s stop: %v\n%s", err, out)
		p.kill()
	}
	<-p.done
}

func TestNginx(t *testing.T) {
	n := newBalancer(t, "/agents")
	srv := startServer(t, serverConfig{Args: []string{"--advertise", "moorings://" + n.address()}})
	running := n.startNginx(t, srv.address())
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
	seen(239) // the share itself
	large := fmt.Sprintf(`{"method":"put","key":"message/large","payload":{"text":"%s"}}`, strings.Repeat("x", 3<<20))
	owner.feed(large+"\n", "session", "append", id, "--wait")
	seen(240)

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
	seen(242)
	var last string
	for last = range data {
		if strings.Contains(last, `"cursor":242,`) {
			break
		}
	}
	if !strings.Contains(last, `"cursor":242,`) {
		t.Errorf("events end with %.300s", last)
	}

	n.keepsSecrets(t, srv, owner, full)

	// nginx goes, with every connection, and comes back.
	stopNginx(t, n.dir, running)
	owner.feed(`{"method":"put","key":"message/a","payload":{"n":1}}`+"\n", "session", "append", id)
	n.startNginx(t, srv.address())
	owner.do("outbox", "drain")
	seen(243)
	owner.do("revoke", "@"+ref)
	if <-tail.done; tail.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(tail.err.text(), "revoked") {
		t.Errorf("the tail ends with %d\n%s", tail.cmd.ProcessState.ExitCode(), tail.err.text())
	}
	gapless(t, "tail", tailedLines(t, tail.out.list()), 0, 243)
}

// keepsSecrets has opencode share by way of a create ref, whose secret stands in the path, and looks for it, and for what else
// opens something, in nginx's logs: while the server is there, and while it is not.
func (n *balancer) keepsSecrets(t *testing.T, srv *server, owner *home, reader string) {
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
