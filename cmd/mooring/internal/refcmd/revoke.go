// mooring revoke: revokes a ref, or a session's epoch.

package refcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// Revoke returns the command mooring revoke.
func Revoke(env *cli.Env) *cobra.Command {
	var epoch, yes, takeOver bool
	cmd := &cobra.Command{
		Use:   "revoke REF",
		Short: "Revoke a ref and all made from it, or every share of a session",
		Long: "Revoke a ref and all refs made from it, or with --epoch every share of a session, and print\n" +
			"the cursor of the cut: nothing under that authority commits after it. It is done at once,\n" +
			"under the home folder's best ref for the session, or else under REF itself. Revoking a\n" +
			"space's ref also ends the refs of all sessions that were made under it, and prints the\n" +
			"number of refs that died. A session's ref can also be revoked under its space's. Revoking an\n" +
			"owner's ref or a space's root ref ends every ref, maybe the only ones: it asks on a\n" +
			"terminal; otherwise it needs --yes. To replace one that has leaked, use mooring rotate.\n\n" +
			"REF is the text of the ref to revoke, @FILE that contains it, or the ref's id (as share, redeem\n" +
			"and tail print it). With --epoch it can be a session's id too. SPACE/REF-ID, and SPACE/ID with --epoch,\n" +
			"revoke by the right manage, where SPACE is a ref of the session's space; the session's\n" +
			"owner's ref only with --take-over.",
		Example: "  mooring revoke @helper.ref\n  mooring revoke ses_01J….o4tq…\n  mooring revoke --epoch ses_01J…",
		Args:    cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.Flags().BoolVar(&epoch, "epoch", false, "revoke every share of the session, which begins a new epoch")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "of a session of a space (SPACE/REF-ID), also its owner's ref")
	cli.YesFlag(cmd, &yes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return revokeRefs(ctx, h, c, args[0], epoch, yes || epoch, takeOver)
		})
	}
	h.CompleteRefs(cmd)
	return cmd
}

// revokeRefs revokes; unless sure, it asks before it revokes an owner's ref.
func revokeRefs(ctx context.Context, h *home.Folder, c *client.Client, arg string, epoch, sure, takeOver bool) error {
	got := h.Arg(ctx, arg)
	if got.Err == nil && got.Under != "" && !got.InSpace() {
		return fault.Usage.With("a ref that reaches children ends nothing in them: revoke it itself, or give a ref of the child")
	}
	if got.Err == nil && got.Under != "" {
		return revokeManaged(ctx, h, c, got, epoch, sure, takeOver)
	}
	target, session, err := revokeTarget(ctx, h, arg, epoch)
	if err != nil {
		return err
	}
	if capability.IsSpace(session) {
		return revokeUnderSpace(ctx, h, c, arg, target, sure)
	}
	acting, err := actingRefs(ctx, h, c, arg, target, session)
	if fault.CodeOf(err) == fault.NotFound && !epoch && target != "" {
		if space := revokeUnderSpace(ctx, h, c, "", target, sure); space == nil || fault.CodeOf(space) != fault.NotFound {
			return space
		}
	}
	if err != nil {
		return err
	}
	var refused error
	for _, ref := range acting {
		s, err := c.Session(ctx, ref)
		if err != nil {
			return err
		}
		if err := confirmRevoke(ctx, h, s.Refs, target, &sure); err != nil {
			return err
		}
		var cut client.Cut
		if epoch {
			cut, err = s.BumpEpoch(ctx)
		} else {
			cut, err = s.Revoke(ctx, target)
		}
		if err == nil {
			return printCut(h, cut, target, epoch)
		}
		if !refusedAuthority(err) {
			return err
		}
		if refused == nil {
			refused = err
		}
	}
	return refused
}

// revokeManaged revokes a ref of a session, or its epoch, through the session's space.
func revokeManaged(ctx context.Context, h *home.Folder, c *client.Client, arg home.Arg, epoch, sure, takeOver bool) error {
	target, id := arg.Under, capability.Target(arg.Under)
	switch {
	case epoch && id == "":
		id = target
	case epoch || id == "":
		return fault.Usage.With("give the ref to revoke, SPACE/REF-ID, or --epoch and SPACE/ID for every share of a session")
	}
	s, err := h.Opened(ctx, c, arg, id)
	if err != nil {
		return err
	}
	var cut client.Cut
	if epoch {
		cut, err = s.BumpEpoch(ctx)
	} else {
		if err := confirmRevoke(ctx, h, s.Refs, target, &sure); err != nil {
			return err
		}
		revoke := s.Revoke
		if takeOver {
			revoke = s.RevokeOwner
		}
		cut, err = revoke(ctx, target)
	}
	if err != nil {
		return err
	}
	return printCut(h, cut, target, epoch)
}

// confirmRevoke asks before revoking a ref with other refs below it, and sets sure. If the tree
// may not be listed from here, the revocation reports that.
func confirmRevoke(ctx context.Context, h *home.Folder, tree func(context.Context, string) iter.Seq2[client.RefInfo, error], target string, sure *bool) error {
	if *sure {
		return nil
	}
	label := "the owner's ref of its session"
	for info, err := range tree(ctx, target) {
		switch {
		case fault.CodeOf(err) == fault.TooLarge:
			label = "a ref with more refs below it than can be shown"
		case refusedAuthority(err):
			return nil
		case err != nil:
			return err
		case capability.IsSpace(info.Target) && info.Parent == "":
			label = "the root ref of its space"
		case !info.Owner:
			return nil
		}
		break // the first is target itself
	}
	if !h.Env.CanAsk() {
		return fault.Usage.With("this is %s, and every ref that was made from it ends with it, for good; there is no terminal to ask on: give --yes, or replace it with mooring rotate", label)
	}
	if !h.Env.Confirm(ctx, fmt.Sprintf("%s is %s: revoke it, and every ref that was made from it, for good?", target, label)) {
		return fault.Canceled.With("nothing was done")
	}
	*sure = true
	return nil
}

// revokeTarget returns the id of the ref to revoke, and its session ("" if it has to be looked
// up).
func revokeTarget(ctx context.Context, h *home.Folder, arg string, epoch bool) (target, session string, err error) {
	ref, id, err := h.Ref(ctx, arg)
	switch {
	case err != nil:
		return "", "", err
	case id == "":
		target = ref.ID
	case capability.Target(id) != "":
		target = id
	case epoch:
		return "", "", nil
	default:
		return "", "", fault.Usage.With("give the ref to revoke: its text, @FILE or its id (ses_….TAIL); --epoch ends every share of a session")
	}
	session = capability.Target(target)
	if epoch && !capability.IsSession(session) {
		return "", "", fault.Usage.With("that is the ref of a space; only sessions have an epoch")
	}
	return target, session, nil
}

// revokeUnderSpace revokes target under one of the home's space refs, of target's own space if it
// is a space's, or under REF itself.
func revokeUnderSpace(ctx context.Context, h *home.Folder, c *client.Client, arg, target string, sure bool) error {
	refs, err := c.Outbox().Refs(ctx)
	if err != nil {
		return fmt.Errorf("look up the refs: %w", err)
	}
	space := capability.Target(target)
	var acting, itself []capability.Ref
	for _, r := range refs {
		switch {
		case !capability.IsSpace(r.Target()), capability.IsSpace(space) && r.Target() != space:
		case r.ID == target:
			itself = append(itself, r.Ref)
		default:
			acting = append(acting, r.Ref)
		}
	}
	if ref, id, err := h.Ref(ctx, arg); err == nil && id == "" && len(itself) == 0 {
		itself = append(itself, ref)
	}
	var refused error = fault.NotFound.With("the home folder has no ref that could revoke it: give the ref's text or @FILE, or another --home")
	for _, ref := range append(acting, itself...) {
		sp, err := c.Space(ctx, ref)
		if err != nil {
			return err
		}
		if err := confirmRevoke(ctx, h, sp.Refs, target, &sure); err != nil {
			return err
		}
		died, err := sp.Revoke(ctx, target)
		if err == nil {
			return h.Env.Print(map[string]any{"ref": target, "refs": died}, "revoked; %s died\n", cli.Plural(int(died), "ref"))
		}
		if !refusedAuthority(err) {
			return err
		}
		refused = err
	}
	return refused
}

// actingRefs returns the refs to try, best first: the home's owner ref for the session, its other
// ones, and REF itself.
func actingRefs(ctx context.Context, h *home.Folder, c *client.Client, arg, target, session string) ([]capability.Ref, error) {
	if session == "" {
		s, err := h.Session(ctx, c, arg)
		if err != nil {
			return nil, err
		}
		session = s.ID()
	}
	refs, err := c.Outbox().Refs(ctx)
	if err != nil {
		return nil, fmt.Errorf("look up the refs: %w", err)
	}
	var owners, others, itself []capability.Ref
	for _, r := range refs {
		switch {
		case r.Target() != session:
		case r.ID == target:
			itself = append(itself, r.Ref)
		case r.Role == outbox.SessionOwner:
			owners = append(owners, r.Ref)
		default:
			others = append(others, r.Ref)
		}
	}
	if ref, id, err := h.Ref(ctx, arg); err == nil && id == "" && len(itself) == 0 {
		itself = append(itself, ref)
	}
	acting := append(append(owners, others...), itself...)
	if len(acting) == 0 {
		return nil, fault.NotFound.With("the home folder has no ref for the session that could revoke it: give the ref's text or @FILE, or another --home")
	}
	return acting, nil
}

// refusedAuthority reports whether another ref may have the authority that this one lacks.
func refusedAuthority(err error) bool {
	return slices.ContainsFunc([]fault.Code{fault.MissingRight, fault.NotAnOwner, fault.Denied, fault.Revoked, fault.StaleEpoch, fault.Expired, fault.UnknownRef, fault.NotFound}, func(code fault.Code) bool {
		return errors.Is(err, code)
	})
}

func printCut(h *home.Folder, cut client.Cut, target string, epoch bool) error {
	if h.Env.JSON {
		shown := map[string]any{"cut": cut.Cursor}
		if cut.ChildCount > 0 {
			type childCut struct {
				Session string `json:"session"`
				Cut     uint64 `json:"cut"`
			}
			var children []childCut
			for _, c := range cut.Children {
				children = append(children, childCut{c.Session, c.Cursor})
			}
			shown["children"], shown["children_count"] = children, cut.ChildCount
		}
		if epoch {
			shown["epoch"] = cut.Epoch
		} else {
			shown["ref"] = target
		}
		return h.Env.PrintJSON(shown)
	}
	below := ""
	if cut.ChildCount > 0 {
		below = ", and one in each of " + cli.Plural(cut.ChildCount, "session") + " below"
	}
	if epoch {
		_, err := fmt.Fprintf(h.Env.Out, "every share is revoked, the epoch is %d; the cut is at cursor %d%s\n", cut.Epoch, cut.Cursor, below)
		return err
	}
	_, err := fmt.Fprintf(h.Env.Out, "revoked; the cut is at cursor %d%s\n", cut.Cursor, below)
	return err
}
