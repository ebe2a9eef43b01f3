//go:build unix

// mooring attach opencode without an opencode; with the real one: e2e/opencode/attach.test.js.

package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// What cannot be tied makes no session, and no error has the address's password.
func TestAttachToWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	at := freeAddr(t)
	for _, c := range []struct {
		code  int
		words string
		args  []string
	}{
		{cli.ExitRefused, "opencode does not answer at http://" + at, []string{"--url", "http://user:secret-word@" + at}},
		{cli.ExitRefused, "opencode does not answer at http://" + at, []string{"--url", "http://" + at, "--opencode-session", "ses_1"}},
		{cli.ExitRefused, "running with --port", []string{"--url", "http://" + at}},
		{cli.ExitRefused, "no id of opencode's sessions", []string{"--url", "http://" + at, "--opencode-session", "../ses_1"}},
		{cli.ExitUsage, "--url is not an address of opencode's", []string{"--url", "ftp://user:secret-word@" + at}},
		{cli.ExitUsage, "--url is not an address of opencode's", []string{"--url", "http://user:secret-word@" + at + "/?a=b"}},
		{cli.ExitUsage, "names another machine (example.org): say --remote", []string{"--url", "http://user:secret-word@example.org"}},
		{cli.ExitUsage, "--listen 0.0.0.0:7601: a relay serves this machine alone", []string{"--listen", "0.0.0.0:7601"}},
		{cli.ExitUsage, "--listen \"7601\" is not HOST:PORT", []string{"--listen", "7601"}},
		{cli.ExitRefused, "opencode does not answer at http://" + at, []string{"--url", "http://" + at, "--listen", "127.0.0.1:0"}},
		{cli.ExitUsage, "--label is for a new session", []string{"--label", "a", "--session", "ses_x"}},
		{cli.ExitRefused, "is not opencode: it has no sessions", []string{"--url", "http://" + r.proxy.Addr()}},
	} {
		got := r.runIn("", append([]string{"attach", "opencode", "--owner", r.owner()}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.err, c.words) || strings.Contains(got.err+got.out, "secret-word") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("%v: exit code %d, %s; want %d and %q", c.args, got.code, got.err, c.code, c.words)
		}
	}
	if list := r.ok("session", "list", "--owner", r.owner(), "--json"); strings.TrimSpace(list) != "" {
		t.Errorf("there is a session: %s", list)
	}
	left, err := filepath.Glob(filepath.Join(r.home(), "attached", "*.json"))
	if err != nil || len(left) != 0 {
		t.Errorf("there is a tie: %v, %v", left, err)
	}
}

// A home folder has one relay, by itself or in an attach, whichever is there first; one that is killed leaves it to the next.
func TestAttachListensAlone(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // an opencode that is being started
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	attach := []string{"attach", "opencode", "--owner", r.owner(), "--url", "http://" + silent.Addr().String(), "--listen"}
	at := freeAddr(t)
	p, _ := r.relay("--to", r.owner(), "--listen", at)
	r.fails(cli.ExitRefused, "another program listens there", append(attach, at)...)
	r.fails(cli.ExitRefused, "another mooring relay runs with the home folder", append(attach, "127.0.0.1:0")...)
	p.stopped()

	p = r.process(append(attach, at)...)
	p.start()
	defer func() { _ = p.cmd.Process.Kill() }() // it may be dead
	asked, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	r.fails(cli.ExitRefused, "another program listens there", "relay", "--to", r.owner(), "--listen", at)
	r.fails(cli.ExitRefused, "another mooring relay runs with the home folder", "relay", "--to", r.owner(), "--listen", "127.0.0.1:0")
	r.fails(cli.ExitRefused, "another mooring relay runs with the home folder", append(attach, "127.0.0.1:0")...)
	_ = p.cmd.Process.Kill()
	p.end()
	p, _ = r.relay("--to", r.owner(), "--listen", at)
	p.stopped()
}
