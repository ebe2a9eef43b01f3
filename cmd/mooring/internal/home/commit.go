// Batches that are committed: their answers, and what is said of those that have none yet.

package home

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
)

// CommitRef commits a batch, named by what, that mints a ref, and writes the ref to a file before it is
// used anywhere. It waits for the answer while a server can be reached; without one the batch is durable
// all the same (queued), which it reports with what happens then. If the batch is refused, or will not be
// answered until someone decides, refused says why, and the file is discarded: the ref may never work.
func (h *Folder) CommitRef(ctx context.Context, c *client.Client, b *client.Batch, ref capability.Ref, file *cli.RefFile, what, then string) (queued bool, refused, err error) {
	err = file.Write(ref)
	var ticket client.Ticket
	if err == nil {
		ticket, err = b.Commit(ctx)
	}
	if err != nil {
		file.Discard()
		return false, nil, err
	}
	wait, stop := WhileReachable(ctx, c, SendGrace)
	defer stop()
	results, still, err := AwaitResults(ctx, wait, c, ticket)
	if err == nil && still == nil && results == nil && h.isCopied(ctx, c, ref.Target()) {
		then = "the server goes on copying, and the fork is there once the outbox has asked for it again: mooring outbox drain waits for it"
		results, still, err = h.awaitCopy(ctx, c, ticket)
	}
	switch {
	case err == nil && results.Err() != nil:
		refused = fmt.Errorf("the %s was refused: %w", what, results.Err())
	case still != nil:
		refused = errors.Join(fmt.Errorf("the %s was not sent, and is given up: %w", what, StoppedError(still)), DropBatch(ctx, c, ticket))
	}
	if refused != nil {
		file.Discard()
		return false, refused, nil
	}
	if err = errors.Join(err, file.Commit()); err != nil {
		return false, nil, err
	}
	if results == nil {
		h.ReportQueued(ctx, c, then)
	}
	return results == nil, nil, nil
}

// isCopied reports whether a session is a fork that the server is still copying.
func (h *Folder) isCopied(ctx context.Context, c *client.Client, id string) bool {
	st, err := c.Outbox().Queue(ctx)
	return err == nil && slices.ContainsFunc(st.Streams, func(s outbox.StreamStatus) bool {
		return s.Session == id && strings.HasPrefix(s.LastError, fault.NotYetKnown.String()+": "+session.ForkWaits)
	})
}

// awaitCopy waits for such a fork while its server can be reached, and shows how far it is.
func (h *Folder) awaitCopy(ctx context.Context, c *client.Client, t client.Ticket) (client.Results, *outbox.StreamStoppedError, error) {
	wait, stop := WhileReachable(ctx, c, 0)
	defer stop()
	defer h.ReportWaiting(wait, c)()
	return AwaitResults(ctx, wait, c, t)
}

// AwaitResults waits for a batch's outcomes until wait ends. Nil results: not answered yet; still
// is set if the batch will not be answered until someone decides.
func AwaitResults(ctx, wait context.Context, c *client.Client, t client.Ticket) (results client.Results, still *outbox.StreamStoppedError, err error) {
	results, err = t.Wait(wait)
	switch {
	case errors.As(err, &still):
		return nil, still, nil
	case err != nil && wait.Err() != nil:
		still, err = c.Outbox().Stopped(context.WithoutCancel(ctx), t.Session)
		return nil, still, err
	}
	return results, nil, err
}

// StoppedError returns the error of a command whose ops stay in the outbox because their stream
// has stopped, and the next steps.
func StoppedError(still *outbox.StreamStoppedError) error { return WithNextSteps(still, still) }

// WithNextSteps adds to an error what can be done about a stopped stream.
func WithNextSteps(err error, still *outbox.StreamStoppedError) error {
	if !outbox.NeedsNewStream(still.Code) {
		return err
	}
	return fmt.Errorf("%w. mooring outbox reconcile %s shows what the session lacks and sends it, and what is pending; mooring outbox abandon %s gives all of it up", err, still.Session, still.Session)
}

// DropBatch drops a pending batch that no output has reported as done.
func DropBatch(ctx context.Context, c *client.Client, t client.Ticket) error {
	for _, op := range t.Ops {
		if err := c.Outbox().Drop(context.WithoutCancel(ctx), op); err != nil && fault.CodeOf(err) != fault.Usage {
			return err
		}
	}
	return nil
}

// ReportQueued tells the user that ops are queued in the outbox, and why.
func (h *Folder) ReportQueued(ctx context.Context, c *client.Client, then string) {
	if h.Env.JSON {
		return
	}
	why := "not answered yet"
	if err := WaitReason(ctx, c); err != nil {
		why = cli.SanitizeLine(err.Error())
	}
	fmt.Fprintf(h.Env.Err, "durable in the outbox, to be sent by any later command or mooring outbox drain (%s); %s\n", why, then)
}
