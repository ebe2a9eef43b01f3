// mooring refs forget: drops a ref from the home folder.

package refcmd

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

func refsForgetCmd(h *home.Folder) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "forget REF",
		Short: "Drop a ref from the home folder",
		Long: "Drop a ref from the home folder. On the server it stays valid; mooring revoke ends it. The\n" +
			"ref is kept while ops in the outbox are to be sent under it, or a rotation of it is not\n" +
			"answered; --force gives these up. --force is also needed if this may be the only copy: the\n" +
			"owner's ref of a session that was made here, and a ref that a rotation made. A command that\n" +
			"is running under it (session tail --follow) continues until it ends.\n\n" +
			"REF is the ref's text, @FILE that contains it, its id, or the id of a session of which the home\n" +
			"folder knows one ref.",
		Example: "  mooring refs forget @reader.ref\n  mooring refs forget ses_01J….o4tq…",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			work := h.WithOfflineClient // nothing has to be sent
			if force {
				work = h.WithClient
			}
			return work(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return forgetRef(ctx, h, c, args[0], force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "give up ops that are to be sent under it; forget an owner's ref")
	return cmd
}

func forgetRef(ctx context.Context, h *home.Folder, c *client.Client, arg string, force bool) error {
	saved, err := findSavedRef(ctx, h, c.Outbox(), arg)
	if err != nil {
		return err
	}
	queued, err := queuedUnder(ctx, c.Outbox(), saved.ID)
	if err != nil {
		return err
	}
	rotations, err := c.Outbox().Rotations(ctx)
	if err != nil {
		return err
	}
	_, rotating := rotations[saved.ID]
	switch {
	case rotating && !force:
		return fault.InUse.With("this ref is being rotated, and the one to take its place may be the owner's already: run mooring rotate again, or give both up with --force")
	case len(queued) > 0 && !force:
		return fault.InUse.With("%s to be sent under this ref: mooring outbox drain sends them, and --force gives them up", cli.Plural(len(queued), "op"))
	case saved.Rotated && !force:
		return fault.InUse.With("this ref was made here by a rotation, and is perhaps the only copy: rotate it --to a file first, or give --force")
	case saved.Role == outbox.SessionOwner && !force:
		return fault.InUse.With("this is the owner's ref of a session that was made here, and perhaps the only copy: share or save it first, or give --force")
	}
	given := map[string]bool{}
	for _, row := range queued {
		// Dropping an op of an atomic batch drops its siblings, which are then finished.
		if err := c.Outbox().Drop(ctx, row.Op); err != nil && fault.CodeOf(err) != fault.Usage {
			return err
		}
		given[row.Batch] = true
	}
	// Ops that may have been sent are resolved under the ref, while it is still saved.
	wait, stop := home.WhileReachable(ctx, c, home.SendGrace)
	defer stop()
	for batch := range given {
		if _, err := c.Ticket(batch).Wait(wait); err != nil && wait.Err() != nil {
			break
		}
	}
	left, err := queuedUnder(ctx, c.Outbox(), saved.ID)
	if err != nil {
		return err
	}
	if err := c.Outbox().DropRef(ctx, saved.ID, force); err != nil {
		return err
	}
	if h.Env.JSON {
		return h.Env.PrintJSON(map[string]any{"ref": saved.ID, "forgotten": true, "dropped": len(queued), "unknown": len(left)})
	}
	if len(left) > 0 {
		fmt.Fprintf(h.Env.Err, "%s may have reached the server already: their outcomes will not be known here\n", cli.Plural(len(left), "op"))
	}
	_, err = fmt.Fprintf(h.Env.Out, "forgot %s\n", saved.ID)
	return err
}

// findSavedRef returns a ref of the home folder.
func findSavedRef(ctx context.Context, h *home.Folder, box *outbox.Box, arg string) (outbox.SavedRef, error) {
	ref, id, err := h.Ref(ctx, arg)
	if err != nil {
		return outbox.SavedRef{}, err
	}
	if id == "" {
		id = ref.ID
	}
	all, err := box.Refs(ctx)
	if err != nil {
		return outbox.SavedRef{}, err
	}
	var fits []outbox.SavedRef
	for _, r := range all {
		if r.ID == id {
			return r, nil
		}
		if r.Target() == id || r.External != "" && r.External == id {
			fits = append(fits, r)
		}
	}
	switch len(fits) {
	case 0:
		return outbox.SavedRef{}, fault.NotFound.With("the home folder knows no such ref: there is nothing to forget")
	case 1:
		return fits[0], nil
	}
	ids := make([]string, len(fits))
	for i, r := range fits {
		ids[i] = r.ID
	}
	return outbox.SavedRef{}, fault.Ambiguous.With("the home folder knows %d refs for that: say which, by its id: %s", len(fits), strings.Join(ids, ", "))
}

// queuedUnder returns the ops queued under a ref: in its batches, and in those that create the
// session whose owner's ref it is.
func queuedUnder(ctx context.Context, box *outbox.Box, id string) (queued []outbox.Row, err error) {
	rows, err := box.List(ctx, outbox.Filter{States: []outbox.State{outbox.Pending, outbox.InFlight}})
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		via := r.Via
		if now, err := box.Ref(ctx, via); err == nil {
			via = now.ID // the ref that replaced it
		}
		if via == id || r.Session == capability.Target(id) && capability.IsSpace(capability.Target(r.Via)) {
			queued = append(queued, r)
		}
	}
	return queued, nil
}
