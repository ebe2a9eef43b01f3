// mooring session tail: a session's events, one a line.

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// tailPage is how many events are asked for at once without --follow.
const tailPage = 1000

func sessionTailCmd(h *homeFlags) *cobra.Command {
	var from uint64
	var follow bool
	cmd := &cobra.Command{
		Use:   "tail REF",
		Short: "Print events, one a line, and with --follow go on",
		Long: "Print a session's events, one a line: cursor, method, key, actor. With --json each line\n" +
			"is an object that has the payload too. --from N begins after cursor N, so the last cursor\n" +
			"seen is what to give. --follow goes on until it is stopped, over disconnects, without a gap\n" +
			"or a repeat; it ends with the reason when the ref is revoked.\n\n" + refHelp,
		Example: "  mooring session tail ses_01J…\n  mooring session tail @reader.ref --from 120 --follow",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.onSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				if follow {
					return pastStart(h.follow(ctx, s, from))
				}
				return pastStart(h.tail(ctx, s, from))
			})
		},
	}
	cmd.Flags().Uint64Var(&from, "from", 0, "the last cursor one has: events after it are printed")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what comes")
	return cmd
}

// pastStart says in this command's words that the log was trimmed (mooring serve
// --keep-log) and where it starts; it leaves all other errors as they are.
func pastStart(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.CursorExpired || f.At == 0 {
		return err
	}
	return fault.CursorExpired.Because(err, "the server has let go of the events before cursor %d: "+
		"--from %d prints those that are left, and mooring session export the state with all that was before", f.At, f.At-1).Pos(f.At)
}

// tail prints what there is now.
func (h *homeFlags) tail(ctx context.Context, s *client.Session, after uint64) error {
	out := bufio.NewWriter(h.sh.out)
	end := uint64(0)
	for {
		page, err := s.Events(ctx, after, tailPage)
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if end == 0 {
			end = page.Cursor
			h.noteEnd("log", after, end)
		}
		for _, e := range page.Events {
			if e.Cursor > end {
				break
			}
			if err := h.printEvent(out, &e); err != nil {
				return err
			}
			after = e.Cursor
		}
		if len(page.Events) == 0 || after >= end {
			return out.Flush()
		}
	}
}

// noteEnd says to people that what they have asked for lies beyond the end.
func (h *homeFlags) noteEnd(what string, from, end uint64) {
	if from > end && !h.sh.json {
		fmt.Fprintf(h.sh.err, "the %s ends at %d\n", what, end)
	}
}

// beyondEnd is what following from beyond the end gives: nobody can say what comes
// there, which may be other than what one has seen of a server that was restored since.
func beyondEnd(what string, from, end uint64) error {
	return fault.ServerBehind.With("the %s ends at %d, before --from %d: give what you have seen last; if that was %d, the server was restored to an earlier state since", what, end, from, from).Pos(end)
}

// follow prints what there is and what comes. Being stopped is its ordinary end.
func (h *homeFlags) follow(ctx context.Context, s *client.Session, after uint64) error {
	out := bufio.NewWriter(h.sh.out)
	troubled, seen := false, false
	err := s.Subscribe(ctx, client.SubscribeOptions{After: after, Trouble: func(err error) {
		if !troubled && !h.sh.json {
			fmt.Fprintf(h.sh.err, "no connection (%v); going on when there is one\n", err)
		}
		troubled = true
	}}, func(e session.Event) error {
		troubled, seen = false, true
		if err := h.printEvent(out, &e); err != nil {
			return err
		}
		return out.Flush()
	})
	if ctx.Err() != nil && fault.CodeOf(err) == fault.Canceled {
		return nil
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Code == fault.ServerBehind && !seen {
		return beyondEnd("log", after, f.At)
	}
	return err
}

// shownEvent is an event as --json prints it.
type shownEvent struct {
	Cursor  uint64          `json:"cursor"`
	Method  string          `json:"method"`
	Key     string          `json:"key"`
	Actor   string          `json:"actor"`
	Ref     string          `json:"ref,omitempty"`
	Op      string          `json:"op,omitempty"`
	Batch   string          `json:"batch,omitempty"`
	Outbox  string          `json:"outbox,omitempty"`
	At      int64           `json:"at"`
	Schema  uint32          `json:"schema_version"`
	Payload json.RawMessage `json:"payload,omitempty"` // not there once purged
}

// shownMark is what --json prints in place of events that the ref does not show.
type shownMark struct {
	Cursor uint64 `json:"cursor"` // of the last of them
	Hidden bool   `json:"hidden"`
}

func (h *homeFlags) printEvent(out *bufio.Writer, e *session.Event) error {
	if e.Hidden {
		if h.sh.json {
			return json.NewEncoder(out).Encode(shownMark{e.Cursor, true})
		}
		_, err := fmt.Fprintf(out, "%d\t(not shown)\n", e.Cursor)
		return err
	}
	if !h.sh.json {
		_, err := fmt.Fprintf(out, "%d\t%s\t%s\t%s\n", e.Cursor, e.Method, orDash(e.Key), orDash(oneLine(e.Actor)))
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(shownEvent{
		Cursor: e.Cursor, Method: e.Method, Key: e.Key, Actor: e.Actor, Ref: e.Ref, Op: e.Op, Batch: e.Batch,
		Outbox: e.Outbox, At: e.At, Schema: e.Schema, Payload: e.Payload,
	})
	if err != nil {
		return fmt.Errorf("print event %d: %w", e.Cursor, err)
	}
	return nil
}
