// mooring session answer and withdraw: end a request.

package writecmd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/fault"
)

func sessionAnswerCmd(h *home.Folder) *cobra.Command {
	var payload, shown string
	cmd := &cobra.Command{
		Use:   "answer REF REQUEST [CHOICE|TEXT]",
		Short: "Answer a request",
		Long: "Answer an open request of a session: by the id of one of its choices, or by a text (or --payload,\n" +
			"any JSON) if it has none. The first answer counts, and any other is a conflict. The answer\n" +
			"is bound to what is asked as it is read now, or, with --shown, to what was printed before (the\n" +
			"digest of mooring session requests --json). It takes the rights read and answer, and goes through the\n" +
			"outbox.\n\n" + home.RefHelp,
		Example: "  mooring session answer ses_01J… per_7 once\n  mooring session answer @phone.ref 01K… \"the second one\"",
		Args:    cli.ArgCount(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := requestPayload(h, args[2:], payload)
			if err != nil {
				return err
			}
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				s, err := h.Session(ctx, c, args[0])
				if err != nil {
					return err
				}
				return sendAnswer(ctx, h, c, s, args[1], args[2:], given, shown)
			})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "the answer as JSON, in place of TEXT")
	cmd.Flags().StringVar(&shown, "shown", "", "the digest of what was shown when it was decided")
	return cmd
}

func sendAnswer(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, id string, given []string, payload any, shown string) error {
	r, err := readRequest(ctx, s, id)
	if err != nil {
		return err
	}
	o := client.AnswerOptions{Shown: cmp.Or(shown, r.Digest), Payload: payload}
	if len(r.Choices) > 0 && len(given) > 0 {
		o.Choice, o.Payload = given[0], nil
	}
	switch {
	case r.State == client.RequestAnswered && o.Choice != "" && o.Choice == r.Choice:
		return h.Env.Print(Result{Session: s.ID(), Cursor: r.Cursor, Unchanged: true, Request: id}, "%s was answered so already, by %s\n", id, cli.SanitizeLine(cmp.Or(r.By, "somebody")))
	case r.State == client.RequestAnswered:
		return fault.Conflict.With("request %s was answered already by %s, with %q: the first answer counts", id, cli.SanitizeLine(cmp.Or(r.By, "somebody")), cli.ClipLine(readcmd.AnswerText(r)))
	case !r.State.Ended() && len(r.Choices) > 0 && (payload == nil || o.Choice != "" && !slices.Contains(readcmd.ChoiceIDs(r), o.Choice)):
		return fault.Usage.With("request %s is answered by one of its choices: %s", id, cli.SanitizeLine(strings.Join(readcmd.ChoiceIDs(r), ", ")))
	}
	return commitSingle(ctx, h, c, s, singleOp{
		none: "nothing was answered",
		op:   func(b *client.Batch) { b.Answer(id, o) },
		summary: func(res Result) string {
			return fmt.Sprintf("answered %s at cursor %d: %s asked by %s: %s", id, res.Cursor, r.Kind, cli.ClipLine(cmp.Or(r.AskedBy, r.AskedRef)), cli.ClipLine(readcmd.PayloadText(r.Payload)))
		},
	})
}

// readRequest returns a request as it is now.
func readRequest(ctx context.Context, s *client.Session, id string) (*client.Request, error) {
	for r, err := range s.ListRequests(ctx, client.RequestOptions{ID: id, Ended: true}) {
		return r, err
	}
	return nil, fault.NotFound.With("there is no request %s that the ref shows", cli.SanitizeLine(id))
}

func sessionWithdrawCmd(h *home.Folder) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "withdraw REF REQUEST",
		Short: "Take back a request that nobody works on",
		Long: "Take back a request that was asked under REF, or under a ref made from it. While somebody works on\n" +
			"it, it is a conflict; what has ended stays as it is. It takes the right ask, and goes through the\n" +
			"outbox.\n\n" + home.RefHelp,
		Example: "  mooring session withdraw ses_01J… 01K… --reason \"no longer needed\"",
		Args:    cli.ArgCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runConfirmed(cmd.Context(), h, args[0], true, singleOp{
				none: "nothing was withdrawn",
				op:   func(b *client.Batch) { b.Withdraw(args[1], reason) },
				summary: func(res Result) string {
					return fmt.Sprintf("withdrew %s at cursor %d", cli.SanitizeLine(args[1]), res.Cursor)
				},
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for who asked and who reads it")
	return cmd
}
