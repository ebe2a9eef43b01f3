// mooring session tail: prints a session's events, one a line.

package readcmd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// tailPage is how many events are requested at once without --follow.
const tailPage = 1000

// tailFlags are the flags of tail.
type tailFlags struct {
	from      client.Position
	follow    bool
	startOver bool
	keys      []string
}

func sessionTailCmd(h *home.Folder) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail REF",
		Short: "Print events, one a line; with --follow also new ones",
		Long: "Print a session's events, one a line: cursor, method, key, actor. With --json each line is\n" +
			"an object that also has the payload and the event's hash. --from N begins after cursor N,\n" +
			"the last cursor that was printed. --follow continues until it is stopped, over disconnects,\n" +
			"without a gap or a repeat; when the ref is revoked it ends with the reason.\n\n" +
			"A server that was restored from a backup may have other events at the same cursors. --follow\n" +
			"detects that by the events' hashes, and so does --from N:HASH, with the hash that --json\n" +
			"printed for event N: then tail ends with server_behind. With --start-over it instead prints\n" +
			"one line (method startOver) and the session's present state, a line for each key (method\n" +
			"state), and continues from there. It does the same if the log no longer reaches back to N.\n\n" + home.RefHelp,
		Example: "  mooring session tail ses_01J…\n  mooring session tail @reader.ref --from 120 --follow\n" +
			"  mooring session tail @reader.ref --from 120:5f0c… --follow --start-over --json",
		Args: cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				if f.follow {
					return explainTrimmed(followEvents(ctx, h, s, &f))
				}
				return explainTrimmed(printTail(ctx, h, s, &f))
			})
		},
	}
	cmd.Flags().Var((*cli.PositionFlag)(&f.from), "from", "print the events after this one (the last cursor, and its event's hash)")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "print what is added, until stopped")
	cmd.Flags().StringSliceVar(&f.keys, "keys", nil, "print only events about these keys; todo/ is all that is below it")
	cmd.Flags().BoolVar(&f.startOver, "start-over", false, "if the log is not the one that was seen, print the state again and continue")
	return cmd
}

// explainTrimmed rewrites, for this command, an error that the log was trimmed (mooring serve --keep-log),
// with where it starts; other errors are unchanged.
func explainTrimmed(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != fault.CursorExpired || f.At == 0 {
		return err
	}
	return fault.CursorExpired.Because(err, "the server has let go of the events before cursor %d: "+
		"--from %d prints those that are left, and mooring session export the state with all that was before", f.At, f.At-1).Pos(f.At)
}

// printTail prints the present events.
func printTail(ctx context.Context, h *home.Folder, s *client.Session, f *tailFlags) error {
	out := bufio.NewWriter(h.Env.Out)
	at, end, over := f.from, uint64(0), false
	for {
		page, err := s.EventsOf(ctx, at, f.keys, tailPage)
		if code := fault.CodeOf(err); f.startOver && !over && (code == fault.ServerBehind || code == fault.CursorExpired) {
			over = true
			var state *client.State
			if state, err = s.SnapshotOfKeys(ctx, client.Position{}, f.keys); err == nil {
				if err = printState(h, out, state); err == nil {
					at, end = state.Position(), 0
					continue
				}
			}
		}
		if err != nil {
			return errors.Join(cli.ExplainServerBehind("log", err, at), out.Flush())
		}
		if end == 0 {
			end = page.Cursor
		}
		for _, e := range page.Events {
			if e.Cursor > end {
				break
			}
			if err := printEvent(h, out, &e); err != nil {
				return err
			}
			at = client.Position{Cursor: e.Cursor, Hash: e.Hash}
		}
		if len(page.Events) == 0 || at.Cursor >= end {
			return out.Flush()
		}
	}
}

// followEvents prints the present events, then new ones until it is interrupted, which is not an error.
func followEvents(ctx context.Context, h *home.Folder, s *client.Session, f *tailFlags) error {
	out := bufio.NewWriter(h.Env.Out)
	troubled, last := false, f.from
	o := client.SubscribeOptions{After: f.from.Cursor, Hash: f.from.Hash, Keys: f.keys, Trouble: func(err error) {
		switch code := fault.CodeOf(err); {
		case h.Env.JSON:
		case code == fault.ServerBehind || code == fault.CursorExpired:
			fmt.Fprintf(h.Env.Err, "starting over: %v\n", err)
		case !troubled:
			fmt.Fprintf(h.Env.Err, "no connection (%v); continuing when there is one\n", err)
		}
		troubled = true
	}}
	if f.startOver {
		o.StartOver = func(state *client.State) error {
			troubled, last = false, state.Position()
			return errors.Join(printState(h, out, state), out.Flush())
		}
	}
	err := s.Subscribe(ctx, o, func(e client.Event) error {
		troubled, last = false, client.Position{Cursor: e.Cursor, Hash: e.Hash}
		if err := printEvent(h, out, &e); err != nil {
			return err
		}
		return out.Flush()
	})
	if ctx.Err() != nil && fault.CodeOf(err) == fault.Canceled {
		return nil
	}
	return cli.ExplainServerBehind("log", err, last)
}

// shownState is the header of a state as --json prints it; its keys follow.
type shownState struct {
	Cursor  uint64 `json:"cursor"`
	Method  string `json:"method"` // startOver
	Hash    string `json:"hash,omitempty"`
	Entries int    `json:"entries"`
}

// shownKey is a key of a state as --json prints it.
type shownKey struct {
	Cursor  uint64          `json:"cursor"` // at which it was put
	Method  string          `json:"method"` // state
	Key     string          `json:"key"`
	Schema  uint32          `json:"schema_version"`
	Payload json.RawMessage `json:"payload"`
}

// printState prints the state that replaces all events printed before.
func printState(h *home.Folder, out *bufio.Writer, state *client.State) error {
	if !h.Env.JSON {
		fmt.Fprintf(out, "%d\tstartOver\t-\t-\n", state.Cursor) // the writer keeps its error
		for i := range state.Entries {
			fmt.Fprintf(out, "%d\tstate\t%s\t-\n", state.Entries[i].Cursor, state.Entries[i].Key)
		}
		return nil
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(shownState{Cursor: state.Cursor, Method: "startOver", Hash: hashText(state.Hash), Entries: len(state.Entries)})
	for i := range state.Entries {
		e := &state.Entries[i]
		if err == nil {
			err = enc.Encode(shownKey{Cursor: e.Cursor, Method: "state", Key: e.Key, Schema: e.Schema, Payload: e.Payload})
		}
	}
	return err
}

// hashText returns a hash as printed; "" for none.
func hashText(h client.Hash) string {
	if h == (client.Hash{}) {
		return ""
	}
	return h.String()
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
	Hash    string          `json:"hash,omitempty"` // for --from CURSOR:HASH
	Schema  uint32          `json:"schema_version"`
	Payload json.RawMessage `json:"payload,omitempty"` // absent once purged
}

// shownMark is printed with --json in place of events that the ref does not show.
type shownMark struct {
	Cursor uint64 `json:"cursor"` // of the last hidden event
	Hidden bool   `json:"hidden"`
	Hash   string `json:"hash,omitempty"`
}

func printEvent(h *home.Folder, out *bufio.Writer, e *client.Event) error {
	if e.Hidden {
		if h.Env.JSON {
			return json.NewEncoder(out).Encode(shownMark{e.Cursor, true, hashText(e.Hash)})
		}
		_, err := fmt.Fprintf(out, "%d\t(not shown)\n", e.Cursor)
		return err
	}
	if !h.Env.JSON {
		_, err := fmt.Fprintf(out, "%d\t%s\t%s\t%s\n", e.Cursor, e.Method, cli.OrDash(e.Key), cli.OrDash(cli.ClipLine(e.Actor)))
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(shownEvent{
		Cursor: e.Cursor, Method: e.Method, Key: e.Key, Actor: e.Actor, Ref: e.Ref, Op: e.Op, Batch: e.Batch,
		Outbox: e.Outbox, At: e.At.UnixMilli(), Hash: hashText(e.Hash), Schema: e.Schema, Payload: e.Payload,
	})
	if err != nil {
		return fmt.Errorf("print event %d: %w", e.Cursor, err)
	}
	return nil
}
