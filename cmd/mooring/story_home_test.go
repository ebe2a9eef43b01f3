//go:build unix

// The refs that a home folder remembers, and commands that fail and must leave them as
// they were.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// TestAHomeUsesTheRefThatWorks: of several refs to one session, which came in the
// worst order.
func TestAHomeUsesTheRefThatWorks(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_outside")
	strong := r.shareTo("strong", id, "--rights", "read,append", "--actor", "owner/strong")
	weak := r.shareTo("weak", id, "--rights", "read", "--actor", "owner/weak")
	early := filepath.Join(r.dir, "early.ref")
	home := r.otherHome("agent")
	r.okAs(home, "", "redeem", strong)
	r.okAs(home, "", "redeem", weak)

	// A share that its server has not been told of: its maker is offline.
	maker := r.otherHome("maker")
	r.okAs(maker, "", "redeem", r.shareTo("sharer", id, "--rights", "read,append,share", "--actor", "owner/sharer"))
	r.stop()
	r.okAs(maker, "", "share", id, "--rights", "read,append", "--actor", "owner/sharer/early", "--to", early)
	r.start()
	r.refusedAs(home, "", []string{"not_yet_known"}, "redeem", "@"+early)

	for _, name := range []string{id, "ses_outside"} { // its external id is as good
		r.okAs(home, "", "session", "show", name)
		r.okAs(home, "", "session", "tail", name)
		r.okAs(home, putLine("by-"+name), "session", "append", name, "--wait")
	}
	got := r.refusedAs(home, "", []string{"missing_right", "ses_", "the best of the home folder's refs"}, "share", id, "--rights", "read")
	if strings.Contains(got.err, "missing_right: missing_right") {
		t.Errorf("said %q", got.err)
	}
}

// TestAFailedCommandChangesNothing: neither whose sessions are listed, nor where a
// server is.
func TestAFailedCommandChangesNothing(t *testing.T) {
	t.Parallel()
	r, other := newCLI(t, ""), newCLI(t, "")
	id := r.create("ses_outside") // the owner's ref is remembered
	list := r.ok("session", "list")
	creator := r.shareTo("creator", r.owner(), "--rights", "create")
	r.fails(cli.ExitRefused, "missing_right", "session", "list", "--owner", creator)
	if got := r.ok("session", "list"); got != list {
		t.Errorf("after a refusal: %s", got)
	}
	other.stop()
	r.fails(cli.ExitRefused, "unavailable", "session", "list", "--owner", other.owner())
	if got := r.ok("session", "list"); got != list {
		t.Errorf("after a server that is away: %s", got)
	}
	// Nor is a second one in the way where none is remembered.
	if err := os.Remove(filepath.Join(r.home(), "owner")); err != nil {
		t.Fatal(err)
	}
	if got := r.ok("session", "list"); got != list {
		t.Errorf("where none is remembered: %s", got)
	}

	reader := r.shareTo("reader", id, "--rights", "read")
	home := r.otherHome("agent")
	r.okAs(home, "", "session", "show", reader)
	text := strings.Replace(string(readFile(t, reader[1:])), r.proxy.Addr(), other.proxy.Addr(), 1)
	copied := filepath.Join(r.dir, "wrong-port.ref")
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.refusedAs(home, "", []string{"unavailable"}, "session", "show", "@"+copied)
	r.okAs(home, "", "session", "show", id)
}

// TestASpacesRefExpiresByItsServersClock: redeem says in how long.
func TestASpacesRefExpiresByItsServersClock(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	out := r.okAs(r.otherHome("agent"), "", "redeem", r.shareTo("team", r.owner(), "--rights", "list", "--expires", "24h"))
	if !strings.Contains(out, "(in 24 hours)") {
		t.Errorf("it says %s", out)
	}
}
