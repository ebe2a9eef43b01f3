// mooring session revert and unrevert: the latest messages are hidden, and shown again.

package writecmd

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionRevertCmd(h *home.Folder) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "revert REF --to message/ID|part/MESSAGE/ID|CURSOR",
		Short: "Hide a message and all that come after it",
		Long: "Hide a message and all messages after it in the session's order, with their parts and turns,\n" +
			"for everybody. --to names the first that is hidden: a message, a part (with the parts after it\n" +
			"and later messages), or a cursor, for the first message that was put after it. Open turns\n" +
			"among them end as aborted. Nothing else is hidden: other keys stay, and the log has all of it\n" +
			"(purge removes a value for good). unrevert shows it again, until a new message is put or a\n" +
			"turn begins: then what is hidden leaves the state. Reverting again moves the point. It takes\n" +
			"the right revert, and a ref that shows all of the session. It goes through the outbox.\n\n" + home.RefHelp,
		Example: "  mooring session revert ses_01J… --to message/msg_3\n  mooring session revert @owner-of-session.ref --to 120",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, err := revertOp(to)
			if err != nil {
				return err
			}
			return runSingle(cmd.Context(), h, args[0], singleOp{
				none: "nothing was hidden",
				op:   op,
				summary: func(r Result) string {
					if r.Unchanged {
						return fmt.Sprintf("it was reverted to %s already", cmp.Or(r.To, "what the ref may not read"))
					}
					return fmt.Sprintf("reverted to %s at cursor %d: that and what comes after it is hidden (mooring session unrevert shows it again)", cmp.Or(r.To, "what the ref may not read"), r.Cursor)
				},
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "what is hidden first: message/ID, part/MESSAGE/ID, or the first message after a cursor")
	return cmd
}

// revertOp returns the op of a --to.
func revertOp(to string) (func(*client.Batch), error) {
	if after, err := strconv.ParseUint(to, 10, 53); err == nil {
		return func(b *client.Batch) { b.RevertAfter(after) }, nil
	}
	k, refused := session.ParseKey(to)
	if refused != nil || k.Kind != session.KeyMessage && k.Kind != session.KeyPart {
		return nil, fault.Usage.With("--to is %q: give message/ID, part/MESSAGE/ID, or a cursor", cli.SanitizeLine(strings.TrimSpace(to)))
	}
	return func(b *client.Batch) { b.Revert(to) }, nil
}

func sessionUnrevertCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "unrevert REF",
		Short: "Show again what revert has hidden",
		Long: "Show again what revert has hidden, as long as no message was put and no turn begun since. It\n" +
			"takes the right revert, and a ref that shows all of the session. It goes through the outbox.\n\n" + home.RefHelp,
		Example: "  mooring session unrevert ses_01J…",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSingle(cmd.Context(), h, args[0], singleOp{
				none: "nothing was shown again",
				op:   func(b *client.Batch) { b.Unrevert() },
				summary: func(r Result) string {
					return fmt.Sprintf("%s and what comes after it is shown again, from cursor %d on", cmp.Or(r.To, "what was hidden"), r.Cursor)
				},
			})
		},
	}
}

// runSingle commits an op, waits for its outcome and prints it.
func runSingle(ctx context.Context, h *home.Folder, arg string, f singleOp) error {
	return h.WithRef(ctx, arg, func(ctx context.Context, c *client.Client) error {
		s, err := h.Session(ctx, c, arg)
		if err != nil {
			return err
		}
		return commitSingle(ctx, h, c, s, f)
	})
}
