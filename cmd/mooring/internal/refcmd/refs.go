// mooring refs: prints the tree of refs below one.

package refcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// Refs returns the command mooring refs, with its subcommand.
func Refs(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refs REF",
		Short: "Show the tree of refs below one, with their uses",
		Long: "Show the tree of refs that were made from a ref: what each allows, when it was made and last\n" +
			"used, how often, and whether it is valid. It needs the right to revoke; mooring revoke ends\n" +
			"any of them. The tree of a space's ref includes its sessions' refs.\n\n" + home.RefHelp,
		Example: "  mooring refs ses_01J…\n  mooring refs @srv/owner.ref --json",
		Args:    cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return printTree(ctx, h, c, args[0])
		})
	}
	cmd.AddCommand(refsForgetCmd(h))
	h.CompleteRefs(cmd)
	return cmd
}

func printTree(ctx context.Context, h *home.Folder, c *client.Client, arg string) error {
	s, sp, err := h.SessionOrSpace(ctx, c, arg, capability.Revoke)
	if err != nil {
		return err
	}
	tree := sp.Refs
	if s != nil {
		tree = s.Refs
	}
	d := treePrinter{out: h.Env.Out}
	for info, err := range tree(ctx, "") {
		switch {
		case err != nil:
		case h.Env.JSON:
			err = h.Env.PrintJSON(showRef(&info))
		default:
			err = d.add(info)
		}
		if err != nil {
			return cmp.Or(d.flush(true), err)
		}
	}
	return d.flush(true)
}

// shownRef is a ref of a tree, as printed.
type shownRef struct {
	Grant
	Parent    string `json:"parent,omitempty"`
	Created   int64  `json:"created"`             // Unix ms
	LastUsed  int64  `json:"last_used,omitempty"` // Unix ms
	Uses      uint64 `json:"uses"`
	State     string `json:"state"`
	Revoked   int64  `json:"revoked,omitempty"` // Unix ms
	RevokedBy string `json:"revoked_by,omitempty"`
}

func showRef(r *client.RefInfo) shownRef {
	return shownRef{Grant: ShowGrant(client.Description{Grant: r.GrantInfo}), Parent: r.Parent, Created: cli.UnixMs(r.Created),
		LastUsed: cli.UnixMs(r.LastUsed), Uses: r.Uses, State: stateOf(r), Revoked: cli.UnixMs(r.Revoked), RevokedBy: r.RevokedBy}
}

// stateOf returns whether a ref lives, or why it is dead.
func stateOf(r *client.RefInfo) string {
	switch r.Dead {
	case fault.None:
		if r.MaxRedemptions != 0 && r.Redemptions >= r.MaxRedemptions {
			return "exhausted" // earlier redeemers may still use it
		}
		return "alive"
	case fault.Revoked:
		if r.Cut == 0 {
			return "revoked"
		}
		return fmt.Sprintf("revoked at cut %d", r.Cut)
	case fault.StaleEpoch:
		return "stale epoch"
	}
	return r.Dead.String()
}

// limitsOf formats a ref's limits for one cell.
func limitsOf(r *client.RefInfo) string {
	var limits []string
	add := func(format string, args ...any) { limits = append(limits, fmt.Sprintf(format, args...)) }
	if len(r.Methods) > 0 {
		add("only %s", strings.Join(r.Methods, "+"))
	}
	if r.From > 1 {
		add("from %d", r.From)
	}
	if r.Message != "" {
		add("message %s alone", r.Message)
	}
	if len(r.ReadKeys) > 0 {
		add("reads %s", strings.Join(r.ReadKeys, "+"))
	}
	if len(r.WriteKeys) > 0 {
		add("writes %s", strings.Join(r.WriteKeys, "+"))
	}
	if len(r.AskKinds) > 0 {
		add("asks %s", strings.Join(r.AskKinds, "+"))
	}
	if len(r.AnswerKinds) > 0 {
		add("answers %s", strings.Join(r.AnswerKinds, "+"))
	}
	if r.Children != 0 {
		add("children %s", strings.Join(r.Children.Names(), "+"))
	}
	if len(r.Seal) > 0 {
		add("sealed")
	}
	if !r.Expires.IsZero() {
		add("until %s", cli.FormatTime(r.Expires))
	}
	if r.MaxRedemptions != 0 {
		add("%d of %d redeemed", r.Redemptions, r.MaxRedemptions)
	}
	return cli.OrDash(strings.Join(limits, ", "))
}

// treePrinter prints a tree as it arrives, depth first: a table in pieces, in which each ref is
// below its parent.
type treePrinter struct {
	out     io.Writer
	pending []client.RefInfo  // not printed yet
	indent  map[string]string // prefix of the refs below a printed ref that may have more of them
	widths  []int             // of the columns so far
}

// treeChunk is how many refs are printed at once.
const treeChunk = 500

func (d *treePrinter) add(r client.RefInfo) error {
	if d.pending = append(d.pending, r); len(d.pending) < treeChunk {
		return nil
	}
	return d.flush(false)
}

// flush prints the pending refs. Unless all is set, it is unknown whether the last ref and its
// ancestors have further siblings; they are drawn as if they had.
func (d *treePrinter) flush(all bool) error {
	if len(d.pending) == 0 {
		return nil
	}
	var rows [][]string
	if d.indent == nil {
		d.indent = map[string]string{}
		rows = append(rows, []string{"REF", "LABEL", "ACTOR", "RIGHTS", "LIMITS", "MADE", "LAST USED", "USES", "STATE"})
	}
	open := map[string]bool{} // the last ref and its ancestors
	parents := map[string]string{}
	for _, r := range d.pending {
		parents[r.Ref] = r.Parent
	}
	for id, ok := d.pending[len(d.pending)-1].Ref, true; ok; id, ok = parents[id], parents[id] != "" {
		open[id] = true
	}
	further := make([]bool, len(d.pending)) // a further sibling follows
	seen := map[string]bool{}
	for i, r := range slices.Backward(d.pending) {
		further[i] = seen[r.Parent] || !all && open[r.Ref]
		seen[r.Parent] = true
	}
	for i := range d.pending {
		r := &d.pending[i]
		lead, below := "", "" // the root's
		if at, ok := d.indent[r.Parent]; ok && further[i] {
			lead, below = at+"├─ ", at+"│  "
		} else if ok {
			lead, below = at+"└─ ", at+"   "
		}
		d.indent[r.Ref] = below
		rows = append(rows, treeRow(r, lead))
	}
	for id := range parents {
		if !open[id] {
			delete(d.indent, id)
		}
	}
	d.pending = d.pending[:0]
	return cli.WriteTable(d.out, d.padColumns(rows))
}

// padColumns pads the columns of rows to at least the widths of earlier rows.
func (d *treePrinter) padColumns(rows [][]string) [][]string {
	if d.widths == nil {
		d.widths = make([]int, len(rows[0])-1) // the last column needs no padding
	}
	for _, row := range rows {
		for i := range d.widths {
			d.widths[i] = max(d.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for i, width := range d.widths {
		rows[0][i] += strings.Repeat(" ", width-utf8.RuneCountInString(rows[0][i]))
	}
	return rows
}

// treeRow formats a ref's row of the table.
func treeRow(r *client.RefInfo, lead string) []string {
	rights := r.Rights.String()
	if r.Owner {
		rights += " (owner)"
	}
	return []string{lead + r.Ref, cli.OrDash(cli.ClipLine(r.Label)), cli.OrDash(cli.ClipLine(r.Actor)), rights, limitsOf(r),
		cli.FormatTime(r.Created), cli.FormatTime(r.LastUsed), fmt.Sprint(r.Uses), stateOf(r)}
}
