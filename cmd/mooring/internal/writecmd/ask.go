// mooring session ask: asks an agent, or people, for something.

package writecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/readcmd"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/prompts"
)

func sessionAskCmd(h *home.Folder) *cobra.Command {
	var o client.AskOptions
	var choices []string
	var payload string
	var wait bool
	cmd := &cobra.Command{
		Use:   "ask REF KIND [TEXT]",
		Short: "Ask the agent of a session, or people, for something",
		Long: "Make a request in a session. KIND is prompt (text for its agent, which gets it at most once),\n" +
			"stop (of the turn of --message), permission or question (for people), or one of your own.\n" +
			"TEXT becomes the payload {\"text\": TEXT}, - reads it from standard input, --payload gives any\n" +
			"JSON. The request is durable when the command returns, with or without a server, and its id is\n" +
			"printed; --wait waits for its end and prints the answer: it fails if the request ends otherwise, if\n" +
			"the answer to a prompt or a stop is an error, or if the agent was stopped, refused, or ended before it\n" +
			"was done. Asking again with the same --id changes nothing. It takes the right ask, and --wait read.\n\n" + home.RefHelp,
		Example: "  mooring session ask ses_01J… prompt \"run the tests\" --wait\n  mooring session ask ses_01J… stop --message msg_7\n" +
			"  mooring session ask @me.ref question \"which one?\" --choice a=\"the first\" --choice b=\"the second\" --expires 1h",
		Args: cli.ArgCount(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cli.RejectZeroLimits(cmd.Flags(), "expires"); err != nil {
				return err
			}
			asked, err := requestPayload(h, args[2:], payload)
			if err != nil {
				return err
			}
			for _, c := range choices {
				id, label, _ := strings.Cut(c, "=")
				o.Choices = append(o.Choices, client.Choice{ID: id, Label: label})
			}
			if err := checkAsked(args[1], args[2:], payload, &o); err != nil {
				return err
			}
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				return sendRequest(ctx, h, c, args[0], args[1], asked, o, wait)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.ID, "id", "", "the request's id (default: a new one); asking again with it changes nothing")
	flags.StringVar(&o.Message, "message", "", "id of the message whose turn it is about")
	flags.StringArrayVar(&choices, "choice", nil, "an answer to choose, as ID or ID=LABEL; repeat it for more")
	flags.StringVar(&payload, "payload", "", "what is asked, as JSON, in place of TEXT")
	cli.DurationVar(flags, &o.Expires, "expires", 0, "until when it may be answered, such as 10m or 7d (default: for ever)")
	flags.BoolVar(&wait, "wait", false, "wait for its end, and print the answer")
	return cmd
}

// checkAsked refuses what a server would, in the words of the command line, and a prompt without a text.
func checkAsked(kind string, text []string, payload string, o *client.AskOptions) error {
	switch {
	case kind == client.KindPrompt && payload == "" && (len(text) == 0 || text[0] == ""):
		return fault.Usage.With("a prompt needs a TEXT, or a --payload")
	case kind == client.KindStop && o.Message == "":
		return fault.Usage.With("a stop names the turn that it stops: give the id of its message with --message")
	case o.Expires != 0 && (o.Expires < time.Second || o.Expires > cli.MaxRequestExpiry):
		return fault.Usage.With("--expires is from 1s to %s", cli.MaxRequestExpiryText)
	}
	for i, c := range o.Choices {
		if c.ID == "" || slices.ContainsFunc(o.Choices[:i], func(other client.Choice) bool { return other.ID == c.ID }) {
			return fault.Usage.With("--choice: each has an id of its own, as ID or ID=LABEL")
		}
	}
	return nil
}

// requestPayload returns the payload of a text, which may be absent, or of JSON text; nil for none.
func requestPayload(h *home.Folder, text []string, payload string) (any, error) {
	switch {
	case len(text) > 0 && payload != "":
		return nil, fault.Usage.With("give the text or --payload, not both")
	case payload != "":
		if !json.Valid([]byte(payload)) {
			return nil, fault.Usage.With("--payload is not JSON")
		}
		return json.RawMessage(payload), nil
	case len(text) == 0:
		return nil, nil
	case text[0] != "-":
		return map[string]string{"text": text[0]}, nil
	}
	read, err := io.ReadAll(io.LimitReader(h.Env.In, maxPromptBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	case len(read) > maxPromptBytes:
		return nil, fault.TooLarge.With("the text on standard input has more than %d bytes", maxPromptBytes)
	}
	return map[string]string{"text": strings.TrimSuffix(string(read), "\n")}, nil
}

// maxPromptBytes bounds the text of a request on standard input.
const maxPromptBytes = 4 << 20

func sendRequest(ctx context.Context, h *home.Folder, c *client.Client, arg, kind string, payload any, o client.AskOptions, wait bool) error {
	s, err := h.Session(ctx, c, arg)
	if err != nil {
		return err
	}
	o.ID = cmp.Or(o.ID, ulid.Make().String())
	reachable, stop := home.WhileReachable(ctx, c, 0)
	defer stop()
	defer h.ReportWaiting(reachable, c)()
	asked, err := commitAndAwait(ctx, reachable, c, s, singleOp{none: "nothing was asked", op: func(b *client.Batch) { b.Ask(kind, payload, o) }})
	if err != nil {
		return err
	}
	if asked.Queued {
		h.ReportQueued(ctx, c, "it is asked when it has arrived")
	}
	asked.Request = o.ID
	switch {
	case wait:
		if kind == client.KindPrompt {
			reportNoRunner(ctx, h, s, o.ID)
		}
		return awaitAnswer(ctx, h, s.RequestTicket(o.ID, ""), arg)
	case h.Env.JSON:
		return h.Env.PrintJSON(asked)
	}
	_, err = fmt.Fprintln(h.Env.Out, o.ID)
	return err
}

// reportNoRunner says so if the session's agent was run and has ended, and the prompt is open. The prompt is read after the agent's
// state: the agent may have ended because of this prompt.
func reportNoRunner(ctx context.Context, h *home.Folder, s *client.Session, prompt string) {
	page, err := s.Get(ctx, acprecord.StateKey)
	if err != nil || len(page.Entries) == 0 {
		return
	}
	var agent acprecord.State
	if json.Unmarshal(page.Entries[0].Payload, &agent) != nil || !slices.Contains([]string{"ended", "failed"}, agent.State) {
		return
	}
	if r, err := readRequest(ctx, s, prompt); err == nil && r.State == client.RequestOpen {
		fmt.Fprintln(h.Env.Err, "no agent runs for the session at present: the prompt waits for the next one")
	}
}

// awaitAnswer waits for the end of a request in the session of arg, and prints its answer.
func awaitAnswer(ctx context.Context, h *home.Folder, ticket client.RequestTicket, arg string) error {
	r, err := ticket.Wait(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return fault.Canceled.With("request %s stays asked: look for its answer with mooring session requests %s --all, or take it back with mooring session withdraw %s %s", ticket.ID, arg, arg, ticket.ID)
	case err != nil:
		return fmt.Errorf("request %s: %w", ticket.ID, err)
	}
	if h.Env.JSON {
		err = h.Env.PrintJSON(readcmd.ShowRequest(r))
	} else if r.State == client.RequestAnswered {
		_, err = fmt.Fprintln(h.Env.Out, cli.SanitizeLine(readcmd.AnswerText(r)))
	}
	switch {
	case err != nil:
		return err
	case r.State != client.RequestAnswered:
		return fault.RequestEnded.With("request %s has ended as %s%s", ticket.ID, r.State, because(r.Reason))
	}
	if why := notDone(r); why != "" {
		return fault.RequestEnded.With("request %s %s", ticket.ID, why)
	}
	return nil
}

// notDone returns why what was asked of an agent was not done although it was answered; "" if it was done.
func notDone(r *client.Request) string {
	answer := gjson.ParseBytes(r.Answer)
	switch r.Kind {
	case client.KindStop:
		if answer.Get("error").Exists() {
			return "was answered with an error"
		}
	case client.KindPrompt:
		switch o := prompts.OutcomeOf(answer); {
		case o.Aborted != "":
			return "was stopped before the agent was done"
		case o.Failed != "":
			return "was answered with an error"
		case o.Reason == "content-filter":
			return "was refused by the agent"
		case o.Reason != "stop":
			return "was cut off: the agent ended before it was done: " + cli.SanitizeLine(answer.Get("stopReason").String())
		}
	}
	return ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + cli.SanitizeLine(reason)
}
