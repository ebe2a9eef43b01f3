// mooring rotate: replaces an owner's ref that may have leaked.

package refcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// Rotate returns the command mooring rotate.
func Rotate(env *cli.Env) *cobra.Command {
	var file string
	var takeOver bool
	cmd := &cobra.Command{
		Use:   "rotate REF",
		Short: "Replace an owner's ref with a new one",
		Long: "Replace a session's owner's ref, or a space's root ref, with a new one. Everything that was\n" +
			"made from the old one then belongs to the new one; only the old ref itself dies. The new one\n" +
			"is stored in the home folder, where pending ops are sent under it. It is not printed: --to\n" +
			"writes it to a file. If the answer is lost, run it again; REF may still be the old one.\n" +
			"Until the server has answered, nothing is sent under the old one, and the next command of\n" +
			"the home folder continues the rotation. With --take-over SPACE/ID replaces the owner's ref of a\n" +
			"session that another made; whoever has that one loses the session.\n\n" + home.RefHelp,
		Example: "  mooring rotate ses_01J…\n  mooring rotate @srv/owner.ref --to srv/owner.ref",
		Args:    cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.Flags().StringVar(&file, "to", "", "write the new ref to this file (mode 0600), which may be the old one's")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "of a session of a space (SPACE/ID), take it from its owner")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return rotateRef(ctx, h, c, args[0], file, takeOver)
		})
	}
	h.CompleteRefs(cmd)
	return cmd
}

func rotateRef(ctx context.Context, h *home.Folder, c *client.Client, arg, name string, takeOver bool) error {
	s, sp, err := h.SessionOrSpace(ctx, c, arg, capability.SpaceRights)
	if err != nil {
		return err
	}
	file, err := cli.NewRefFile(name, true)
	if err != nil {
		return err
	}
	var fresh, old capability.Ref
	before := false
	if ref, id, err := h.Ref(ctx, arg); err == nil && id == "" {
		kept, err := c.Outbox().Ref(ctx, ref.ID)
		before = err == nil && kept.ID != ref.ID
	}
	var cut client.Cut
	if sp != nil {
		old = sp.Ref()
		if sp, err = sp.Rotate(ctx); err == nil {
			fresh = sp.Ref()
		}
	} else {
		old = s.Ref()
		if h.Arg(ctx, arg).Under != "" {
			if !takeOver {
				file.Discard()
				return fault.Usage.With("this would replace the ref of the session's owner, who loses the session then: --take-over, if it is meant")
			}
			old.ID = "the owner's ref"
			if s, cut, err = s.TakeOver(ctx); err == nil {
				fresh = s.Ref()
			}
		} else if s, cut, err = s.Rotate(ctx); err == nil {
			fresh = s.Ref()
		}
	}
	if err != nil {
		file.Discard()
		return explainPendingRotation(ctx, h, c, old.ID, err)
	}
	if err = errors.Join(file.Write(fresh), file.Commit()); err != nil {
		return fmt.Errorf("the rotation is done and the new ref is in the home folder; mooring rotate %s --to FILE writes another to a file: %w", fresh.ID, err)
	}
	if err := h.ReplaceOwner(old.ID, fresh.ID); err != nil {
		return err
	}
	if h.Env.JSON {
		shown := map[string]any{"ref": fresh.ID, "replaced": old.ID}
		if cut.Cursor != 0 {
			shown["cut"] = cut.Cursor
		}
		if before {
			shown["before"] = true
		}
		return h.Env.PrintJSON(shown)
	}
	switch stale, from := strings.CutPrefix(arg, "@"); {
	case name != "":
		fmt.Fprintf(h.Env.Err, "the new ref is in %s\n", name)
	case from:
		fmt.Fprintf(h.Env.Err, "%s still holds the old ref, which is dead; the new one is in the home folder: mooring rotate %s --to %s makes one for the file\n", stale, fresh.ID, stale)
	case sp != nil:
		fmt.Fprintf(h.Env.Err, "a file with the old ref, as the server's owner.ref may be, holds a dead one now: mooring rotate %s --to FILE makes one for it\n", fresh.ID)
	}
	end := ""
	if cut.Cursor != 0 {
		end = fmt.Sprintf("; the cut is at cursor %d", cut.Cursor)
	}
	how := "replaced"
	if before {
		how = "replaced before:"
	}
	_, err = fmt.Fprintf(h.Env.Out, "%s\n%s %s%s\n", fresh.ID, how, old.ID, end)
	return err
}

// explainPendingRotation adds to an error what happens to the rotation, if it is pending.
func explainPendingRotation(ctx context.Context, h *home.Folder, c *client.Client, old string, err error) error {
	pending, e := c.Outbox().Rotations(context.WithoutCancel(ctx))
	if _, waits := pending[old]; e != nil || !waits {
		return err
	}
	why := err.Error()
	var f *fault.Error
	if errors.As(err, &f) {
		why = f.Message
	}
	return fault.CodeOf(err).Because(err, "the rotation is begun and not answered (%s); nothing is sent under the old ref until it is, and it goes on with the next command that reaches the server: run it again to see it done", why)
}
