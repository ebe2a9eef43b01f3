// mooring session compact: a message is the summary of those before.

package writecmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionCompactCmd(h *home.Folder) *cobra.Command {
	var upto, summary string
	cmd := &cobra.Command{
		Use:   "compact REF --upto message/ID --summary message/ID",
		Short: "Say that a message is the summary of all up to another",
		Long: "Say that the message --summary stands for the message --upto and all messages before it in the\n" +
			"session's order. Who asks for the compacted view (session export --compacted, session ls\n" +
			"--compacted, or a program) is shown the summary and what follows; everyone else is shown\n" +
			"everything, and nothing is removed. The summary is --upto itself or a later message, and its turn\n" +
			"has ended. Compacting again moves the mark; removing the summary ends it. It takes the right\n" +
			"compact, and a ref that shows all of the session. It goes through the outbox.\n\n" + home.RefHelp,
		Example: "  mooring session compact ses_01J… --upto message/msg_7 --summary message/msg_9",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []struct{ name, key string }{{"upto", upto}, {"summary", summary}} {
				if k, refused := session.ParseKey(flag.key); refused != nil || k.Kind != session.KeyMessage {
					return fault.Usage.With("--%s is %q: give message/ID", flag.name, cli.SanitizeLine(flag.key))
				}
			}
			return runSingle(cmd.Context(), h, args[0], singleOp{
				none: "nothing was compacted",
				op:   func(b *client.Batch) { b.Compact(upto, summary) },
				summary: func(r Result) string {
					if r.Unchanged {
						return fmt.Sprintf("it was compacted up to %s already", r.Upto)
					}
					return fmt.Sprintf("compacted up to %s at cursor %d: %s stands for that and what is before it, for whoever asks for the compacted view", r.Upto, r.Cursor, r.Summary)
				},
			})
		},
	}
	cmd.Flags().StringVar(&upto, "upto", "", "the last message that is left out: message/ID")
	cmd.Flags().StringVar(&summary, "summary", "", "what stands for it and those before: message/ID")
	return cmd
}
