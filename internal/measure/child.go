package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// Child is a process that does what it is asked for over its standard input and answers over its standard output, in
// values of JSON. It ends when its input does, so it does not outlive its parent. One goroutine uses it at a time.
type Child struct {
	cmd   *exec.Cmd
	input io.Closer
	in    *json.Encoder
	out   *json.Decoder
	log   strings.Builder // what it writes to standard error
}

// patience is how much longer than it should a request, or the end, may take.
const patience = time.Minute

// StartChild starts a child with start, which calls cmd.Start.
func StartChild(cmd *exec.Cmd, start func() error) (*Child, error) {
	c := &Child{cmd: cmd}
	cmd.Stderr, cmd.WaitDelay = &c.log, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.input, c.in, c.out = in, json.NewEncoder(in), json.NewDecoder(out)
	return c, start()
}

// Ask sends a request and reads the answer, which should take no longer than that. A child that is stuck is killed.
func (c *Child) Ask(request, answer any, takes time.Duration) error {
	stuck := time.AfterFunc(takes+patience, func() { _ = c.cmd.Process.Kill() })
	defer stuck.Stop()
	err := c.in.Encode(request)
	if err == nil {
		err = c.out.Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("a child has gone or is stuck: %w", err)
	}
	return nil
}

// Stop ends the child. The error has what it wrote to standard error.
func (c *Child) Stop() error {
	stuck := time.AfterFunc(patience, func() { _ = c.cmd.Process.Kill() })
	defer stuck.Stop()
	err := c.input.Close()
	if ended := c.cmd.Wait(); ended != nil {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("child: %w\n%s", err, c.log.String())
	}
	return nil
}
