// mooring session search: the keys in whose values some words are.

package readcmd

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/search"
	"github.com/mooring-rpc/mooring/internal/session"
)

func sessionSearchCmd(h *home.Folder) *cobra.Command {
	limit := session.DefaultFound
	cmd := &cobra.Command{
		Use:   "search REF WORDS...",
		Short: "Find words in a session",
		Long: "Find the values that have all of some words, the last in the session's order first: in its title,\n" +
			"messages and their parts, and values of your own kinds. Each line has the key, who wrote the value,\n" +
			"and what the words stand in. Words are letters and digits, in any case. A part of an identifier is a\n" +
			"word, as name in user_name and userName; so are characters of scripts without spaces, and emoji.\n" +
			"The words of one argument, as \"two words\", are found one after the other. With --json each line is\n" +
			"an object: that of ls, the place of the text in the value as a JSON Pointer, and the excerpt, in\n" +
			"turn what is beside a match and a match.\n\n" + home.RefHelp,
		Example: "  mooring session search ses_01J… login fails\n  mooring session search @reader.ref \"connection refused\" --limit 0 --json",
		Args:    cli.ArgCount(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			words := args[1:]
			for i, w := range words {
				if strings.ContainsFunc(w, unicode.IsSpace) && !strings.Contains(w, `"`) {
					words[i] = `"` + w + `"` // the shell has taken its quotes
				}
			}
			query := strings.Join(words, " ")
			if _, refused := search.Parse(query); refused != nil {
				return fault.Usage.Because(refused, "%s", refused.Message)
			}
			if limit < 0 {
				return fault.Usage.With("--limit is how many to find; 0 is all")
			}
			return h.WithSession(cmd.Context(), args[0], func(ctx context.Context, s *client.Session) error {
				return searchSession(ctx, h, s, query, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "maximum number; 0 is all")
	return cmd
}

// shownFound is what search prints of an entry.
type shownFound struct {
	Entry
	Place   string   `json:"place"`
	Excerpt []string `json:"excerpt"`
}

func searchSession(ctx context.Context, h *home.Folder, s *client.Session, query string, limit int) error {
	found, waiting := 0, false
	for after, more := "", true; more; {
		most := session.MaxFound
		if limit > 0 {
			most = min(most, limit-found)
		}
		page, err := s.SearchPage(ctx, query, after, uint32(most))
		if err != nil {
			return err
		}
		if page.Indexing && after == "" {
			if !waiting {
				fmt.Fprintln(h.Env.Err, "the session is large: making its index, which later searches use")
			}
			waiting = true
			continue
		}
		var rows [][]string
		for _, e := range page.Found {
			if h.Env.JSON {
				if err := h.Env.PrintJSON(shownFound{showEntry(e.EntryInfo), e.Place, e.Excerpt}); err != nil {
					return err
				}
				continue
			}
			rows = append(rows, []string{e.Key, cli.OrDash(cli.ClipLine(e.Actor)), cli.SanitizeLine(strings.Join(e.Excerpt, ""))})
		}
		if err := cli.WriteTable(h.Env.Out, rows); err != nil {
			return err
		}
		found += len(page.Found)
		if after, more = page.Next, page.Next != ""; more && limit > 0 && found == limit {
			fmt.Fprintln(h.Env.Err, "there may be others: --limit 0 finds all")
			more = false
		}
	}
	if found == 0 && !h.Env.JSON {
		fmt.Fprintln(h.Env.Err, "nothing is found")
	}
	return nil
}
