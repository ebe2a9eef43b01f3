//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/until"
)

// service is a command that runs until it is killed, or kills itself, and is started again at the same address.
type service struct {
	t    *testing.T
	args []string
	addr string
	cmd  *exec.Cmd
	died chan struct{}
	log  bytes.Buffer
}

// freeAddr is an address of the loopback at which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// newService starts a command that listens at an address of its own.
func newService(t *testing.T, args ...string) *service {
	t.Helper()
	s := &service{t: t, addr: freeAddr(t)}
	s.args = append(args, "--listen", s.addr)
	s.start("")
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("mooring %s said:\n%s", args[0], s.log.String())
		}
	})
	return s
}

// start starts it, armed with a crash point if that is not "", and waits until it listens, or has died.
func (s *service) start(point string) {
	s.t.Helper()
	s.cmd = exec.Command(mooringProgram(), s.args...) //nolint:noctx // it is killed by hand
	s.cmd.Env = append(os.Environ(), crashpoint.Env+"="+point)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	died, cmd := make(chan struct{}), s.cmd
	s.died = died
	go func() {
		defer close(died)
		_ = cmd.Wait() // killed
	}()
	until.True(s.t, "it listens", func() bool {
		if s.dead() {
			return true
		}
		c, err := net.Dial("tcp", s.addr) //nolint:noctx // of the loopback
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
}

func (s *service) dead() bool {
	select {
	case <-s.died:
		return true
	default:
		return false
	}
}

func (s *service) kill() {
	_ = s.cmd.Process.Kill() // it may have killed itself
	<-s.died
}

// sender sends what opencode would, and drops what cannot be delivered, as it does.
var sender = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func send(t *testing.T, method, at, body string, to any) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := sender.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return err == nil && res.StatusCode == http.StatusOK && json.Unmarshal(text, to) == nil
}

// A relay and a server that are killed at any moment, also at named steps, lose nothing and double nothing: each share equals opencode's session in the
// end, and each session that was shared is one.
func TestARelayThatIsKilled(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 2))
	dir := t.TempDir()
	oc := relaytest.NewOpencode(t)
	server := newService(t, "serve", "--data", filepath.Join(dir, "data"))
	relay := newService(t, "relay", "--to", "@"+filepath.Join(dir, "data", "owner.ref"), "--home", filepath.Join(dir, "home"), "--opencode", oc.URL())
	relayPoints := []string{crashpoint.OutboxCommitBefore, crashpoint.OutboxCommitAfter, crashpoint.OutboxSeqBefore, crashpoint.OutboxSeqAfter,
		crashpoint.OutboxSendAfter, crashpoint.OutboxAckBefore, crashpoint.OutboxAckAfter}
	serverPoints := []string{crashpoint.ServerOpenStreamAfter, crashpoint.ServerApplyQueued, crashpoint.ServerCommitBefore, crashpoint.ServerCommitAfter, crashpoint.ServerOutcomeBefore}
	kills := map[*service]int{}
	disturb := func(s *service, points []string) {
		if s.dead() || rng.IntN(2) == 0 {
			s.kill()
			kills[s]++
			s.start(fmt.Sprintf("%s:%d", points[rng.IntN(len(points))], 1+rng.IntN(6)))
		}
	}
	type shared struct {
		*relaytest.Session
		id, secret string
	}
	var shares []*shared
	for n := range 3 {
		s := &shared{Session: relaytest.NewSession(fmt.Sprintf("ses_%d", n), rng.Uint64())}
		for tries := 0; s.id == ""; tries++ {
			var made struct{ ID, URL, Secret string }
			if send(t, "POST", "http://"+relay.addr+"/api/share", fmt.Sprintf(`{"sessionID":%q}`, s.ID), &made) {
				s.id, s.secret, s.URL = made.ID, made.Secret, made.URL
				break
			}
			if tries > 50 {
				t.Fatal("no share is made")
			}
			disturb(relay, relayPoints)
		}
		shares = append(shares, s)
	}
	lost := 0
	for step := range 240 {
		s := shares[rng.IntN(len(shares))]
		items := s.Change()
		oc.Store("", s.Items()...)
		if items != nil && !send(t, "POST", "http://"+relay.addr+"/api/share/"+s.id+"/sync", fmt.Sprintf(`{"secret":%q,"data":[%s]}`, s.secret, strings.Join(items, ",")), new(struct{})) {
			lost++
		}
		switch {
		case step%12 == 11:
			disturb(relay, relayPoints)
		case step%30 == 29:
			disturb(server, serverPoints)
		}
	}
	t.Logf("the relay was killed %d times, the server %d times; %d syncs were lost on the way", kills[relay], kills[server], lost)
	for _, s := range []*service{server, relay} {
		s.kill()
		s.start("")
	}
	for _, s := range shares {
		want := s.Visible()
		slices.Sort(want)
		var got []string
		last := time.Now()
		until.True(t, "the share equals the session", func() bool {
			var items []json.RawMessage
			if !send(t, "GET", "http://"+server.addr+"/api/share/"+s.id+"/data", "", &items) {
				return false
			}
			got = nil
			for _, item := range items {
				got = append(got, string(item))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) && time.Since(last) > 20*time.Second {
				last = time.Now()
				t.Logf("share %s has\n%s\nwant\n%s", s.ID, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			return slices.Equal(got, want)
		})
	}
	code, list, message := command(t, "session", "list", "--json", "--owner", "@"+filepath.Join(dir, "data", "owner.ref"), "--home", filepath.Join(dir, "other"))
	if code != cli.ExitOK || strings.Count(list, "\n") != len(shares) {
		t.Errorf("the sessions are\n%s%s", list, message)
	}
}

// relay runs a relay as a process, and returns what it has said first.
func (r *cliRig) relay(args ...string) (p *process, first string) {
	r.t.Helper()
	p = r.process(append([]string{"relay"}, args...)...)
	p.cmd.Stdout = nil
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	p.start()
	lines := bufio.NewReader(out)
	for range 2 {
		line, err := lines.ReadString('\n')
		if err != nil {
			_ = p.cmd.Wait()
			r.t.Fatalf("%v: %s", err, p.err.String())
		}
		first += line
	}
	return p, first
}

// stopped ends it as Ctrl-C does.
func (p *process) stopped() {
	p.r.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.r.t.Fatal(err)
	}
	if code := p.end(); code != cli.ExitOK {
		p.r.t.Errorf("mooring %s, interrupted: exit %d, %q", p.args, code, p.err.String())
	}
}

// What the command says: where it listens and for whom, that the server is away and how much waits, and each mistake in a line.
func TestRelayCommand(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	other := filepath.Join(r.dir, "other-home")
	at := freeAddr(t)
	p, said := r.relay("--to", r.owner(), "--listen", at)
	if want := "relaying opencode's shares to http://" + r.proxy.Addr() + "\nput this into opencode.json: { \"enterprise\": { \"url\": \"http://" + at + "\" } }\n"; said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
	r.fails(cli.ExitRefused, "another program listens there", "relay", "--to", r.owner(), "--listen", at)
	r.fails(cli.ExitRefused, "another mooring relay runs with the home folder", "relay", "--to", r.owner(), "--listen", "127.0.0.1:0")
	r.stop()
	var made struct{ ID, URL, Secret string }
	if !send(t, "POST", "http://"+at+"/api/share", `{"sessionID":"ses_x"}`, &made) {
		t.Fatal("no share is made while the server is away")
	}
	p.stopped()
	if !strings.Contains(p.err.String(), "stopped: 2 ops in the outbox, which the next command in this home folder sends") {
		t.Errorf("stopped while the server is away it says %q", p.err.String())
	}
	if strings.Contains(p.err.String(), made.Secret) {
		t.Error("it says a secret")
	}
	p, _ = r.relay("--to", r.owner(), "--listen", at)
	r.start()
	var items []json.RawMessage
	if !r.soon(func() bool {
		return send(t, "GET", made.URL[:len(made.URL)-len("/share/"+made.ID)]+"/api/share/"+made.ID+"/data", "", &items)
	}) {
		t.Error("the share is not there")
	}
	p.stopped()
	if !strings.Contains(p.err.String(), "the server is away") {
		t.Errorf("started while the server is away it says %q", p.err.String())
	}

	reader := strings.TrimSpace(r.ok("share", r.owner(), "--rights", "list"))
	creator := strings.TrimSpace(r.ok("share", r.owner(), "--rights", "create"))
	p, _ = r.relay("--to", creator, "--listen", at)
	p.stopped()
	session := r.importSmall()
	for _, q := range []struct {
		code  int
		words string
		args  []string
	}{
		{cli.ExitUsage, "say where to", nil},
		{cli.ExitUsage, "serves this machine alone", []string{"--to", r.owner(), "--listen", "0.0.0.0:7601"}},
		{cli.ExitUsage, "not HOST:PORT", []string{"--to", r.owner(), "--listen", "7601"}},
		{cli.ExitUsage, "is not an address of this machine", []string{"--to", r.owner(), "--opencode", "http://example.org:1"}},
		{cli.ExitUsage, "http://opencode:xxxxx@example.org:1", []string{"--to", r.owner(), "--opencode", "http://opencode:password@example.org:1"}},
		{cli.ExitUsage, "--opencode is not an address", []string{"--to", r.owner(), "--opencode", "opencode:password@127.0.0.1:1"}},
		{cli.ExitUsage, "--opencode is not an address", []string{"--to", r.owner(), "--opencode", "http://opencode:password@127.0.0.1:x"}},
		{cli.ExitUsage, "must be a space's ref", []string{"--to", session, "--listen", "127.0.0.1:0"}},
		{cli.ExitRefused, "list", []string{"--to", reader, "--listen", "127.0.0.1:0"}},
		{cli.ExitRefused, "", []string{"--to", reader[:len(reader)-2] + "AA", "--listen", "127.0.0.1:0"}},
		{cli.ExitRefused, "no such file", []string{"--to", "@" + filepath.Join(r.dir, "none.ref"), "--listen", "127.0.0.1:0"}},
	} {
		args := append([]string{"relay"}, q.args...)
		if q.words == "must be a space's ref" {
			args = append(args, "--home", r.home())
		} else {
			args = append(args, "--home", other)
		}
		code, out, message := command(t, args...)
		if code != q.code || out != "" || !strings.Contains(message, q.words) || strings.Count(message, "\n") != 1 || strings.Contains(message, "password") {
			t.Errorf("%q: exit %d, %q %q", q.args, code, out, message)
		}
	}
	code, help, _ := command(t, "relay", "--help")
	if code != cli.ExitOK || !strings.Contains(help, "mooring relay --to @data/owner.ref") {
		t.Errorf("the help is %s", help)
	}
}
