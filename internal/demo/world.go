// The processes that the demo runs.

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

// world is what the demo runs: the server's process, the proxy before it, and
// two agents, each a home folder.
type world struct {
	dir   string
	bin   string
	page  *page
	proxy *faultproxy.Proxy

	addr   string // the server's own, behind the proxy
	server *exec.Cmd
	tails  []*tail
}

func (w *world) agentHome() string  { return filepath.Join(w.dir, "agent") }
func (w *world) viewerHome() string { return filepath.Join(w.dir, "viewer") }
func (w *world) ownerRef() string   { return filepath.Join(w.dir, "server", "owner.ref") }

func (w *world) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", w.bin, "./cmd/mooring")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	w.page.say("go build ./cmd/mooring: one binary, no C.")
	return nil
}

// serve starts the server for the first time, on a free port, and the proxy
// that all refs will name.
func (w *world) serve(ctx context.Context) (err error) {
	if w.proxy, err = faultproxy.Listen("127.0.0.1:1"); err != nil {
		return err
	}
	banner, err := w.start(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	w.page.ran([]string{"serve", "--data", "server", "--advertise", "mooring://" + w.proxy.Addr()}, banner, "")
	return nil
}

// restart kills the server with SIGKILL and starts it again where it was.
func (w *world) restart(ctx context.Context) error {
	if err := w.server.Process.Kill(); err != nil {
		return err
	}
	_ = w.server.Wait() // killed: that is its error
	_, err := w.start(ctx, w.addr)
	return err
}

// start runs the server until its banner names the address it listens on.
func (w *world) start(ctx context.Context, listen string) (string, error) {
	w.server = exec.Command(w.bin, "serve", "--listen", listen,
		"--data", filepath.Join(w.dir, "server"), "--advertise", "mooring://"+w.proxy.Addr())
	log, err := os.OpenFile(filepath.Join(w.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer log.Close()
	w.server.Stderr = log
	out, err := w.server.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := w.server.Start(); err != nil {
		return "", err
	}
	var banner strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&banner, strings.ReplaceAll(lines.Text(), w.dir+"/", ""))
		if rest, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			w.addr, _, _ = strings.Cut(rest, " ")
			w.proxy.SetTarget(w.addr)
			return banner.String(), nil
		}
	}
	said, _ := os.ReadFile(log.Name())
	return "", fmt.Errorf("the server did not start: %s", bytes.TrimSpace(said))
}

// agent runs one command as the sharing agent and shows it.
func (w *world) agent(ctx context.Context, args ...string) (string, error) {
	return w.shown(ctx, w.agentHome(), args)
}

// viewer runs one command as the second agent and shows it.
func (w *world) viewer(ctx context.Context, args ...string) (string, error) {
	return w.shown(ctx, w.viewerHome(), args)
}

func (w *world) shown(ctx context.Context, home string, args []string) (string, error) {
	out, errOut, err := w.run(ctx, home, args)
	w.page.ran(w.short(args), out, errOut)
	return out, err
}

// viewerRefused runs a command that must be refused, shows it and gives the refusal.
func (w *world) viewerRefused(ctx context.Context, args ...string) (string, error) {
	out, errOut, err := w.run(ctx, w.viewerHome(), args)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		return "", fmt.Errorf("mooring %s: want a refusal (exit code 1), got %v: %s", strings.Join(args, " "), err, out)
	}
	w.page.ran(w.short(args), out, errOut)
	return errOut, nil
}

// quiet runs one command and gives what it printed on standard output.
func (w *world) quiet(ctx context.Context, home string, args ...string) (string, error) {
	out, _, err := w.run(ctx, home, args)
	return out, err
}

// run runs one command and gives what it printed on both outputs.
func (w *world) run(ctx context.Context, home string, args []string) (out, errOut string, err error) {
	cmd := exec.CommandContext(ctx, w.bin, append([]string{"--home", home}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("mooring %s: %w: %s", strings.Join(w.short(args), " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), stderr.String(), err
}

// short leaves this machine's temporary folder out of a command line.
func (w *world) short(args []string) []string {
	var s []string
	for _, a := range args {
		s = append(s, strings.ReplaceAll(a, w.dir+"/", ""))
	}
	return s
}

func (w *world) close() {
	for _, t := range w.tails {
		t.stop()
	}
	if w.server != nil && w.server.ProcessState == nil {
		_ = w.server.Process.Kill()
		_ = w.server.Wait()
	}
	if w.proxy != nil {
		_ = w.proxy.Close()
	}
}
