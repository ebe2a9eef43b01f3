//go:build unix

// Commands that are killed, interrupted, or run twice at the same moment, as
// processes of their own.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
)

// process is a command that runs as a process.
type process struct {
	r        *cliRig
	cmd      *exec.Cmd
	args     string
	out, err bytes.Buffer
}

// run starts a command as a process of its own, on the rig's home folder.
func (r *cliRig) run(args ...string) *process {
	r.t.Helper()
	p := r.process(args...)
	p.start()
	return p
}

// process prepares what run starts.
func (r *cliRig) process(args ...string) *process {
	p := &process{r: r, args: strings.Join(args, " ")}
	p.cmd = exec.CommandContext(r.t.Context(), mooringProgram(), withHomeOf(args, r.home())...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	return p
}

func (p *process) start() {
	p.r.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.r.t.Fatal(err)
	}
}

// end waits for the process and gives its exit code.
func (p *process) end() int {
	p.r.t.Helper()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.r.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// runUnanswered starts a command and comes back when it has a connection and has
// sent something: the server does it all, and the command hears nothing of it.
func (r *cliRig) runUnanswered(args ...string) *process {
	r.t.Helper()
	r.proxy.SetDelay(150 * time.Millisecond) // for the time between the connection and the first answer
	defer r.proxy.SetDelay(0)
	before := r.proxy.Stats()
	p := r.run(args...)
	p.until("connects", func(s faultproxy.Stats) bool {
		return s.Forwarded[faultproxy.ToClient] > before.Forwarded[faultproxy.ToClient]
	})
	r.proxy.Blackhole(faultproxy.ToClient, 0)
	p.until("is answered", func(s faultproxy.Stats) bool {
		return s.Swallowed[faultproxy.ToClient] > before.Swallowed[faultproxy.ToClient]
	})
	return p
}

// until waits for what the proxy sees of the process.
func (p *process) until(label string, cond func(faultproxy.Stats) bool) {
	p.r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !cond(p.r.proxy.Stats()); <-tick.C {
		if time.Now().After(deadline) {
			p.r.t.Fatalf("mooring %s never %s", p.args, label)
		}
	}
}

// interrupt is Ctrl-C: the process must end with exit code 1 and a last line
// that says what becomes of what it was doing.
func (p *process) interrupt() {
	p.r.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		p.r.t.Fatal(err)
	}
	code := p.end()
	lines := strings.Split(strings.TrimSpace(p.err.String()), "\n")
	last := lines[len(lines)-1]
	if code != cli.ExitRefused || !strings.HasPrefix(last, "mooring: ") || !strings.Contains(last, "canceled: ") {
		p.r.t.Errorf("mooring %s, interrupted: exit %d, %q", p.args, code, p.err.String())
	}
}

// file writes a file into the rig's folder.
func (r *cliRig) file(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// manyLines are n op lines of as many batches.
func manyLines(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"method":"put","key":"message/%s%d","payload":{},"batch":"%d"}`+"\n", prefix, i, i)
	}
	return b.String()
}

// eachOnce checks that n messages of a prefix are among keys once.
func eachOnce(t *testing.T, keys []string, prefix string, n int) {
	t.Helper()
	for i := range n {
		if c := count(keys, fmt.Sprint(prefix, i)); c != 1 {
			t.Errorf("%s%d is there %d times", prefix, i, c)
		}
	}
}

func TestAKilledCommandIsRunAgain(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_killed")
	kills := 0
	points := []string{
		crashpoint.OutboxCommitBefore, crashpoint.OutboxCommitAfter, crashpoint.OutboxSendAfter,
		crashpoint.OutboxAckBefore, crashpoint.OutboxAckAfter,
	}
	for i, point := range points {
		// An op id of one's own makes an append repeatable.
		line := fmt.Sprintf(`{"method":"put","key":"message/append%d","payload":{},"op_id":"01JABCDEFGHJKMNPQRSTVWXYZ%d"}`, i, i)
		file := r.file(fmt.Sprint("op", i), line)
		if r.killed(point+":1", "session", "append", id, file, "--wait") {
			kills++
		}
		again := r.runIn("", "session", "append", id, file, "--wait")
		if again.code != cli.ExitOK && !strings.Contains(again.err, "already_exists") {
			t.Errorf("append after a kill at %s: exit %d, %s", point, again.code, again.err)
		}
	}
	r.stop()
	r.ok("session", "append", id, r.file("queued", manyLines("queued", 6)))
	r.start()
	for _, point := range points[2:4] {
		if r.killed(point+":2", "outbox", "drain") {
			kills++
		}
	}
	r.ok("outbox", "drain")
	ref := r.shareTo("shared", id, "--rights", "read")
	if r.killed(crashpoint.OutboxCommitAfter, "share", id, "--rights", "read", "--to", filepath.Join(r.dir, "never.ref")) {
		kills++
	}
	r.okAs(r.otherHome("reader"), "", "redeem", r.shareTo("never", id, "--rights", "read"))
	// Revoking goes around the outbox; twice is as good as once.
	cut := r.ok("revoke", ref)
	if again := r.ok("revoke", ref); again != cut {
		t.Errorf("revoke says %q, and then %q", cut, again)
	}
	if kills < len(points) {
		t.Errorf("only %d commands were killed", kills)
	}
	keys := r.keys(id)
	eachOnce(t, keys, "append", len(points))
	eachOnce(t, keys, "queued", 6)
	if st := r.statusOf(r.home()); len(st.Streams) != 0 || st.States["failed"] != 0 {
		t.Errorf("outbox status: %+v", st)
	}
}

func TestTheSameCommandTwiceAtOnce(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	r.ok("session", "list", "--owner", r.owner())
	const name = "a-edit-1.18.33"
	twice := func(args ...string) (outs []string) {
		t.Helper()
		both := []*process{r.run(args...), r.run(args...)}
		for _, p := range both {
			if code := p.end(); code != cli.ExitOK {
				t.Fatalf("one of two mooring %s: exit %d, %s", p.args, code, p.err.String())
			}
			outs = append(outs, p.out.String())
		}
		return outs
	}
	ids := twice("session", "import", opencodetest.Path(t, name+".jsonl"))
	id := strings.TrimSpace(ids[0])
	if ids[0] != ids[1] {
		t.Errorf("imported as %q", ids)
	}
	opencodetest.CheckExport(t, name, []byte(r.ok("session", "export", id)))
	if list := r.ok("session", "list", "--json"); strings.Count(list, "\n") != 1 {
		t.Errorf("the sessions are\n%s", list)
	}
	imported := len(r.keys(id))

	// Both appends hold: they are two commands, and each says so.
	twice("session", "append", id, r.file("both", manyLines("both", 10)), "--wait")
	r.stop()
	r.ok("session", "append", id, r.file("queued", manyLines("queued", 10)))
	r.start()
	twice("outbox", "drain")
	keys := r.keys(id)
	eachOnce(t, keys, "queued", 10)
	for i := range 10 { // a put equal to what is there makes no event
		if n := count(keys, fmt.Sprint("both", i)); n != 1 {
			t.Errorf("both%d made %d events", i, n)
		}
	}
	if st := r.statusOf(r.home()); len(keys) != imported+20 || len(st.Streams) != 0 || st.States["failed"] != 0 {
		t.Errorf("%d events after %d, outbox status %+v", len(keys), imported, st)
	}
}

func TestCtrlCLosesNothing(t *testing.T) {
	t.Parallel()
	const name = "a-edit-1.18.33"
	file := opencodetest.Path(t, name+".jsonl")
	r := newCLI(t, "")
	r.ok("session", "list", "--owner", r.owner())
	for _, args := range [][]string{{"session", "import", file}, {"outbox", "drain"}} {
		p := r.runUnanswered(args...)
		p.interrupt()
		if st := r.statusOf(r.home()); st.States["in_flight"]+st.States["pending"] == 0 {
			t.Errorf("nothing waits after mooring %s: %+v", p.args, st)
		}
		r.proxy.Cut()
	}
	id := strings.TrimSpace(r.ok("session", "import", file))
	opencodetest.CheckExport(t, name, []byte(r.ok("session", "export", id)))
	r.keys(id) // are without gaps and repeats
	ops := 1   // the create
	for _, b := range opencodetest.Read(t, name+".jsonl", opencodetest.Limits).Batches {
		ops += len(b.Puts)
	}
	if st := r.statusOf(r.home()); st.States["acked"] != ops || len(st.Streams) != 0 {
		t.Errorf("after two interruptions %+v, the recording has %d ops", st, ops)
	}
}
