// Shell completion: ids that the home folder knows, and the values of flags.

package home

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/outbox"
)

// CompleteRefs completes REF, the first argument of cmd and of its subcommands, and the value of
// --owner. Arguments after REF are files, unless they are keys.
func (h *Folder) CompleteRefs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		h.CompleteRefs(sub)
	}
	if strings.Contains(cmd.Use, " REF") {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			switch {
			case len(args) == 0:
				return h.RefsWithPrefix(cmd.Context(), begun)
			case strings.Contains(cmd.Use, "KEY"), strings.Contains(cmd.Use, "PREFIX"):
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		}
	}
	if cmd.Flags().Lookup("owner") != nil {
		_ = cmd.RegisterFlagCompletionFunc("owner", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) { // the flag exists
			return h.RefsWithPrefix(cmd.Context(), begun)
		})
	}
}

// RefsWithPrefix returns the ids with a prefix: of sessions and spaces, external ones, and of
// refs if such an id is complete; and the files after an @.
func (h *Folder) RefsWithPrefix(ctx context.Context, begun string) (list []string, after cobra.ShellCompDirective) {
	if name, isFile := strings.CutPrefix(begun, "@"); isFile {
		return filesWithPrefix(name)
	}
	for _, r := range h.savedRefs(ctx) {
		label := "session"
		if capability.IsSpace(r.Target()) {
			label = "space"
		}
		if r.External != "" {
			list = append(list, r.External+"\t"+r.Target())
			label += " " + cli.ClipLine(r.External)
		}
		list = append(list, r.Target()+"\t"+label)
		if strings.HasPrefix(begun, r.Target()) {
			list = append(list, r.ID+"\tref of "+label)
		}
	}
	slices.Sort(list)
	list = slices.DeleteFunc(slices.Compact(list), func(s string) bool { return !strings.HasPrefix(s, begun) })
	return list, cobra.ShellCompDirectiveNoFileComp
}

// savedRefs returns the home folder's refs. It does not create an outbox.
func (h *Folder) savedRefs(ctx context.Context) (refs []outbox.SavedRef) {
	_ = h.peekOutbox(ctx, func(ctx context.Context, box *outbox.Box) (err error) {
		refs, err = box.Refs(ctx)
		return err
	})
	return refs
}

// peekOutbox calls look with the outbox, if there is one.
func (h *Folder) peekOutbox(ctx context.Context, look func(context.Context, *outbox.Box) error) error {
	if h.outboxURL == "" && os.Getenv("MOORING_OUTBOX_URL") == "" {
		dir, err := h.Dir()
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(dir, "outbox.db")); err != nil {
			return err
		}
	}
	c, err := h.Open(ctx, true)
	if err != nil {
		return err
	}
	defer c.Close() // nothing was written
	return look(ctx, c.Outbox())
}

// filesWithPrefix returns the files that can follow an @.
func filesWithPrefix(name string) (list []string, after cobra.ShellCompDirective) {
	found, _ := filepath.Glob(strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, `\`, `\\`).Replace(name) + "*") // the pattern is valid
	after = cobra.ShellCompDirectiveNoFileComp
	for _, f := range found {
		if info, err := os.Stat(f); err == nil && info.IsDir() {
			f += string(filepath.Separator)
			after |= cobra.ShellCompDirectiveNoSpace
		}
		list = append(list, "@"+f)
	}
	return list, after
}

// CompleteOps completes op ids, of ops in these states.
func (h *Folder) CompleteOps(cmd *cobra.Command, states ...outbox.State) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (list []string, after cobra.ShellCompDirective) {
		_ = h.peekOutbox(cmd.Context(), func(ctx context.Context, box *outbox.Box) error {
			rows, err := box.List(ctx, outbox.Filter{States: states, Limit: 1000})
			for _, r := range rows {
				if strings.HasPrefix(r.Op, begun) && !slices.Contains(args, r.Op) {
					list = append(list, r.Op+"\t"+r.Method+" "+r.State.String())
				}
			}
			return err
		})
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteStreams completes sessions with pending ops.
func (h *Folder) CompleteStreams(cmd *cobra.Command) {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) (ids []string, _ cobra.ShellCompDirective) {
		_ = h.peekOutbox(cmd.Context(), func(ctx context.Context, box *outbox.Box) error {
			st, err := box.Queue(ctx)
			for _, s := range st.Streams {
				if len(args) == 0 && strings.HasPrefix(s.Session, begun) {
					ids = append(ids, s.Session)
				}
			}
			return err
		})
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
