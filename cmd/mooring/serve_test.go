//go:build unix

// mooring serve, as a process would run it: the whole command, on both databases.

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/selfsigned"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/rpc"
)

// servePatience is how long a test waits for a server.
const servePatience = time.Minute

// serving is a running serve command.
type serving struct {
	banner struct {
		Listening, Address, Database, Space string
		OwnerRef                            string `json:"owner_ref"`
		Created, Dead                       bool
		Capnp                               []string
		Metrics                             string
	}
	owner capability.Ref
	stop  func() (code int, errText string)
}

// startServe runs serve with --json on a free port until the test ends.
func startServe(t *testing.T, dir string, args ...string) *serving {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	outR, outW := io.Pipe()
	var errText lockbuf.Buffer
	done := make(chan int, 1)
	go func() {
		all := append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", dir}, args...)
		done <- runContext(ctx, all, strings.NewReader(""), outW, &errText)
		_ = outW.Close()
	}()
	s := &serving{}
	code := -1
	var once sync.Once
	s.stop = func() (int, string) {
		once.Do(func() {
			cancel()
			select {
			case code = <-done:
			case <-time.After(servePatience):
				t.Error("serve does not end")
			}
		})
		return code, errText.String()
	}
	t.Cleanup(func() { s.stop() })
	line, err := bufio.NewReader(outR).ReadBytes('\n')
	if err != nil {
		code, text := s.stop()
		t.Fatalf("serve ended with %d before it was there: %s", code, text)
	}
	if err := json.Unmarshal(line, &s.banner); err != nil {
		t.Fatalf("the banner %q: %v", line, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "owner.ref"))
	if err != nil {
		t.Fatal(err)
	}
	if s.owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(line, []byte(s.owner.Secret.RevealText())) {
		t.Error("the banner tells the secret")
	}
	return s
}

// command runs a command line to its end.
func command(t *testing.T, args ...string) (code int, out, errText string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servePatience)
	defer cancel()
	var o, e bytes.Buffer
	code = runContext(ctx, args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// reaches checks that a vat answers at the ref's address.
func reaches(t *testing.T, ref capability.Ref, trust *x509.CertPool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), servePatience)
	defer cancel()
	transport, err := rpc.Dial(ctx, ref.URLs()[0], rpc.DialOptions{TLS: &tls.Config{RootCAs: trust}})
	if err != nil {
		t.Fatalf("dial %s: %v", ref.URLs()[0], err)
	}
	conn := rpc.NewConn(transport, rpc.Config{})
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = conn.Run(context.Background())
	}()
	defer func() {
		conn.Close("test")
		<-ran
	}()
	// Any answer of the gateway will do: it knows no such method.
	gateway := conn.Bootstrap(ctx)
	defer gateway.Release()
	if _, _, err := gateway.Call(ctx, rpc.Method{Interface: 1}, capnp.ObjectSize{}, nil).Wait(ctx); !rpc.IsUnimplemented(err) {
		t.Errorf("the gateway answers %v", err)
	}
}

func httpStatus(t *testing.T, url string) int {
	t.Helper()
	resp, err := (&http.Client{Timeout: servePatience, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestServeRunsOnBothDatabases(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"sqlite", "postgres"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			var args []string
			if database == "postgres" {
				args = []string{"--database-url", pgtest.URL(t)}
			}
			dir := filepath.Join(t.TempDir(), "data")
			first := startServe(t, dir, args...)
			if !first.banner.Created || first.banner.Database != database || first.banner.Space != first.owner.Target() ||
				first.banner.OwnerRef != filepath.Join(dir, "owner.ref") {
				t.Errorf("the first start says %+v", first.banner)
			}
			if info, err := os.Stat(first.banner.OwnerRef); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("owner.ref: %v, %v", info.Mode(), err)
			}
			for _, path := range []string{"/healthz", "/readyz", "/api/v1/openapi.json"} {
				if got := httpStatus(t, "http://"+first.banner.Listening+path); got != http.StatusOK {
					t.Errorf("%s: %d", path, got)
				}
			}
			reaches(t, first.owner, nil)
			if code, text := first.stop(); code != cli.ExitOK || strings.Contains(text, first.owner.Secret.RevealText()) {
				t.Errorf("ended with %d, said %s", code, text)
			}
			second := startServe(t, dir, args...)
			if second.banner.Created || second.banner.Space != first.banner.Space || !second.owner.Secret.Equal(first.owner.Secret) {
				t.Errorf("the second start says %+v", second.banner)
			}
		})
	}
}

func TestServeRefusesASecondServerOnAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startServe(t, dir)
	code, out, text := command(t, "serve", "--listen", "127.0.0.1:0", "--data", dir)
	if code != cli.ExitRefused || out != "" || !strings.Contains(text, "in_use") || !strings.Contains(text, "--data") {
		t.Errorf("exit %d, printed %q, said %q", code, out, text)
	}
	code, _, text = command(t, "serve", "--json", "--listen", "127.0.0.1:0", "--data", dir)
	var message struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(text), &message); err != nil || code != cli.ExitRefused || message.Error.Code != "in_use" {
		t.Errorf("exit %d, said %q", code, text)
	}
}

func TestServeOverTLSAsAdvertised(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key, trust := selfsigned.Write(t, dir)
	plain := startServe(t, filepath.Join(dir, "plain"), "--tls-cert", cert, "--tls-key", key)
	if plain.owner.Address() != "moorings://"+plain.banner.Listening {
		t.Errorf("the owner's ref is at %s", plain.owner.Address())
	}
	reaches(t, plain.owner, trust)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Timeout: servePatience, Transport: transport}).Get("https://" + plain.banner.Listening + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Errorf("over TLS: %s %s", resp.Proto, resp.Status)
	}

	named := startServe(t, filepath.Join(dir, "named"), "--advertise", "https://a.example/agents", "--tls-cert", cert, "--tls-key", key)
	if got := named.owner.Address(); got != "moorings://a.example:443/agents" {
		t.Errorf("the owner's ref is at %s", got)
	}
	local := named.owner
	local.Hosts = []string{named.banner.Listening} // what a proxy would do
	reaches(t, local, trust)
}

// The log is JSON or text, whatever the results are, and as much of it as is asked for.
func TestServeLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args       []string
		json       bool
		info, more bool
	}{
		{nil, true, true, false},
		{[]string{"--log-format", "text"}, false, true, false},
		{[]string{"--json=false", "--log-format", "json"}, true, true, false},
		{[]string{"--log-level", "debug", "--log-format", "text"}, false, true, true},
		{[]string{"--verbose"}, true, true, true},
		{[]string{"--log-level", "warn"}, true, false, false},
		{[]string{"--log-level", "error", "--log-format", "text"}, false, false, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var out, log lockbuf.Buffer
		done := make(chan int, 1)
		go func() {
			args := append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--advertise", "mooring://mooring.example"}, c.args...)
			done <- runContext(ctx, args, strings.NewReader(""), &out, &log)
		}()
		until.True(t, "it listens", func() bool { return strings.Contains(out.String(), "127.0.0.1:") })
		_, rest, _ := strings.Cut(out.String(), "127.0.0.1:")
		port := rest[:strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })]
		if got := httpStatus(t, "http://127.0.0.1:"+port+"/share/none"); got != http.StatusNotFound {
			t.Errorf("a page that is not there: %d", got)
		}
		cancel()
		if code := <-done; code != cli.ExitOK {
			t.Errorf("%v: ended with %d: %s", c.args, code, log.String())
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		for _, line := range lines {
			if json.Valid([]byte(line)) != c.json && line != "" {
				t.Errorf("%v: logged %s", c.args, line)
			}
		}
		for word, want := range map[string]bool{"draining": c.info, "DEBUG": c.more, "INFO": c.info} {
			if strings.Contains(log.String(), word) != want {
				t.Errorf("%v: logged %q, want %s: %v", c.args, log.String(), word, want)
			}
		}
	}
}

func TestServeUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--tls-cert", "x"}, {"--listen", "nowhere"}, {"--advertise", "ftp://x"}, {"--poll-interval", "-1s"},
		{"--max-connections", "0"}, {"--max-queued-bytes", "0"}, {"--max-message-bytes", "1KiB"}, {"--max-traversal-bytes", "1MiB"},
		{"--max-exports", "-1"}, {"--idle-timeout", "0s"}, {"--max-answer-bytes", "lots"}, {"--ping-interval", "-1s"},
		{"--capnp-listen", "127.0.0.1:1"}, {"--capnp-listen", "unix:"}, {"--capnp-listen", "tcp://nowhere"}, {"--metrics-listen", "nowhere"},
		{"--listen", "localhost:99999"}, {"--listen", "localhost:-1"}, {"--capnp-listen", "tcp://localhost:99999"}, {"--metrics-listen", ":99999"},
		{"--advertise", "http://x"}, {"--advertise", "ws://x:7600"},
		{"--keep-log", "-1s"}, {"--deleted-retention", "-1s"}, {"--drain-delay", "-1s"}, {"--log-format", "xml"}, {"--log-level", "loud"}, {"--log-level", "warn", "-v"}, {"--nosuch"}, {"extra"}, {"--database-url", "postgres://u:p@h:x/secret-name"},
		{"--database-connections", "8"}, {"--database-connections", "2", "--database-url", "postgres://u:p@h/secret-name"},
	} {
		// Flags are looked at before anything is tried: the port is somebody else's.
		code, out, text := command(t, append([]string{"serve", "--data", t.TempDir(), "--listen", occupied(t)}, args...)...)
		if code != cli.ExitUsage || out != "" || text == "" || strings.Contains(text, "secret-name") {
			t.Errorf("%v: exit %d, printed %q, said %q", args, code, out, text)
		}
	}
	sock := filepath.Join(shortDir(t), "sock")
	if err := os.WriteFile(sock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for label, c := range map[string]struct {
		args  []string
		words []string
	}{
		"a port in use":      {[]string{"--listen", occupied(t)}, []string{"in_use: --listen 127.0.0.1:", "another program listens there", "port 0"}},
		"metrics in use":     {[]string{"--metrics-listen", occupied(t)}, []string{"in_use: --metrics-listen 127.0.0.1:", "another program"}},
		"a stream in use":    {[]string{"--capnp-listen", "tcp://" + occupied(t)}, []string{"in_use: --capnp-listen tcp://127.0.0.1:", "another program"}},
		"a file in use":      {[]string{"--capnp-listen", "unix:" + sock}, []string{"in_use: --capnp-listen unix:", "it is not a socket"}},
		"another's address":  {[]string{"--listen", "192.0.2.1:0"}, []string{"--listen 192.0.2.1:0: this machine has no such address"}},
		"no such cert":       {[]string{"--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"}, []string{"--tls-cert"}},
		"a database away":    {[]string{"--database-url", "postgres://nobody:p4ss@127.0.0.1:1/none"}, []string{"unavailable: the database at 127.0.0.1:1 cannot be reached (connection refused)", "is it running"}},
		"two databases away": {[]string{"--database-url", "postgres://nobody:p4ss@127.0.0.1:1,[::1]:2/none"}, []string{"127.0.0.1:1 or [::1]:2"}},
		"no folder for data": {[]string{"--data", "/dev/null/x"}, nil},
	} {
		code, _, text := command(t, append([]string{"serve", "--data", t.TempDir(), "--listen", "127.0.0.1:0"}, c.args...)...)
		if code != cli.ExitRefused || !strings.HasPrefix(text, "mooring: ") || strings.Count(text, "\n") != 1 || strings.Contains(text, "p4ss") || strings.Contains(text, "nobody") || strings.Contains(text, "again: it") {
			t.Errorf("%s: exit %d, said %q", label, code, text)
		}
		for _, w := range c.words {
			if !strings.Contains(text, w) {
				t.Errorf("%s: said %q, without %q", label, text, w)
			}
		}
	}
}

// What a Postgres says that does not let one in is told in words, for the server's and
// for an outbox's.
func TestDatabasesThatDoNotLetOneIn(t *testing.T) {
	t.Parallel()
	good, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	missing, stranger := *good, *good
	missing.Path = "/mooring_missing"
	stranger.User = url.UserPassword("mooring_stranger", "p4ss")
	for _, c := range []struct{ url, words string }{
		{missing.String(), `there is no database "mooring_missing" at ` + good.Host}, {stranger.String(), "the database at " + good.Host + " does not know the user"},
	} {
		for _, args := range [][]string{
			{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", c.url}, {"outbox", "status", "--home", t.TempDir(), "--outbox-url", c.url},
			{"admin", "rotate-owner", "--data", t.TempDir(), "--database-url", c.url},
		} {
			code, out, text := command(t, args...)
			if code != cli.ExitRefused || out != "" || !strings.HasPrefix(text, "mooring: unavailable: "+c.words) || strings.Count(text, "\n") != 1 ||
				strings.Contains(text, "p4ss") || !strings.Contains(text, args[len(args)-2]) {
				t.Errorf("%s: exit %d, printed %q, said %q", args[0], code, out, text)
			}
		}
	}
	// A rescue makes nothing where no server ever was.
	code, _, text := command(t, "admin", "rotate-owner", "--data", t.TempDir(), "--database-url", good.String())
	if code != cli.ExitUsage || !strings.Contains(text, "no server's tables") {
		t.Errorf("an empty database: exit %d, said %q", code, text)
	}
	if has, err := postgres.HasServer(t.Context(), good.String()); has || err != nil {
		t.Errorf("it has a server's tables now: %v, %v", has, err)
	}
	for _, args := range [][]string{{"outbox", "status", "--home", t.TempDir(), "--outbox-url"}, {"admin", "rotate-owner", "--data", t.TempDir(), "--database-url"}} {
		code, _, text := command(t, append(args, "postgres://u:p4ss@h:x/secret-name")...)
		if code != cli.ExitUsage || strings.Contains(text, "p4ss") || strings.Contains(text, "secret-name") {
			t.Errorf("%q: exit %d, said %q", args, code, text)
		}
	}
}

func TestServeRefusesADatabaseThatLosesCommits(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if err := conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "ALTER DATABASE "+name+" SET synchronous_commit = off"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	code, _, text := command(t, "serve", "--listen", "127.0.0.1:0", "--data", dir, "--database-url", url)
	if code != cli.ExitRefused || !strings.Contains(text, "unsafe_store") || !strings.Contains(text, "synchronous_commit") {
		t.Errorf("exit %d, said %q", code, text)
	}
	startServe(t, dir, "--database-url", url, "--allow-unsafe-database")
}

// TestServeKeepsItsConnections has as many as --database-connections says, used or not, which
// is all that its role may have.
func TestServeKeepsItsConnections(t *testing.T) {
	t.Parallel()
	const connections = 4
	at := pgtest.URL(t)
	url, _ := pgtest.Role(t, at, connections)
	startServe(t, t.TempDir(), "--database-url", url, "--database-connections", strconv.Itoa(connections))
	conn, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	until.True(t, "it has them all", func() bool {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename <> current_user").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == connections
	})
}

// TestServeWaitsForItsDatabase: one that takes no writes, or starts or stops, is waited for, and
// whoever ends that has ended nothing.
func TestServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	proxy := stmtfault.Postgres(t, pgtest.URL(t), nil)
	for _, f := range []stmtfault.Failure{{State: "0A000", Routine: "call_bool_check_hook"}, {State: "57P03", Fatal: true}} {
		proxy.Fail(1, true, f)
		ctx, stop := context.WithCancel(t.Context())
		var out, log lockbuf.Buffer
		code := make(chan int, 1)
		go func() {
			code <- runContext(ctx, []string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--database-url", proxy.URL()}, strings.NewReader(""), &out, &log)
		}()
		until.True(t, "it says what it waits for", func() bool { return strings.Contains(log.String(), "waiting for") })
		stop()
		if c := <-code; c != cli.ExitOK || out.String() != "" || strings.Contains(log.String(), "mooring:") || !strings.Contains(log.String(), "stopped while") {
			t.Errorf("%v: exit %d, printed %q, said %s", f, c, out.String(), log.String())
		}
	}
}

// occupied is an address that somebody listens on.
func occupied(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

// TestClearTextIsSaid: whoever opens a server without TLS to other machines is told.
func TestClearTextIsSaid(t *testing.T) {
	t.Parallel()
	for listen, said := range map[string]bool{":0": true, "0.0.0.0:0": true, "127.0.0.1:0": false, "localhost:0": false} {
		s := startServe(t, t.TempDir(), "--listen", listen)
		if _, log := s.stop(); strings.Contains(log, "clear text") != said {
			t.Errorf("--listen %s: %q", listen, log)
		}
	}
	proxied := startServe(t, t.TempDir(), "--listen", ":0", "--advertise", "moorings://mooring.example")
	if _, log := proxied.stop(); strings.Contains(log, "clear text") {
		t.Errorf("behind a proxy with TLS: %q", log)
	}
}
