package watch

// Delivery by a command.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/agentproc"
	"github.com/mooring-rpc/mooring/internal/notice"
)

// killGrace is how long a command that takes too long has to end after SIGTERM.
const killGrace = 3 * time.Second

// Command is a command line that is run for each notice.
type Command struct {
	Line    string        // for the shell
	Timeout time.Duration // of one try
	Tries   int           // of a notice
	Out     io.Writer     // what it prints
	Report  func(line string)
}

// Deliver runs the command until it succeeds, at most Tries times. The notice stands in its environment and, as a line of JSON, on its standard input. A notice that no try
// succeeded for is reported, and is no error; an end of ctx is.
func (c *Command) Deliver(ctx context.Context, n *notice.Notice) error {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(0))
	err := backoff.Retry(func() error {
		return c.run(ctx, n)
	}, backoff.WithContext(backoff.WithMaxRetries(wait, uint64(c.Tries-1)), ctx))
	switch {
	case ctx.Err() != nil:
		return fault.Canceled.With("stopped while %v was being delivered", n)
	case err != nil:
		c.Report(fmt.Sprintf("%v was not delivered: %v", n, err))
	}
	return nil
}

// run runs the command once, and ends all that it has started.
func (c *Command) run(ctx context.Context, n *notice.Notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	command := []string{"sh", "-c", c.Line}
	if runtime.GOOS == "windows" {
		command = []string{"cmd", "/C", c.Line}
	}
	p, err := agentproc.Start(agentproc.Config{Command: command, Env: environ(n), Mark: agentproc.NewMark(), Grace: c.Timeout})
	if err != nil {
		return fmt.Errorf("the command cannot be started: %w", errors.Unwrap(err))
	}
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		for {
			line, err := p.ReadLine()
			if err != nil && err != agentproc.ErrLongLine {
				return
			}
			fmt.Fprintf(c.Out, "%s\n", line)
		}
	}()
	_ = p.Send(text, nil) // it may not read it
	limited, cancel := context.WithTimeout(ctx, c.Timeout+killGrace)
	defer cancel()
	began := time.Now()
	err = p.End(limited)
	<-printed
	switch {
	case err != nil:
		return fmt.Errorf("the command does not end: %w", err)
	case ctx.Err() != nil:
		return ctx.Err()
	case time.Since(began) >= c.Timeout:
		err = fmt.Errorf("the command took longer than %v", c.Timeout)
	default:
		if err = p.ExitErr(); err != nil {
			err = fmt.Errorf("the command ended with %w", err)
		}
	}
	if last := strings.TrimSpace(p.Stderr()); err != nil && last != "" {
		err = fmt.Errorf("%w; it printed last: %s", err, last[strings.LastIndexByte(last, '\n')+1:])
	}
	return err
}

// environ returns the command's environment: this process's, without what is Mooring's, which may have refs, and with the notice.
func environ(n *notice.Notice) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MOORING_") })
	for _, v := range [][2]string{{"ID", n.ID}, {"EVENT", n.Type}, {"SESSION", n.Data.Session}, {"REQUEST", n.Data.Request}, {"KIND", n.Data.Kind}, {"MESSAGE", n.Data.Message}} {
		env = append(env, "MOORING_"+v[0]+"="+v[1])
	}
	return env
}
