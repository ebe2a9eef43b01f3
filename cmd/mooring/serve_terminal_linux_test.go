package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/selfsigned"
)

// The end of its terminal is to a server as SIGTERM, though its certificate could be
// read again.
func TestTerminalsEndDrains(t *testing.T) {
	t.Parallel()
	withoutNohup(t)
	dir := t.TempDir()
	cert, key, _ := selfsigned.Write(t, dir)
	p := newPTY(t)
	line := serveLine(t.TempDir(), "--tls-cert", cert, "--tls-key", key)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Stdin, cmd.SysProcAttr = p.tty, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s := startSignalled(t, cmd)
	_ = p.tty.Close()
	_ = p.keys.Close() // the window is closed
	if code := s.code(); code != cli.ExitOK || !strings.Contains(s.log.String(), `"msg":"draining"`) {
		t.Errorf("the server ended with %d: %s", code, s.log.String())
	}
}
