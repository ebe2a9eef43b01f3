// mooring session list and stat: a space's sessions, and how much one has.

package readcmd

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionListCmd(h *home.Folder) *cobra.Command {
	var owner, order, parent string
	var limit int
	var o client.ListOptions
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the owner's sessions",
		Long: "List the sessions of an owner's space, last changed first. The server sorts and searches\n" +
			"them, any number of them. With --json each line is an object.",
		Example: "  mooring session list --owner @data/owner.ref\n  mooring session list --search parser --limit 20\n  mooring session list --order title\n  mooring session list --json",
		Args:    cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Order = client.ListOrder(order); !slices.Contains([]client.ListOrder{"", client.OldestFirst, client.NewestFirst, client.ChangedFirst, client.ByTitle}, o.Order) {
				return fault.Usage.With("--order is changed, newest, oldest or title")
			}
			if limit < 0 {
				return fault.Usage.With("--limit is how many sessions to list; 0 is all")
			}
			if parent != "" && !cmd.Flags().Changed("order") {
				o.Order = client.OldestFirst
			}
			if parent != "" && o.Order != client.OldestFirst {
				return fault.Usage.With("the children of a session are listed oldest first: leave out --order")
			}
			return h.WithClient(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				sp, err := h.Owner(ctx, c, owner, capability.List)
				if err != nil {
					return err
				}
				if o.Parent = parent; parent != "" && !capability.IsSession(parent) {
					s, err := h.Session(ctx, c, parent)
					if err != nil {
						return err
					}
					o.Parent = s.ID()
				}
				return listSessions(ctx, h, sp, o, limit)
			})
		},
	}
	cli.OwnerFlag(cmd, &owner)
	cmd.Flags().StringVar(&o.Search, "search", "", "only those with this text in their title or an id, ignoring case; a session's id finds those forked from it, too")
	cmd.Flags().StringVar(&order, "order", string(client.ChangedFirst), "changed (last changed first), newest, oldest or title (sessions without one last)")
	cmd.Flags().BoolVar(&o.Deleted, "deleted", false, "include deleted sessions")
	cmd.Flags().StringVar(&parent, "parent", "", "only the children of this session: its id, or a REF of it; oldest first")
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum number; 0 is all")
	return cmd
}

func listSessions(ctx context.Context, h *home.Folder, sp *client.Space, o client.ListOptions, limit int) error {
	rows := [][]string{{"ID", "EXTERNAL", "CURSOR", "EPOCH", "UPDATED", "TITLE"}}
	listed := 0
	for info, err := range sp.List(ctx, o) {
		if err != nil {
			return err
		}
		listed++
		if h.Env.JSON {
			if err := h.Env.PrintJSON(showInfo(info)); err != nil {
				return err
			}
			if listed == limit {
				break
			}
			continue
		}
		title := info.Title
		if info.Deleted {
			title = "(deleted)"
		}
		rows = append(rows, []string{
			info.ID, cli.OrDash(cli.ClipLine(info.External)), strconv.FormatUint(info.Cursor, 10), strconv.FormatUint(info.Epoch, 10),
			cli.FormatTime(info.Updated), cli.ClipLine(title),
		})
		if listed == limit {
			break
		}
	}
	none := "there are no sessions yet"
	if o.Search != "" {
		none = "no session matches"
	}
	return h.Env.PrintTable(rows, none)
}

func sessionStatCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "stat REF",
		Short: "Count a session's events, keys and bytes",
		Long: "Count what the ref shows of a session: its events, when the first and the last of them were\n" +
			"committed, and its keys by kind with the bytes of their values. Only the counts are sent,\n" +
			"however large the session is.\n\n" + home.RefHelp,
		Example: "  mooring session stat ses_01J…\n  mooring session stat @reader.ref --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error { return printStat(ctx, h, s) })
		},
	}
}

func printStat(ctx context.Context, h *home.Folder, s *client.Session) error {
	d, err := s.Stat(ctx)
	if err != nil {
		return err
	}
	shown := session.Stat{Cursor: d.Cursor, Events: d.Events, First: cli.UnixMs(d.First), Last: cli.UnixMs(d.Last), Kinds: []session.KindStat{}}
	for _, kind := range d.Kinds {
		shown.Kinds = append(shown.Kinds, session.KindStat(kind))
	}
	if h.Env.JSON {
		return h.Env.PrintJSON(shown)
	}
	keys, bytes := uint64(0), uint64(0)
	rows := [][]string{{"KIND", "KEYS", "BYTES"}}
	row := func(kind string, keys, bytes uint64) {
		rows = append(rows, []string{kind, strconv.FormatUint(keys, 10), strconv.FormatUint(bytes, 10)})
	}
	for _, kind := range d.Kinds {
		keys, bytes = keys+kind.Keys, bytes+kind.Bytes
		row(kind.Kind, kind.Keys, kind.Bytes)
	}
	row("all", keys, bytes)
	if err := cli.WriteTable(h.Env.Out, [][]string{{"cursor", strconv.FormatUint(d.Cursor, 10)}, {"events", strconv.FormatUint(d.Events, 10)},
		{"first", cli.FormatTime(d.First)}, {"last", cli.FormatTime(d.Last)}}); err != nil {
		return err
	}
	fmt.Fprintln(h.Env.Out)
	return cli.WriteTable(h.Env.Out, rows)
}

// shownInfo is a session as list prints it, and the beginning of it as show does.
type shownInfo struct {
	ID       string `json:"id"`
	External string `json:"external,omitempty"`
	Title    string `json:"title,omitempty"`
	Cursor   uint64 `json:"cursor"`
	Base     uint64 `json:"base,omitempty"`
	Epoch    uint64 `json:"epoch"`
	Created  int64  `json:"created"` // Unix ms
	Updated  int64  `json:"updated"` // Unix ms
	Deleted  bool   `json:"deleted,omitempty"`
	Order    string `json:"order,omitempty"` // "time", or none: by the log

	Origin   *shownOrigin   `json:"origin,omitempty"`
	Reverted *shownReverted `json:"reverted,omitempty"`
	Parent   *shownParent   `json:"parent,omitempty"`

	Compacted *shownCompacted `json:"compacted,omitempty"`
}

// shownCompacted is up to where a session is compacted.
type shownCompacted struct {
	Upto    string `json:"upto"`
	Summary string `json:"summary"`
	Cursor  uint64 `json:"cursor"`
	Actor   string `json:"actor"`
	At      int64  `json:"at"` // Unix ms
}

func (c *shownCompacted) text() string {
	return fmt.Sprintf("%s, by %s at cursor %d", c.Upto, c.Actor, c.Cursor)
}

// shownParent is the session whose child a session is.
type shownParent struct {
	Session string `json:"session"`
	Key     string `json:"key,omitempty"`
}

func (p *shownParent) text() string {
	switch {
	case p == nil:
		return ""
	case p.Key != "":
		return p.Session + ", started by " + p.Key
	}
	return p.Session
}

// shownReverted is what a session is reverted to.
type shownReverted struct {
	To     string `json:"to,omitempty"`
	Cursor uint64 `json:"cursor"`
	Actor  string `json:"actor,omitempty"`
	At     int64  `json:"at,omitempty"` // Unix ms
}

func (r *shownReverted) text() string {
	switch {
	case r == nil:
		return ""
	case r.To == "":
		return fmt.Sprintf("what the ref does not show, at cursor %d", r.Cursor)
	}
	return fmt.Sprintf("%s, by %s at cursor %d: that and what comes after it is hidden", r.To, r.Actor, r.Cursor)
}

// shownOrigin is what a session was forked from.
type shownOrigin struct {
	Session string `json:"session"`
	Cursor  uint64 `json:"cursor"`
	Message string `json:"message,omitempty"`
}

func (o *shownOrigin) text() string {
	switch {
	case o == nil:
		return ""
	case o.Message != "":
		return fmt.Sprintf("%s at cursor %d, up to message/%s", o.Session, o.Cursor, o.Message)
	}
	return fmt.Sprintf("%s at cursor %d", o.Session, o.Cursor)
}

func showInfo(i client.SessionInfo) shownInfo {
	shown := shownInfo{ID: i.ID, External: i.External, Title: i.Title, Cursor: i.Cursor, Base: i.Base, Epoch: i.Epoch,
		Created: cli.UnixMs(i.Created), Updated: cli.UnixMs(i.Updated), Deleted: i.Deleted}
	if i.ByTime {
		shown.Order = "time"
	}
	if i.Origin.Session != "" {
		shown.Origin = new(shownOrigin(i.Origin))
	}
	if i.Parent.Session != "" {
		shown.Parent = new(shownParent(i.Parent))
	}
	if r := i.Reverted; r.Cursor > 0 {
		shown.Reverted = &shownReverted{r.To, r.Cursor, r.Actor, cli.UnixMs(r.At)}
	}
	if c := i.Compacted; c.Cursor > 0 {
		shown.Compacted = &shownCompacted{c.Upto, c.Summary, c.Cursor, c.Actor, cli.UnixMs(c.At)}
	}
	return shown
}
