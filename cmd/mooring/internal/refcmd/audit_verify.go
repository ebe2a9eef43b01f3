// mooring audit verify: checks the audit's hash chain.

package refcmd

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

func auditVerifyCmd(h *home.Folder) *cobra.Command {
	return &cobra.Command{
		Use:   "verify REF",
		Short: "Find rows of audit and log that were changed, removed or reordered by hand",
		Long: "Read the whole audit and event log of a session and check both hash chains, from the first\n" +
			"row to the end. Rows that were changed, removed or reordered in the database are printed,\n" +
			"one a line, and the exit code is then 1. A space has no log: its audit is checked.\n\n" +
			"Anyone who can write to the database can also make a whole new chain. Keep the printed ends\n" +
			"somewhere else, and compare: a row that was the end stays in the chain.",
		Example: "  mooring audit verify ses_01J…",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				of, err := auditTarget(ctx, h, c, args[0])
				if err != nil {
					return err
				}
				return verifyAudit(ctx, h, of)
			})
		},
	}
}

func verifyAudit(ctx context.Context, h *home.Folder, of auditable) error {
	audit, err := verifyAuditChain(ctx, of)
	if err != nil {
		return err
	}
	chains := []chainReport{audit}
	if s, ok := of.(*client.Session); ok {
		log, err := verifyLog(ctx, s)
		if err != nil {
			return err
		}
		chains = append(chains, log)
	}
	flaws := 0
	for _, v := range chains {
		flaws += len(v.flaws)
		if err := printChainReport(h, v); err != nil {
			return err
		}
	}
	if flaws > 0 {
		return fault.Internal.With("the server's rows of %s differ from what was written, in %s: see above", of.ID(), cli.Plural(flaws, "place"))
	}
	return nil
}

// chainReport is the result of checking a chain.
type chainReport struct {
	name  string // of the chain
	after uint64 // the chain begins after this row
	last  uint64
	head  [32]byte
	flaws []flaw
}

// flaw is an error in a chain.
type flaw struct {
	row  uint64 // the first affected
	text string
}

func verifyAuditChain(ctx context.Context, of auditable) (v chainReport, err error) {
	v = chainReport{name: "audit"}
	chain := capability.NewChainVerifier(0)
	for {
		before := chain.Seq()
		page, err := of.Audit(ctx, before, 0)
		if err != nil {
			return v, err
		}
		for i := range page.Rows {
			chain.Add(page.Rows[i].ChainRow())
		}
		if chain.Seq() == before || chain.Seq() >= page.Seq {
			v.last, v.head = page.Seq, page.Head
			for _, f := range chain.End(page.Seq, page.Head) {
				v.flaws = append(v.flaws, flaw{f.Seq, f.Text("audit row")})
			}
			return v, nil
		}
	}
}

// verifyLog is session verify; it returns the errors of the log and the state as flaws.
func verifyLog(ctx context.Context, s *client.Session) (v chainReport, err error) {
	found, err := s.Verify(ctx, nil)
	if err != nil {
		return v, err
	}
	v = chainReport{name: "log", after: found.From - 1, last: found.Cursor, head: found.Head}
	for _, f := range found.Findings {
		v.flaws = append(v.flaws, flaw{f.Cursor, fmt.Sprintf("event %d %s", f.Cursor, f.What)})
	}
	for _, key := range found.Differences {
		v.flaws = append(v.flaws, flaw{0, fmt.Sprintf("the state of %s is not what the log makes of it", key)})
	}
	return v, nil
}

func printChainReport(h *home.Folder, v chainReport) error {
	if h.Env.JSON {
		return printChainReportJSON(h, v)
	}
	for _, f := range v.flaws {
		if _, err := fmt.Fprintln(h.Env.Out, f.text); err != nil {
			return fmt.Errorf("print what was found: %w", err)
		}
	}
	if len(v.flaws) > 0 {
		return nil
	}
	var err error
	switch {
	case v.last == v.after:
		_, err = fmt.Fprintf(h.Env.Out, "%s: empty\n", v.name)
	case v.after > 0:
		_, err = fmt.Fprintf(h.Env.Out, "%s: %d rows are whole, from %d (what was before it is gone) to %d; the end is %x\n", v.name, v.last-v.after, v.after+1, v.last, v.head)
	default:
		_, err = fmt.Fprintf(h.Env.Out, "%s: %d rows are whole; the end is %x\n", v.name, v.last, v.head)
	}
	if err != nil {
		return fmt.Errorf("print what was found: %w", err)
	}
	return nil
}

// printChainReportJSON prints an object for each flaw, or one for a chain without flaws.
func printChainReportJSON(h *home.Folder, v chainReport) error {
	type shown struct {
		Chain string `json:"chain"`
		Flaw  string `json:"flaw,omitempty"`
		Row   uint64 `json:"row,omitempty"` // the first affected
		Whole bool   `json:"whole,omitempty"`
		From  uint64 `json:"from,omitempty"`
		To    uint64 `json:"to,omitempty"`
		Head  string `json:"head,omitempty"`
	}
	for _, f := range v.flaws {
		if err := h.Env.PrintJSON(shown{Chain: v.name, Flaw: f.text, Row: f.row}); err != nil {
			return err
		}
	}
	if len(v.flaws) > 0 {
		return nil
	}
	return h.Env.PrintJSON(shown{Chain: v.name, Whole: true, From: v.after + 1, To: v.last, Head: hex.EncodeToString(v.head[:])})
}
