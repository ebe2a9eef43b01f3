// mooring session requests: what is asked in a session, and how it is shown.

package readcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

func sessionRequestsCmd(h *home.Folder) *cobra.Command {
	var o client.RequestOptions
	var follow bool
	cmd := &cobra.Command{
		Use:   "requests REF",
		Short: "List what is asked in a session",
		Long: "List the requests of a session that are open or claimed, in the order in which they were asked:\n" +
			"id, kind, state, who asked, and what, and the choices that there are. --all lists those that have ended, too, with their answers. --follow goes on\n" +
			"with each that changes, until stopped. With --json each line is an object with all of a\n" +
			"request: its choices, the digest of what it asks, and its answer. It takes the right read.\n\n" + home.RefHelp,
		Example: "  mooring session requests ses_01J…\n  mooring session requests @phone.ref --kinds permission,question --follow --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, kind := range o.Kinds {
				if !capability.IsKind(kind) {
					return fault.Usage.With("--kinds: %q is not a kind of requests: use prompt, stop, permission, question or one of your own", fault.Clip(kind))
				}
			}
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				if follow {
					return followRequests(ctx, h, s, o)
				}
				return listRequests(ctx, h, s, o)
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.Kinds, "kinds", nil, "only requests of these kinds")
	cmd.Flags().BoolVar(&o.Ended, "all", false, "those that have ended, too")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what changes, until stopped")
	return cmd
}

// Request is a request as it is printed with --json.
type Request struct {
	Request string          `json:"request"`
	Kind    string          `json:"kind"`
	State   string          `json:"state"`
	Message string          `json:"message,omitempty"`
	Payload json.RawMessage `json:"payload"`
	Choices []client.Choice `json:"choices,omitempty"`
	Digest  string          `json:"digest"`
	Expires int64           `json:"expires_at,omitempty"`
	Ref     string          `json:"ref"` // it was asked under
	Actor   string          `json:"actor"`
	At      int64           `json:"at"`
	Cursor  uint64          `json:"cursor"`
	Claim   *shownClaim     `json:"claim,omitempty"`
	Choice  string          `json:"choice,omitempty"`
	Answer  json.RawMessage `json:"answer,omitempty"`
	Reason  string          `json:"reason,omitempty"`
	By      string          `json:"by,omitempty"`
	Changed int64           `json:"changed_at,omitempty"`
}

// ShowRequest returns a request as it is printed with --json.
func ShowRequest(r *client.Request) Request {
	shown := Request{r.ID, r.Kind, string(r.State), r.Message, r.Payload, r.Choices, r.Digest, cli.UnixMs(r.Expires), r.AskedRef, r.AskedBy, cli.UnixMs(r.AskedAt), r.Cursor,
		nil, r.Choice, r.Answer, r.Reason, r.By, cli.UnixMs(r.Changed)}
	if c := r.Claim; c != nil {
		shown.Claim = &shownClaim{c.Cursor, cli.UnixMs(c.Until), c.Outbox, c.Worker, c.Ref, c.Actor}
	}
	return shown
}

// listRequests prints the present requests.
func listRequests(ctx context.Context, h *home.Folder, s *client.Session, o client.RequestOptions) error {
	rows := [][]string{{"REQUEST", "KIND", "STATE", "ASKED BY", "WHAT", "ANSWER"}}
	for r, err := range s.ListRequests(ctx, o) {
		if err == nil && h.Env.JSON {
			err = h.Env.PrintJSON(ShowRequest(r))
		}
		if err != nil {
			return err
		}
		rows = append(rows, requestRow(r))
	}
	return h.Env.PrintTable(rows, "nothing is asked")
}

// followRequests prints the present requests, then each that changes, until it is interrupted, which is not an error.
func followRequests(ctx context.Context, h *home.Folder, s *client.Session, o client.RequestOptions) error {
	troubled := false
	o.Trouble = func(err error) {
		if !troubled && !h.Env.JSON {
			fmt.Fprintf(h.Env.Err, "no connection (%v); continuing when there is one\n", err)
		}
		troubled = true
	}
	for r, err := range s.FollowRequests(ctx, o) {
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case h.Env.JSON:
			err = h.Env.PrintJSON(ShowRequest(r))
		default:
			_, err = fmt.Fprintln(h.Env.Out, strings.Join(requestRow(r), "\t"))
		}
		if err != nil {
			return err
		}
		troubled = false
	}
	return nil
}

// requestRow returns the cells of a request.
func requestRow(r *client.Request) []string {
	return []string{r.ID, r.Kind, string(r.State), cli.ClipLine(cmp.Or(r.AskedBy, r.AskedRef)), cli.ClipLine(PayloadText(r.Payload)), answerCell(r)}
}

// answerCell returns what a table shows of a request's answer: what was chosen and said, or among what may be chosen.
func answerCell(r *client.Request) string {
	switch {
	case r.State == client.RequestAnswered:
		return cli.ClipLine(AnswerText(r))
	case r.State.Ended():
		return cli.ClipLine(r.Reason)
	}
	return cli.SanitizeLine(strings.Join(ChoiceIDs(r), ", "))
}

// AnswerText returns an answer for people: what was chosen, and what was said.
func AnswerText(r *client.Request) string {
	label := r.Choice
	if i := slices.IndexFunc(r.Choices, func(c client.Choice) bool { return c.ID == r.Choice }); i >= 0 {
		label = cmp.Or(r.Choices[i].Label, r.Choice)
	}
	return strings.TrimSpace(label + " " + PayloadText(r.Answer))
}

// PayloadText returns the text of a payload that is one, or has a member text, and the JSON of any other.
func PayloadText(payload json.RawMessage) string {
	var text string
	var object struct{ Text *string }
	switch {
	case len(payload) == 0 || string(payload) == "{}":
		return ""
	case json.Unmarshal(payload, &text) == nil:
		return text
	case json.Unmarshal(payload, &object) == nil && object.Text != nil:
		return *object.Text
	}
	return string(cli.CompactJSON(payload))
}

// ChoiceIDs returns the ids of a request's choices.
func ChoiceIDs(r *client.Request) (ids []string) {
	for _, c := range r.Choices {
		ids = append(ids, c.ID)
	}
	return ids
}
