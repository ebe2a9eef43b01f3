// mooring refs: the tree of refs below one.

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

func refsCmd(sh *shared) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refs REF",
		Short: "Show the tree of refs below one, with their uses",
		Long: "Show the tree of refs that were made from one, and from those: what each allows, when it\n" +
			"was made and last used, how often, and whether it lives. It takes the right to revoke; any\n" +
			"of them can be cut with mooring revoke. The tree of a space's ref has its sessions' refs.\n\n" + refHelp,
		Example: "  mooring refs ses_01J…\n  mooring refs @srv/owner.ref --json",
		Args:    arguments(1, 1),
	}
	h := withHome(sh, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.workOn(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return h.refs(ctx, c, args[0])
		})
	}
	cmd.AddCommand(refsForgetCmd(h))
	h.completeRefs(cmd)
	return cmd
}

func (h *homeFlags) refs(ctx context.Context, c *client.Client, arg string) error {
	s, sp, err := h.either(ctx, c, arg, capability.Revoke)
	if err != nil {
		return err
	}
	tree := sp.Refs
	if s != nil {
		tree = s.Refs
	}
	var list []client.RefInfo
	for info, err := range tree(ctx, "") {
		if err == nil && h.sh.json {
			err = h.sh.printJSON(showRef(&info))
		}
		if err != nil {
			return err
		}
		list = append(list, info)
	}
	if h.sh.json {
		return nil
	}
	return table(h.sh.out, drawTree(list))
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
		if r.Limit != 0 && r.Used >= r.Limit {
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
		add("until %s", when(unixMs(r.Expires)))
	}
	if r.Limit != 0 {
		add("%d of %d redeemed", r.Used, r.Limit)
	}
	return orDash(strings.Join(limits, ", "))
}

// drawTree is the tree as rows of a table, each ref below the one it was made from.
func drawTree(list []client.RefInfo) [][]string {
	rows := [][]string{{"REF", "LABEL", "ACTOR", "RIGHTS", "LIMITS", "MADE", "LAST USED", "USES", "STATE"}}
	below := map[string][]*client.RefInfo{}
	for i := 1; i < len(list); i++ {
		below[list[i].Parent] = append(below[list[i].Parent], &list[i])
	}
	var draw func(r *client.RefInfo, lead, indent string)
	draw = func(r *client.RefInfo, lead, indent string) {
		rights := r.Rights.String()
		if r.Owner {
			rights += " (owner)"
		}
		rows = append(rows, []string{lead + r.Ref, orDash(oneLine(r.Label)), orDash(oneLine(r.Actor)), rights, limitsOf(r),
			when(unixMs(r.Created)), when(unixMs(r.LastUsed)), fmt.Sprint(r.Uses), stateOf(r)})
		children := below[r.Ref]
		slices.SortStableFunc(children, func(a, b *client.RefInfo) int { return a.Created.Compare(b.Created) })
		for i, child := range children {
			branch, further := "├─ ", "│  "
			if i == len(children)-1 {
				branch, further = "└─ ", "   "
			}
			draw(child, indent+branch, indent+further)
		}
	}
	if len(list) > 0 {
		draw(&list[0], "", "")
	}
	return rows
}
