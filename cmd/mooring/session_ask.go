// mooring session ask, answer and requests: what is asked in a session, and its answers.

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

func sessionAskCmd(h *homeFlags) *cobra.Command {
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
			"printed; --wait waits for its end and prints the answer. Asking again with the same --id changes\n" +
			"nothing. It takes the right ask, and --wait read.\n\n" + refHelp,
		Example: "  mooring session ask ses_01J… prompt \"run the tests\" --wait\n  mooring session ask ses_01J… stop --message msg_7\n" +
			"  mooring session ask @me.ref question \"which one?\" --choice a=\"the first\" --choice b=\"the second\" --expires 1h",
		Args: argCount(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := rejectZeroLimits(cmd.Flags(), "expires"); err != nil {
				return err
			}
			asked, err := h.requestPayload(args[2:], payload)
			if err != nil {
				return err
			}
			for _, c := range choices {
				id, label, _ := strings.Cut(c, "=")
				o.Choices = append(o.Choices, client.Choice{ID: id, Label: label})
			}
			return h.withRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				return h.ask(ctx, c, args[0], args[1], asked, o, wait)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.ID, "id", "", "the request's id (default: a new one); asking again with it changes nothing")
	flags.StringVar(&o.Message, "message", "", "id of the message whose turn it is about")
	flags.StringArrayVar(&choices, "choice", nil, "an answer to choose, as ID or ID=LABEL; repeat it for more")
	flags.StringVar(&payload, "payload", "", "what is asked, as JSON, in place of TEXT")
	durationVar(flags, &o.Expires, "expires", 0, "until when it may be answered, such as 10m or 7d (default: for ever)")
	flags.BoolVar(&wait, "wait", false, "wait for its end, and print the answer")
	return cmd
}

// requestPayload returns the payload of a text, which may be absent, or of JSON text; nil for none.
func (h *homeFlags) requestPayload(text []string, payload string) (any, error) {
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
	read, err := io.ReadAll(io.LimitReader(h.env.in, maxPromptBytes+1))
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

func (h *homeFlags) ask(ctx context.Context, c *client.Client, arg, kind string, payload any, o client.AskOptions, wait bool) error {
	s, err := h.session(ctx, c, arg)
	if err != nil {
		return err
	}
	o.ID = cmp.Or(o.ID, ulid.Make().String())
	reachable, stop := whileReachable(ctx, c, 0)
	defer stop()
	defer h.reportWaiting(reachable, c)()
	asked, err := commitAndAwait(ctx, reachable, c, s, singleOp{none: "nothing was asked", op: func(b *client.Batch) { b.Ask(kind, payload, o) }})
	if err != nil {
		return err
	}
	if asked.Queued {
		h.reportQueued(ctx, c, "it is asked when it has arrived")
	}
	asked.Request = o.ID
	switch {
	case wait:
		return h.awaitAnswer(ctx, s.RequestTicket(o.ID, ""))
	case h.env.json:
		return h.env.printJSON(asked)
	}
	_, err = fmt.Fprintln(h.env.out, o.ID)
	return err
}

// awaitAnswer waits for the end of a request, and prints its answer.
func (h *homeFlags) awaitAnswer(ctx context.Context, ticket client.RequestTicket) error {
	r, err := ticket.Wait(ctx)
	if err != nil {
		return fmt.Errorf("request %s: %w", ticket.ID, err)
	}
	if h.env.json {
		err = h.env.printJSON(showRequest(r))
	} else if r.State == client.RequestAnswered {
		_, err = fmt.Fprintln(h.env.out, sanitizeLine(answerText(r)))
	}
	if err == nil && r.State != client.RequestAnswered {
		return fault.RequestEnded.With("request %s has ended as %s%s", ticket.ID, r.State, because(r.Reason))
	}
	return err
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + sanitizeLine(reason)
}

// answerText returns an answer for people: what was chosen, and what was said.
func answerText(r *client.Request) string {
	label := r.Choice
	if i := slices.IndexFunc(r.Choices, func(c client.Choice) bool { return c.ID == r.Choice }); i >= 0 {
		label = cmp.Or(r.Choices[i].Label, r.Choice)
	}
	return strings.TrimSpace(label + " " + payloadText(r.Answer))
}

// payloadText returns the text of a payload that is one, or has a member text, and the JSON of any other.
func payloadText(payload json.RawMessage) string {
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
	return string(oneLine(payload))
}

func sessionAnswerCmd(h *homeFlags) *cobra.Command {
	var payload, shown string
	cmd := &cobra.Command{
		Use:   "answer REF REQUEST [CHOICE|TEXT]",
		Short: "Answer a request",
		Long: "Answer an open request of a session: by the id of one of its choices, or by a text (or --payload,\n" +
			"any JSON) if it has none. The first answer counts, and any other is a conflict. The answer\n" +
			"is bound to what is asked as it is read now, or, with --shown, to what was printed before (the\n" +
			"digest of mooring session requests --json). It takes the rights read and answer, and goes through the\n" +
			"outbox.\n\n" + refHelp,
		Example: "  mooring session answer ses_01J… per_7 once\n  mooring session answer @phone.ref 01K… \"the second one\"",
		Args:    argCount(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := h.requestPayload(args[2:], payload)
			if err != nil {
				return err
			}
			return h.withRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				s, err := h.session(ctx, c, args[0])
				if err != nil {
					return err
				}
				return h.answer(ctx, c, s, args[1], args[2:], given, shown)
			})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "the answer as JSON, in place of TEXT")
	cmd.Flags().StringVar(&shown, "shown", "", "the digest of what was shown when it was decided")
	return cmd
}

func (h *homeFlags) answer(ctx context.Context, c *client.Client, s *client.Session, id string, given []string, payload any, shown string) error {
	r, err := readRequest(ctx, s, id)
	if err != nil {
		return err
	}
	o := client.AnswerOptions{Shown: cmp.Or(shown, r.Digest), Payload: payload}
	if len(r.Choices) > 0 && len(given) > 0 {
		o.Choice, o.Payload = given[0], nil
	}
	return h.commitSingle(ctx, c, s, singleOp{
		none: "nothing was answered",
		op:   func(b *client.Batch) { b.Answer(id, o) },
		summary: func(res singleResult) string {
			return fmt.Sprintf("answered %s at cursor %d: %s asked by %s: %s", id, res.Cursor, r.Kind, clipLine(cmp.Or(r.AskedBy, r.AskedRef)), clipLine(payloadText(r.Payload)))
		},
	})
}

// readRequest returns a request as it is now.
func readRequest(ctx context.Context, s *client.Session, id string) (*client.Request, error) {
	for r, err := range s.ListRequests(ctx, client.RequestOptions{ID: id, Ended: true}) {
		return r, err
	}
	return nil, fault.NotFound.With("there is no request %s that the ref shows", sanitizeLine(id))
}

func sessionRequestsCmd(h *homeFlags) *cobra.Command {
	var o client.RequestOptions
	var follow bool
	cmd := &cobra.Command{
		Use:   "requests REF",
		Short: "List what is asked in a session",
		Long: "List the requests of a session that are open or claimed, in the order in which they were asked:\n" +
			"id, kind, state, who asked, and what. --all lists those that have ended, too. --follow goes on\n" +
			"with each that changes, until stopped. With --json each line is an object with all of a\n" +
			"request: its choices, the digest of what it asks, and its answer. It takes the right read.\n\n" + refHelp,
		Example: "  mooring session requests ses_01J…\n  mooring session requests @phone.ref --kinds permission,question --follow --json",
		Args:    argCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.withSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				return h.requests(ctx, s, o, follow)
			})
		},
	}
	cmd.Flags().StringSliceVar(&o.Kinds, "kinds", nil, "only requests of these kinds")
	cmd.Flags().BoolVar(&o.Ended, "all", false, "those that have ended, too")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what changes, until stopped")
	return cmd
}

// shownRequest is a request as it is printed with --json.
type shownRequest struct {
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

func showRequest(r *client.Request) shownRequest {
	shown := shownRequest{r.ID, r.Kind, string(r.State), r.Message, r.Payload, r.Choices, r.Digest, unixMs(r.Expires), r.AskedRef, r.AskedBy, unixMs(r.AskedAt), r.Cursor,
		nil, r.Choice, r.Answer, r.Reason, r.By, unixMs(r.Changed)}
	if c := r.Claim; c != nil {
		shown.Claim = &shownClaim{c.Cursor, unixMs(c.Until), c.Outbox, c.Worker, c.Ref, c.Actor}
	}
	return shown
}

func (h *homeFlags) requests(ctx context.Context, s *client.Session, o client.RequestOptions, follow bool) error {
	list := s.ListRequests(ctx, o)
	if follow {
		list = s.FollowRequests(ctx, o)
	}
	printed := 0
	rows := [][]string{{"REQUEST", "KIND", "STATE", "ASKED BY", "WHAT"}}
	for r, err := range list {
		if err != nil {
			return err
		}
		printed++
		row := []string{r.ID, r.Kind, string(r.State), clipLine(cmp.Or(r.AskedBy, r.AskedRef)), clipLine(payloadText(r.Payload))}
		switch {
		case h.env.json:
			err = h.env.printJSON(showRequest(r))
		case follow:
			_, err = fmt.Fprintln(h.env.out, strings.Join(row, "\t"))
		default:
			rows = append(rows, row)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case h.env.json || follow:
		return nil
	case printed == 0:
		fmt.Fprintln(h.env.err, "nothing is asked")
		return nil
	}
	return writeTable(h.env.out, rows)
}
