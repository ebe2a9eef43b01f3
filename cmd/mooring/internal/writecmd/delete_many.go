// mooring session delete: several sessions at once.

package writecmd

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// maxConcurrentDeletes is how many sessions are deleted at once: as many as a server commits
// together, and an outbox sends.
const maxConcurrentDeletes = 128

// deleteMany deletes the sessions of refs. An error for one does not stop the others.
func deleteMany(ctx context.Context, h *home.Folder, args []string, yes bool, f singleOp) error {
	if !yes && (slices.Contains(args, "-") || !h.Env.CanAsk()) {
		return fault.Usage.With("this cannot be undone, and there is no terminal to ask on: give --yes")
	}
	refs, err := expandRefs(ctx, h, args)
	if err != nil {
		return err
	}
	for _, ref := range refs { // before anything is done
		if err := h.Arg(ctx, ref).Err; err != nil {
			return err
		}
	}
	return h.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		var sessions []*client.Session
		there := map[string]bool{}
		for _, ref := range refs {
			s, err := h.Session(ctx, c, ref)
			if err != nil {
				return err
			}
			if !there[s.ID()] {
				sessions = append(sessions, s)
			}
			there[s.ID()] = true
		}
		h.ForgetTarget() // errors are of more than one session
		if len(sessions) == 0 {
			return nil
		}
		if !yes && !h.Env.Confirm(ctx, fmt.Sprintf("%s: %s, for good?", cli.Plural(len(sessions), "session"), "delete with all refs to them")) {
			return fault.Canceled.With("nothing was done")
		}
		return deleteAll(ctx, h, c, sessions, f)
	})
}

// expandRefs returns args, with "-" replaced by the lines of standard input.
func expandRefs(ctx context.Context, h *home.Folder, args []string) (refs []string, err error) {
	read := false
	for _, arg := range args {
		if arg != "-" {
			refs = append(refs, arg)
			continue
		}
		if read {
			return nil, fault.Usage.With("- is given twice, but standard input can be read only once")
		}
		read = true
		in, closeIn, err := h.Env.Input(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer closeIn()
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			if line := home.TrimRef(lines.Text()); line != "" {
				refs = append(refs, line)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("read refs from standard input: %w", err)
		}
	}
	return refs, nil
}

// deleteAll deletes sessions, up to maxConcurrentDeletes at once, and prints each outcome.
func deleteAll(ctx context.Context, h *home.Folder, c *client.Client, sessions []*client.Session, f singleOp) error {
	wait, stop := home.WhileReachable(ctx, c, 0)
	defer stop()
	defer h.ReportWaiting(wait, c)()
	type outcome struct {
		shown Result
		err   error
	}
	todo, done := make(chan *client.Session), make(chan outcome)
	var all sync.WaitGroup
	for range min(maxConcurrentDeletes, len(sessions)) {
		all.Go(func() {
			for s := range todo {
				var o outcome
				o.shown, o.err = commitAndAwait(ctx, wait, c, s, f)
				done <- o
			}
		})
	}
	go func() {
		for _, s := range sessions {
			todo <- s
		}
		close(todo)
		all.Wait()
		close(done)
	}()
	var failed, queued int
	var first, printing error
	for o := range done {
		switch {
		case o.err != nil:
			failed++
			if first == nil {
				first = o.err
			}
			fmt.Fprintf(h.Env.Err, "%s: %s\n", o.shown.Session, cli.SanitizeLine(o.err.Error()))
		case printing != nil: // the output is closed: go on all the same
		case h.Env.JSON:
			printing = h.Env.PrintJSON(o.shown)
		case o.shown.Queued:
			queued++
		default:
			_, printing = fmt.Fprintf(h.Env.Out, "%s %s\n", o.shown.Session, f.summary(o.shown))
		}
	}
	if queued > 0 {
		h.ReportQueued(ctx, c, fmt.Sprintf("%s are deleted when that has arrived", cli.Plural(queued, "session")))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s were not deleted; the first: %w", failed, cli.Plural(len(sessions), "session"), first)
	}
	return printing
}
