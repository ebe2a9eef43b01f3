// mooring session webhook: where the servers send notices of a session.

package writecmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/webhook"
)

func sessionWebhookCmd(h *home.Folder) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhook",
		Short: "Have the server call a webhook when something is asked or answered, or a turn is over",
		Long: "Have the server POST notices of a session (request.open, request.answered, turn.finished: ids and\n" +
			"kinds, no contents) to a URL, while nothing of yours runs. It takes the session's owner's ref, and\n" +
			"a server that was started with --webhooks; mooring watch does the same from a machine of yours.",
		Example: "  mooring session webhook add ses_01J… https://example.org/hooks/7 --webhook-secret hook.secret",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(webhookAddCmd(h), webhookListCmd(h), webhookRemoveCmd(h))
	return cmd
}

func webhookAddCmd(h *home.Folder) *cobra.Command {
	var id, secretFile string
	var on []string
	cmd := &cobra.Command{
		Use:   "add REF URL --webhook-secret FILE",
		Short: "Register a webhook of a session",
		Long: "Register a webhook, and print its id. Each notice is POSTed to the URL (https://HOST/PATH), signed as\n" +
			"in Standard Webhooks with the secret in the first line of --webhook-secret, which is made if the file is\n" +
			"not there: it is for the receiver, and the server shows it to nobody. It begins with the requests that are open, is sent at\n" +
			"least once, in order, with the same webhook-id if it is sent again, and tried for three days, with pauses up to an\n" +
			"hour; then, or after an answer 410, the webhook ends. No redirect is followed. It also ends with the\n" +
			"owner's ref, when that is revoked or rotated. The same command again changes nothing.\n\n" + home.RefHelp,
		Example: "  mooring session webhook add ses_01J… https://example.org/hooks/7 --webhook-secret hook.secret\n" +
			"  mooring session webhook add @srv/owner.ref/ses_01J… https://example.org/hooks/7 --webhook-secret hook.secret --on request.open",
		Args: cli.ArgCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.CheckNotices(on); err != nil {
				return err
			}
			if secretFile == "" {
				return fault.Usage.With("--webhook-secret is missing: name the file with the secret; it is made if it is not there")
			}
			if err := webhook.CheckURL(args[1], true, ""); err != nil { // the server looks closer
				return err
			}
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				if _, err := s.Webhooks(ctx); err != nil { // before a secret is made that nobody takes
					return err
				}
				secret, err := h.Env.WebhookSecret(ctx, secretFile)
				if err != nil {
					return err
				}
				w := client.Webhook{ID: id, URL: args[1], Secret: secret.Text, Kinds: on}
				if w.ID == "" {
					w.ID = webhookID(&w)
				}
				info, err := s.AddWebhook(ctx, w)
				if code := fault.CodeOf(err); err != nil && !code.Transient() && code != fault.Canceled && code != fault.Internal {
					secret.Discard() // the server has refused it; after another error it may have it
					return err
				}
				secret.Announce()
				if err != nil {
					return err
				}
				switch {
				case info.Ended != "":
					return fault.AlreadyExists.With("the webhook was registered before, and has ended (%s): remove %s, and add it again", cli.SanitizeLine(info.Ended), cli.SanitizeLine(info.ID))
				case h.Env.JSON:
					return h.Env.PrintJSON(shownWebhook(&info))
				}
				_, err = fmt.Fprintln(h.Env.Out, cli.SanitizeLine(info.ID))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&secretFile, "webhook-secret", "", "the file with the webhook's secret")
	cmd.Flags().StringSliceVar(&on, "on", notice.Types(), "the notices that are sent")
	cmd.Flags().StringVar(&id, "id", "", "the webhook's id: letters, digits, _ and - (default: a hash of URL, --on and secret)")
	return cmd
}

// webhookID returns the id of a webhook that was given none: the same command again has the same.
func webhookID(w *client.Webhook) string {
	kinds := slices.Clone(w.Kinds)
	slices.Sort(kinds)
	sum := sha256.Sum256([]byte(w.URL + "\x00" + strings.Join(kinds, ",") + "\x00" + w.Secret))
	return "whk_" + hex.EncodeToString(sum[:8])
}

func webhookListCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "list REF",
		Short: "List the webhooks of a session, and how they do",
		Long: "List the webhooks of a session, the first registered first: whether each delivers, since when it has failed and\n" +
			"with what kind of error, when it is tried again, or why it has ended. A server without --webhooks calls\n" +
			"none of them. With --json each line is an object.\n\n" + home.RefHelp,
		Example: "  mooring session webhook list ses_01J…",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error { return listWebhooks(ctx, h, s) })
		},
	}
}

func listWebhooks(ctx context.Context, h *home.Folder, s *client.Session) error {
	list, err := s.Webhooks(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "URL", "ON", "STATE", "DELIVERED", "NEXT TRY"}}
	for i := range list {
		w := &list[i]
		if h.Env.JSON {
			if err := h.Env.PrintJSON(shownWebhook(w)); err != nil {
				return err
			}
			continue
		}
		state, next := "delivering", "-"
		switch {
		case w.Ended != "":
			state = fmt.Sprintf("ended: %s (%s)", w.Ended, cli.FormatTime(w.EndedAt))
		case !w.FailingSince.IsZero():
			state, next = fmt.Sprintf("failing since %s: %s", cli.FormatTime(w.FailingSince), w.Error), cli.FormatTime(w.Next)
		}
		if !w.Restarted.IsZero() {
			state += fmt.Sprintf("; began anew %s", cli.FormatTime(w.Restarted))
		}
		rows = append(rows, []string{w.ID, cli.ClipLine(w.URL), strings.Join(w.Kinds, ","), cli.SanitizeLine(state), cli.FormatTime(w.Delivered), next})
	}
	return h.Env.PrintTable(rows, "the session has no webhooks")
}

// Webhook is a webhook as --json prints it. Times are Unix ms.
type Webhook struct {
	ID           string   `json:"id"`
	URL          string   `json:"url"`
	On           []string `json:"on"`
	Ref          string   `json:"ref"`
	Created      int64    `json:"created"`
	Cursor       uint64   `json:"cursor"`
	Delivered    int64    `json:"delivered,omitempty"`
	FailingSince int64    `json:"failing_since,omitempty"`
	Failures     int      `json:"failures,omitempty"`
	Error        string   `json:"error,omitempty"`
	Next         int64    `json:"next,omitempty"`
	Restarted    int64    `json:"restarted,omitempty"`
	Ended        string   `json:"ended,omitempty"`
	EndedAt      int64    `json:"ended_at,omitempty"`
}

func shownWebhook(w *client.WebhookInfo) Webhook {
	shown := Webhook{ID: w.ID, URL: w.URL, On: w.Kinds, Ref: w.Ref, Created: cli.UnixMs(w.Created), Cursor: w.Cursor, Delivered: cli.UnixMs(w.Delivered),
		FailingSince: cli.UnixMs(w.FailingSince), Failures: w.Failures, Error: w.Error, Restarted: cli.UnixMs(w.Restarted), Ended: w.Ended, EndedAt: cli.UnixMs(w.EndedAt)}
	if w.Failures > 0 && w.Ended == "" {
		shown.Next = cli.UnixMs(w.Next)
	}
	return shown
}

func webhookRemoveCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "remove REF ID",
		Short: "Remove a webhook of a session",
		Long: "Remove a webhook, by its id. A notice that is being sent may still arrive; none after it is sent.\n" +
			"One that is not there is no error.\n\n" + home.RefHelp,
		Example: "  mooring session webhook remove ses_01J… whk_0f3a…",
		Args:    cli.ArgCount(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				removed, err := s.RemoveWebhook(ctx, args[1])
				if err == nil && !removed {
					fmt.Fprintln(h.Env.Err, "the session has no such webhook")
				}
				return err
			})
		},
	}
}
