// mooring session get and ls: values of a session by key, and the keys below a prefix.

package readcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionGetCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "get REF KEY...",
		Short: "Print the value of a key",
		Long: "Print the value of a key as it was put, and a line end. Of several keys each line has the key,\n" +
			"a tab and the value in one line. With --json each line is an object: the key, the cursor of the\n" +
			"value's last change, who wrote that under which ref and when, who has claimed the key and until\n" +
			"when, and the value. A key that has no value, or that the ref does not show, is not_found; the\n" +
			"others are printed.\n\n" + home.RefHelp,
		Example: "  mooring session get ses_01J… message/msg_1\n  mooring session get @reader.ref session session_diff --json",
		Args:    cli.ArgCount(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, key := range args[1:] {
				if _, refused := session.ParseKey(key); refused != nil {
					return fault.Usage.Because(refused, "%s", refused.Message)
				}
			}
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				return printEntries(ctx, h, s, args[1:])
			})
		},
	}
}

// Entry is an entry as get and ls print it.
type Entry struct {
	Key     string          `json:"key"`
	Cursor  uint64          `json:"cursor"` // of the value's last change
	At      int64           `json:"at,omitempty"`
	Ref     string          `json:"ref,omitempty"`
	Actor   string          `json:"actor,omitempty"`
	Bytes   uint64          `json:"bytes"`
	Schema  uint32          `json:"schema_version"`
	Claim   *shownClaim     `json:"claim,omitempty"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// shownClaim is who works on a key.
type shownClaim struct {
	Cursor uint64 `json:"cursor"`
	Until  int64  `json:"until"`
	Outbox string `json:"outbox"`
	Worker string `json:"worker,omitempty"`
	Ref    string `json:"ref"`
	Actor  string `json:"actor"`
}

func showEntry(e client.EntryInfo) Entry {
	shown := Entry{e.Key, e.Cursor, cli.UnixMs(e.At), e.Ref, e.Actor, e.Bytes, e.Schema, nil, e.Payload}
	if c := e.Claim; c != nil {
		shown.Claim = &shownClaim{c.Cursor, cli.UnixMs(c.Until), c.Outbox, c.Worker, c.Ref, c.Actor}
	}
	return shown
}

// String returns who works on a key, and until when.
func (c *shownClaim) String() string {
	return cli.ClipLine(strings.TrimSpace(cmp.Or(c.Actor, c.Ref)+" "+c.Worker)) + " until " + cli.FormatTime(time.UnixMilli(c.Until))
}

func printEntries(ctx context.Context, h *home.Folder, s *client.Session, keys []string) error {
	page, err := s.Get(ctx, keys...)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, e := range page.Entries {
		found[e.Key] = true
		switch {
		case h.Env.JSON:
			err = h.Env.PrintJSON(showEntry(e))
		case len(keys) == 1:
			_, err = fmt.Fprintf(h.Env.Out, "%s\n", e.Payload)
		default:
			_, err = fmt.Fprintf(h.Env.Out, "%s\t%s\n", e.Key, cli.CompactJSON(e.Payload))
		}
		if err != nil {
			return err
		}
	}
	for _, key := range keys {
		if !found[key] {
			return fault.NotFound.With("%s has no value that the ref shows", key)
		}
	}
	return nil
}

func sessionLsCmd(h *home.Folder) *cobra.Command {
	var o client.KeyOptions
	var order string
	var limit int
	cmd := &cobra.Command{
		Use:   "ls REF [PREFIX]",
		Short: "List the keys below a prefix",
		Long: "List the keys of a session, or those below a prefix, which ends with a slash: part/msg_1/ are all\n" +
			"parts of that message. Each line has the key, the cursor of the value's last change, who wrote\n" +
			"that, the size of the value in bytes, and who has claimed the key and until when. With --json each line is an object. Any number of keys\n" +
			"is listed, page by page. --compacted leaves out the messages, with their parts, that a summary\n" +
			"stands for (mooring session compact).\n\n" + home.RefHelp,
		Example: "  mooring session ls ses_01J…\n  mooring session ls ses_01J… message/ --order put\n  mooring session ls @reader.ref part/msg_1/ --values --json",
		Args:    cli.ArgCount(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Order = client.KeyOrder(order)
			if len(args) > 1 {
				o.Prefix = args[1]
			}
			if _, refused := session.ParseKeyOrder(order); refused != nil {
				return fault.Usage.With("--order is key or put")
			}
			if refused := (&session.KeyQuery{Prefix: o.Prefix}).Check(); refused != nil {
				return fault.Usage.Because(refused, "%s", refused.Message)
			}
			if limit < 0 {
				return fault.Usage.With("--limit is how many keys to list; 0 is all")
			}
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				return listKeys(ctx, h, s, o, limit)
			})
		},
	}
	cmd.Flags().StringVar(&order, "order", string(client.ByKey), "key (by the bytes of the key) or put (by first put)")
	cmd.Flags().BoolVar(&o.Values, "values", false, "print the values, too")
	cmd.Flags().BoolVar(&o.Compacted, "compacted", false, "the keys of the compacted view")
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum number; 0 is all")
	_ = cmd.RegisterFlagCompletionFunc("order", cobra.FixedCompletions([]string{string(client.ByKey), string(client.ByPut)}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// lsTable is how many keys are aligned with each other.
const lsTable = 1000

func listKeys(ctx context.Context, h *home.Folder, s *client.Session, o client.KeyOptions, limit int) error {
	head := []string{"KEY", "CURSOR", "ACTOR", "BYTES", "CLAIMED BY"}
	if o.Values {
		head = append(head, "VALUE")
	}
	rows, listed := [][]string{head}, 0
	for after, more := "", true; more; more = after != "" && (limit == 0 || listed < limit) {
		most := lsTable
		if limit > 0 {
			most = min(most, limit-listed)
		}
		page, err := s.ListPage(ctx, o, after, uint32(most))
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			if h.Env.JSON {
				if err := h.Env.PrintJSON(showEntry(e)); err != nil {
					return err
				}
				continue
			}
			claimed := "-"
			if c := showEntry(e).Claim; c != nil {
				claimed = c.String()
			}
			row := []string{e.Key, strconv.FormatUint(e.Cursor, 10), cli.OrDash(cli.ClipLine(cmp.Or(e.Actor, e.Ref))), strconv.FormatUint(e.Bytes, 10), claimed}
			if o.Values {
				row = append(row, cli.ClipLine(string(cli.CompactJSON(e.Payload))))
			}
			rows = append(rows, row)
		}
		if listed += len(page.Entries); listed > 0 && !h.Env.JSON {
			if err := cli.WriteTable(h.Env.Out, rows); err != nil {
				return err
			}
			rows = nil
		}
		after = page.Next
	}
	if listed == 0 && !h.Env.JSON {
		fmt.Fprintln(h.Env.Err, "there are no keys")
	}
	return nil
}
