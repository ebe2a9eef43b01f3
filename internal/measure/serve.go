// Serve: the command as a process to be measured.

package measure

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Serve is mooring serve on SQLite, on a port of loopback.
type Serve struct {
	Address string // where it listens
	Owner   string // the ref of its owner

	cmd *exec.Cmd
	log strings.Builder
}

// StartServe starts program, which may be of any commit, with its data in dir and further arguments. It is stopped when ctx ends.
func StartServe(ctx context.Context, program, dir string, args ...string) (_ *Serve, err error) {
	s := &Serve{cmd: exec.CommandContext(ctx, program, append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", dir}, args...)...)}
	s.cmd.Env = append(os.Environ(), "MOORING_DATABASE_URL=")
	s.cmd.Stderr, s.cmd.WaitDelay = &s.log, 10*time.Second
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	line, err := bufio.NewReader(out).ReadBytes('\n') // it says that it listens
	if err != nil {
		return nil, fmt.Errorf("mooring serve did not start: %w", err)
	}
	var said struct {
		Listening string
		OwnerRef  string `json:"owner_ref"`
	}
	if err := json.Unmarshal(line, &said); err != nil {
		return nil, fmt.Errorf("mooring serve said %q: %w", line, err)
	}
	owner, err := os.ReadFile(said.OwnerRef)
	s.Address, s.Owner = said.Listening, strings.TrimSpace(string(owner))
	return s, err
}

// PID is the process's number.
func (s *Serve) PID() int { return s.cmd.Process.Pid }

// Stop ends the process and waits until it has ended. Its error has what the process wrote to standard error.
func (s *Serve) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("mooring serve: %w\n%s", err, s.log.String())
	}
	return nil
}
