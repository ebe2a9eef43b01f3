// mooring refs: the tree of refs below one.

package main

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
	"github.com/mooring-rpc/mooring/fault"
)

func refsCmd(sh *cliEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refs REF",
		Short: "Show the tree of refs below one, with their uses",
		Long: "Show the tree of refs that were made from one, and from those: what each allows, when it\n" +
			"was made and last used, how often, and whether it lives. It takes the right to revoke; any\n" +
			"of them can be cut with mooring revoke. The tree of a space's ref has its sessions' refs.\n\n" + refHelp,
		Example: "  mooring refs ses_01J…\n  mooring refs @srv/owner.ref --json",
		Args:    argCount(1, 1),
	}
	h := withHome(sh, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.withRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return h.refs(ctx, c, args[0])
		})
	}
	cmd.AddCommand(refsForgetCmd(h))
	h.completeRefs(cmd)
	return cmd
}

func (h *homeFlags) refs(ctx context.Context, c *client.Client, arg string) error {
	s, sp, err := h.sessionOrSpace(ctx, c, arg, capability.Revoke)
	if err != nil {
		return err
	}
	tree := sp.Refs
	if s != nil {
		tree = s.Refs
	}
	d := treePrinter{out: h.env.out}
	for info, err := range tree(ctx, "") {
		switch {
		case err != nil:
		case h.env.json:
			err = h.env.printJSON(showRef(&info))
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
	shownGrant
	Parent    string `json:"parent,omitempty"`
	Created   int64  `json:"created"`             // Unix ms
	LastUsed  int64  `json:"last_used,omitempty"` // Unix ms
	Uses      uint64 `json:"uses"`
	State     string `json:"state"`
	Revoked   int64  `json:"revoked,omitempty"` // Unix ms
	RevokedBy string `json:"revoked_by,omitempty"`
}

func showRef(r *client.RefInfo) shownRef {
	return shownRef{shownGrant: showGrant(client.Description{Grant: r.GrantInfo}), Parent: r.Parent, Created: unixMs(r.Created),
		LastUsed: unixMs(r.LastUsed), Uses: r.Uses, State: stateOf(r), Revoked: unixMs(r.Revoked), RevokedBy: r.RevokedBy}
}

// stateOf says whether a ref lives, or what killed it.
func stateOf(r *client.RefInfo) string {
	switch r.Dead {
	case fault.None:
		if r.MaxRedemptions != 0 && r.Redemptions >= r.MaxRedemptions {
			return "exhausted" // who has redeemed it goes on
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

// limitsOf are a ref's limits in one cell.
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
	if len(r.Seal) > 0 {
		add("sealed")
	}
	if !r.Expires.IsZero() {
		add("until %s", formatTime(unixMs(r.Expires)))
	}
	if r.MaxRedemptions != 0 {
		add("%d of %d redeemed", r.Redemptions, r.MaxRedemptions)
	}
	return orDash(strings.Join(limits, ", "))
}

// treePrinter is a tree that is printed as it comes, depth first: a table in pieces, in which
// each ref stands below the one it was made from.
type treePrinter struct {
	out     io.Writer
	pending []client.RefInfo  // not printed yet
	indent  map[string]string // before what is below a ref that is printed, of those that more may be below
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

// flush prints what is there. Whether a ref is the last of its parent's is not known yet of
// the last one and those above it, unless that is all; they are drawn as if it were not.
func (d *treePrinter) flush(all bool) error {
	if len(d.pending) == 0 {
		return nil
	}
	var rows [][]string
	if d.indent == nil {
		d.indent = map[string]string{}
		rows = append(rows, []string{"REF", "LABEL", "ACTOR", "RIGHTS", "LIMITS", "MADE", "LAST USED", "USES", "STATE"})
	}
	open := map[string]bool{} // the last one and those above it
	parents := map[string]string{}
	for _, r := range d.pending {
		parents[r.Ref] = r.Parent
	}
	for id, ok := d.pending[len(d.pending)-1].Ref, true; ok; id, ok = parents[id], parents[id] != "" {
		open[id] = true
	}
	further := make([]bool, len(d.pending)) // others of the same parent come
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
	return writeTable(d.out, d.padColumns(rows))
}

// padColumns has the columns of rows at least as wide as those before were.
func (d *treePrinter) padColumns(rows [][]string) [][]string {
	if d.widths == nil {
		d.widths = make([]int, len(rows[0])-1) // of the last nothing depends
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

// treeRow is a ref's row of the table.
func treeRow(r *client.RefInfo, lead string) []string {
	rights := r.Rights.String()
	if r.Owner {
		rights += " (owner)"
	}
	return []string{lead + r.Ref, orDash(clipLine(r.Label)), orDash(clipLine(r.Actor)), rights, limitsOf(r),
		formatTime(unixMs(r.Created)), formatTime(unixMs(r.LastUsed)), fmt.Sprint(r.Uses), stateOf(r)}
}
