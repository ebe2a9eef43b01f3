//go:build linux

// Owners' refs, with which everything else ends: revoked by mistake, or rotated and
// left behind in a file.

package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

func TestRevokeAsksForAnOwnersRef(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_asked")
	owners := r.refs(id)[0].Ref
	helper := r.shareTo("helper", id, "--rights", "read,append,share,revoke")
	team := r.shareTo("team", r.owner(), "--rights", "create,list,share,revoke")
	r.ok("redeem", team)
	owner := strings.TrimSpace(string(readFile(t, r.owner()[1:])))
	for arg, words := range map[string]string{owners: "the owner's ref of its session", r.owner(): "the root ref of its space", owner: "the root ref of its space"} {
		r.fails(cli.ExitUsage, "this is "+words+", and every ref that was made from it ends with it, for good; there is no terminal to ask on: give --yes, or replace it", "revoke", arg)
	}
	asked := func(arg, answer, words string, want int) {
		t.Helper()
		term := newPTY(t)
		term.typed(answer)
		if code := runContext(t.Context(), []string{"revoke", arg, "--home", r.home()}, term.tty, io.Discard, term.tty); code != want {
			t.Errorf("revoke, answered %q: exit %d, %q", answer, code, term.shown.String())
		}
		term.until(words)
	}
	asked(owners, "no\r", "for good? Type yes: ", cli.ExitRefused)
	asked(r.owner(), "\r", "nothing was done", cli.ExitRefused)
	r.okIn(putLine("a"), "session", "append", id, "--wait")
	r.ok("session", "list")

	// What is no owner's goes without a question, and an owner's with yes.
	if out := r.ok("revoke", helper); !strings.HasPrefix(out, "revoked; the cut is at cursor") {
		t.Errorf("a share: %q", out)
	}
	if out := r.ok("revoke", team); out != "revoked; 1 ref died\n" {
		t.Errorf("a share of the space: %q", out)
	}
	asked(owners, "yes\r", "for good? Type yes: ", cli.ExitOK)
	r.fails(cli.ExitRefused, "revoked", "session", "show", id)
	if out := r.ok("revoke", r.owner(), "--yes"); !strings.HasPrefix(out, "revoked; ") {
		t.Errorf("the root: %q", out)
	}
	r.fails(cli.ExitRefused, "revoked", "session", "list")
}

// A rotation that is kept in a home folder leaves owner.ref dead, which it says, and
// the server too.
func TestStaleOwnerFileIsReported(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.ok("session", "list", "--owner", r.owner())
	got := r.runIn("", "rotate", mustRef(t, r.owner()).Target())
	fresh, _, _ := strings.Cut(got.out, "\n")
	if got.code != cli.ExitOK || !strings.Contains(got.err, "holds a dead one now: mooring rotate "+fresh+" --to FILE") {
		t.Errorf("rotate: %+v", got)
	}
	r.stop()
	line, log := plainServe(t, "--advertise", "mooring://"+r.proxy.Addr(), "--data", r.data())
	if !strings.Contains(line, "owner's ref in "+r.owner()[1:]+" is dead\n") || !strings.Contains(log, "mooring rotate spc_") || !strings.Contains(log, "mooring admin rotate-owner") {
		t.Errorf("the server says %q, and logs %s", line, log)
	}
	if secret := mustRef(t, r.owner()).Secret.RevealText(); strings.Contains(line+log, secret) {
		t.Error("the server tells the secret")
	}
	r.start()
	r.ok("rotate", fresh, "--to", r.owner()[1:])
	r.stop()
	if line, log := plainServe(t, "--advertise", "mooring://"+r.proxy.Addr(), "--data", r.data()); strings.Contains(line+log, "dead") || !strings.Contains(line, "owner's ref in ") || strings.Contains(line+log, mustRef(t, r.owner()).Secret.RevealText()) {
		t.Errorf("with a new file the server says %q, and logs %s", line, log)
	}
}

// plainServe starts a server for people, and gives what it prints at first and logs.
func plainServe(t *testing.T, args ...string) (printed, log string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	var errOut lockbuf.Buffer
	code := make(chan int, 1)
	go func() {
		code <- runContext(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--verbose"}, args...), strings.NewReader(""), in, &errOut)
		_ = in.Close()
	}()
	buf := make([]byte, 4096)
	n, err := out.Read(buf)
	stop()
	rest, _ := io.ReadAll(out) // of a pipe in this process
	if c := <-code; c != cli.ExitOK || err != nil {
		t.Errorf("serve: exit %d, %v, %s", c, err, errOut.String())
	}
	return string(buf[:n]) + string(rest), errOut.String()
}

// The plain banner says where the server and its owner's ref are, and not what it is.
func TestTheBannerHasNoSecret(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "srv")
	for _, how := range []string{"written to", "in"} {
		printed, log := plainServe(t, "--data", dir)
		file := filepath.Join(dir, "owner.ref")
		ref := mustRef(t, "@"+file)
		if want := "listening on " + ref.Hosts[0] + " as mooring://" + ref.Hosts[0] + ", database sqlite, owner's ref " + how + " " + file + "\n"; printed != want {
			t.Errorf("it prints %q, want %q", printed, want)
		}
		if secret := ref.Secret.RevealText(); strings.Contains(printed+log, secret) || strings.Contains(printed+log, "#") {
			t.Error("the server tells the secret")
		}
	}
}
