// Waiting for a server: for how long, and what is said meanwhile.

package home

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
)

// DrainBriefly lets the sender finish batches that can be sent at once.
func (h *Folder) DrainBriefly(ctx context.Context, c *client.Client) {
	st, err := c.Outbox().Queue(ctx)
	if err != nil || st.Unfinished() == 0 || BlockedBy(ctx, c) != nil {
		return
	}
	for _, s := range st.Streams {
		if s.Stopped != fault.None {
			return // someone has to decide; status tells why
		}
	}
	wait, stop := WhileReachable(ctx, c, 2*time.Second)
	defer stop()
	_ = c.Drain(wait, nil) // a later command sends the rest
}

// GraceUnreachable is how long a server may be unreachable before a command goes on without it.
const GraceUnreachable = 400 * time.Millisecond

// WhileReachable returns a context that ends after limit (0: never), or when no server could be reached for
// GraceUnreachable.
func WhileReachable(ctx context.Context, c *client.Client, limit time.Duration) (context.Context, context.CancelFunc) {
	wait, stop := context.WithCancel(ctx)
	if limit > 0 {
		wait, stop = context.WithTimeout(ctx, limit)
	}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		var since time.Time
		for {
			select {
			case <-wait.Done():
				return
			case now := <-tick.C:
				switch {
				case BlockedBy(wait, c) == nil:
					since = time.Time{}
				case since.IsZero():
					since = now
				case now.Sub(since) > GraceUnreachable:
					stop()
				}
			}
		}
	}()
	return wait, stop
}

// BlockedBy returns why nothing can be sent at present, by this process or by the outbox's sender; nil if no reason is
// known. A quota blocks until someone acts on it.
func BlockedBy(ctx context.Context, c *client.Client) error {
	if err := cmp.Or(c.ConnErr(), c.Err()); err != nil {
		return err
	}
	st, err := c.Outbox().Queue(ctx)
	if err != nil || st.LeasedUntil.IsZero() || len(st.Streams) == 0 {
		return nil
	}
	for _, s := range st.Streams {
		if s.LastError == "" || st.Sending && !BlockedByQuota(s.LastError) {
			return nil
		}
	}
	return errors.New(st.Streams[0].LastError)
}

// QuietWait is how long a command waits before it prints the reason.
const QuietWait = 2 * time.Second

// ReportWaiting prints, until stop is called, why a command is waiting for answers: each reason once, when the command
// has had one for QuietWait. Nothing is printed after stop returns.
func (h *Folder) ReportWaiting(ctx context.Context, c *client.Client) (stop func()) {
	if h.Env.JSON {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(QuietWait / 10)
		defer tick.Stop()
		var since time.Time
		for message := ""; ; {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				err := WaitReason(ctx, c)
				switch {
				case err == nil || ctx.Err() != nil:
					since = time.Time{}
				case since.IsZero():
					since = now
				case now.Sub(since) >= QuietWait && err.Error() != message:
					message = err.Error()
					fmt.Fprintf(h.Env.Err, "waiting: %s\n", cli.SanitizeLine(message))
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// WaitReason returns why pending ops have not been answered yet, as far as known: the reason for all of them, or the
// server's last error.
func WaitReason(ctx context.Context, c *client.Client) error {
	if err := cmp.Or(c.ConnErr(), c.Err()); err != nil {
		return err
	}
	st, err := c.Outbox().Queue(ctx)
	if err != nil {
		return nil
	}
	for _, s := range st.Streams {
		if s.Stopped == fault.None && s.LastError != "" {
			return errors.New(s.LastError)
		}
	}
	return nil
}

// BlockedByQuota reports whether a stream's last error is that of a quota.
func BlockedByQuota(lastError string) bool {
	return strings.HasPrefix(lastError, fault.QuotaExceeded.String())
}

// SendGrace is how long a command whose work is durable waits for a server that can be reached.
const SendGrace = 3 * time.Second
