// mooring session show: one session, its turns, and the values of its users' own kinds.

package readcmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/refcmd"
	"github.com/mooring-rpc/mooring/internal/jsontable"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func sessionShowCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "show REF",
		Short: "Show counts, turns, and the values of your own kinds",
		Long: "Show a session's counts, its cursor, the turns that were begun and their states, what the\n" +
			"ref allows, and the first 100 values of kinds of your own, by key: who changed each last and\n" +
			"when, and the value as tidy JSON; a list of objects with the same members is a table.\n" +
			"session ls lists all keys.\n\n" + home.RefHelp,
		Example: "  mooring session show ses_01J…\n  mooring session show @reader.ref --json",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error { return showSession(ctx, h, s) })
		},
	}
}

// shownTurn is a turn as show prints it.
type shownTurn struct {
	Message string `json:"message"`
	Status  string `json:"status"`
	Begun   uint64 `json:"begun"`
	Ended   uint64 `json:"ended,omitempty"`
	Ref     string `json:"ref,omitempty"` // the ref it was begun under
}

// shownSession is the output of show.
type shownSession struct {
	shownInfo
	Counts map[string]int `json:"counts"` // by kind of key
	Turns  []shownTurn    `json:"turns"`
	Grant  refcmd.Grant   `json:"grant"`

	Values     []Entry `json:"values,omitempty"`      // the first ones of own kinds, by key
	MoreValues int     `json:"more_values,omitempty"` // of own kinds
}

// Bounds of what show prints of own kinds: values, and the rows and columns of a table.
const (
	showValues  = 100
	showRows    = 100
	showColumns = 12
)

func showSession(ctx context.Context, h *home.Folder, s *client.Session) error {
	d, err := s.Describe(ctx)
	if err != nil {
		return err
	}
	state, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	shown := shownSession{shownInfo: showInfo(d.Session), Counts: map[string]int{"message": 0, "part": 0, "model": 0}, Turns: []shownTurn{}, Grant: refcmd.ShowGrant(d)}
	shown.Cursor = state.Cursor // the cursor of the counts
	var own []string
	for _, e := range state.Entries {
		if k, err := session.ParseKey(e.Key); err == nil && k.Own() {
			own = append(own, e.Key)
		}
		kind, _, _ := strings.Cut(e.Key, "/")
		shown.Counts[kind]++
		if e.Key == "session" {
			var info struct{ Title string }
			if json.Unmarshal(e.Payload, &info) == nil { // a title of another type is ignored
				shown.Title = info.Title
			}
		}
	}
	for _, t := range state.Turns {
		shown.Turns = append(shown.Turns, shownTurn{t.Message, t.Status, t.Begun, t.Ended, t.Ref})
	}
	slices.SortFunc(shown.Turns, func(a, b shownTurn) int { return cmp.Compare(a.Begun, b.Begun) })
	slices.Sort(own)
	shown.MoreValues = max(len(own)-showValues, 0)
	if own = own[:len(own)-shown.MoreValues]; len(own) > 0 {
		page, err := s.Get(ctx, own...)
		if err != nil {
			return err
		}
		for _, e := range page.Entries {
			shown.Values = append(shown.Values, showEntry(e))
		}
	}
	if h.Env.JSON {
		return h.Env.PrintJSON(shown)
	}
	if err := printShown(h, d.Session, &shown); err != nil {
		return err
	}
	return printValues(h, &shown)
}

func printShown(h *home.Folder, info client.SessionInfo, s *shownSession) error {
	rows := [][]string{{"session", s.ID}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("external", cli.ClipLine(s.External))
	add("title", cli.ClipLine(s.Title))
	add("forked from", cli.ClipLine(s.Origin.text()))
	add("child of", cli.ClipLine(s.Parent.text()))
	add("reverted to", cli.ClipLine(s.Reverted.text()))
	if s.Compacted != nil {
		add("compacted up to", cli.ClipLine(s.Compacted.text()))
		add("summary", cli.ClipLine(s.Compacted.Summary))
	}
	add("cursor", strconv.FormatUint(s.Cursor, 10))
	add("epoch", strconv.FormatUint(s.Epoch, 10))
	add("created", cli.FormatTime(info.Created))
	add("updated", cli.FormatTime(info.Updated))
	for _, kind := range []string{"message", "part", "model"} {
		add(kind+"s", strconv.Itoa(s.Counts[kind]))
	}
	add("allows", s.Grant.Text())
	if len(s.Turns) == 0 {
		add("turns", "none begun")
	}
	if err := cli.WriteTable(h.Env.Out, rows); err != nil || len(s.Turns) == 0 {
		return err
	}
	turns := [][]string{{"TURN", "STATE", "BEGUN", "ENDED"}}
	for _, t := range s.Turns {
		ended := "-"
		if t.Ended != 0 {
			ended = strconv.FormatUint(t.Ended, 10)
		}
		turns = append(turns, []string{t.Message, t.Status, strconv.FormatUint(t.Begun, 10), ended})
	}
	fmt.Fprintln(h.Env.Out)
	return cli.WriteTable(h.Env.Out, turns)
}

// printValues prints the values of own kinds.
func printValues(h *home.Folder, s *shownSession) error {
	for _, e := range s.Values {
		by := cli.OrDash(cli.ClipLine(cmp.Or(e.Actor, e.Ref)))
		at := time.Time{}
		if e.At != 0 {
			at = time.UnixMilli(e.At)
		}
		claimed := ""
		if c := e.Claim; c != nil {
			claimed = "  claimed by " + c.String()
		}
		fmt.Fprintf(h.Env.Out, "\n%s  cursor %d  %s  %s%s\n", e.Key, e.Cursor, by, cli.FormatTime(at), claimed)
		if err := printValue(h.Env.Out, e.Payload); err != nil {
			return err
		}
	}
	if s.MoreValues > 0 {
		fmt.Fprintf(h.Env.Out, "\nand %s: mooring session ls lists all\n", cli.Plural(s.MoreValues, "more value"))
	}
	return nil
}

// printValue prints a JSON value, indented: as a table if it is a list of objects with the same
// members, otherwise as JSON.
func printValue(w io.Writer, payload []byte) error {
	value := gjson.ParseBytes(payload)
	columns := jsontable.Columns(value, showRows, showColumns)
	if columns == nil {
		var b bytes.Buffer
		if json.Indent(&b, payload, "  ", "  ") != nil {
			b.Reset()
			b.Write(payload)
		}
		_, err := fmt.Fprintf(w, "  %s\n", cli.SanitizeText(b.String()))
		return err
	}
	cells := func(cell func(name string) string) []string {
		row := make([]string, len(columns))
		for i, name := range columns {
			row[i] = cli.ClipLine(cell(name))
		}
		row[0] = "  " + row[0]
		return row
	}
	rows := [][]string{cells(func(name string) string { return name })}
	more := 0
	value.ForEach(func(_, object gjson.Result) bool {
		if len(rows) > showRows {
			more++
			return true
		}
		members := map[string]string{}
		object.ForEach(func(name, v gjson.Result) bool {
			text := v.Raw
			if v.Type == gjson.String {
				text = ledger.Unquote([]byte(v.Raw))
			}
			members[name.String()] = text
			return true
		})
		rows = append(rows, cells(func(name string) string { return members[name] }))
		return true
	})
	if err := cli.WriteTable(w, rows); err != nil || more == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "  and %s\n", cli.Plural(more, "more row"))
	return err
}
