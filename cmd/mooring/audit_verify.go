// mooring audit verify: is the record the one that was written?

package main

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

func auditVerifyCmd(h *homeFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "verify REF",
		Short: "Find rows of audit and log that were changed, removed or reordered by hand",
		Long: "Read the whole audit of a session, and its whole event log, and check the hash chain of\n" +
			"each, from its first row to its end. Rows that were changed, removed or reordered in the\n" +
			"database are named, one a line, and the exit code is 1. Of a space, which has no log, the\n" +
			"audit is checked.\n\n" +
			"Whoever can write to the database can also make a whole new chain. Keep what is printed as\n" +
			"the end of each somewhere else, and compare: a row that was the end stays in the chain.",
		Example: "  mooring audit verify ses_01J…",
		Args:    arguments(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.workOn(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				of, err := h.audited(ctx, c, args[0])
				if err != nil {
					return err
				}
				return h.verifyAudit(ctx, of)
			})
		},
	}
}

func (h *homeFlags) verifyAudit(ctx context.Context, of audited) error {
	audit, err := auditVerified(ctx, of)
	if err != nil {
		return err
	}
	chains := []verified{audit}
	if s, ok := of.(*client.Session); ok {
		log, err := logVerified(ctx, s)
		if err != nil {
			return err
		}
		chains = append(chains, log)
	}
	flaws := 0
	for _, v := range chains {
		flaws += len(v.flaws)
		if err := h.printVerified(v); err != nil {
			return err
		}
	}
	if flaws > 0 {
		return fault.Internal.With("what the server has of %s is not what was written, in %s: see above", of.ID(), counted(flaws, "place"))
	}
	return nil
}

// verified is what became of checking a chain.
type verified struct {
	name  string // of the chain
	after uint64 // it begins after this row
	last  uint64
	head  [32]byte
	flaws []flaw
}

// flaw is something wrong with a chain.
type flaw struct {
	row  uint64 // the first it concerns
	text string
}

func auditVerified(ctx context.Context, of audited) (v verified, err error) {
	v = verified{name: "audit"}
	chain := capability.NewChain(0)
	for {
		before := chain.Seq()
		page, err := of.Audit(ctx, before, 0)
		if err != nil {
			return v, err
		}
		for i := range page.Rows {
			chain.Add(page.Rows[i].Link())
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

// logVerified is session verify, of which what it finds wrong with the log and
// the state is told.
func logVerified(ctx context.Context, s *client.Session) (v verified, err error) {
	found, err := s.Verify(ctx, nil)
	if err != nil {
		return v, err
	}
	v = verified{name: "log", after: found.From - 1, last: found.Cursor, head: found.Head}
	for _, f := range found.Findings {
		v.flaws = append(v.flaws, flaw{f.Cursor, fmt.Sprintf("event %d %s", f.Cursor, f.What)})
	}
	for _, key := range found.Differs {
		v.flaws = append(v.flaws, flaw{0, fmt.Sprintf("the state of %s is not what the log makes of it", key)})
	}
	return v, nil
}

func (h *homeFlags) printVerified(v verified) error {
	if h.sh.json {
		return h.printVerifiedJSON(v)
	}
	for _, f := range v.flaws {
		if _, err := fmt.Fprintln(h.sh.out, f.text); err != nil {
			return fmt.Errorf("print what was found: %w", err)
		}
	}
	if len(v.flaws) > 0 {
		return nil
	}
	var err error
	switch {
	case v.last == v.after:
		_, err = fmt.Fprintf(h.sh.out, "%s: empty\n", v.name)
	case v.after > 0:
		_, err = fmt.Fprintf(h.sh.out, "%s: %d rows are whole, from %d (what was before it is gone) to %d; the end is %x\n", v.name, v.last-v.after, v.after+1, v.last, v.head)
	default:
		_, err = fmt.Fprintf(h.sh.out, "%s: %d rows are whole; the end is %x\n", v.name, v.last, v.head)
	}
	if err != nil {
		return fmt.Errorf("print what was found: %w", err)
	}
	return nil
}

// printVerifiedJSON prints an object for each flaw, or one for a chain without.
func (h *homeFlags) printVerifiedJSON(v verified) error {
	type shown struct {
		Chain string `json:"chain"`
		Flaw  string `json:"flaw,omitempty"`
		Row   uint64 `json:"row,omitempty"` // the first that is concerned
		Whole bool   `json:"whole,omitempty"`
		From  uint64 `json:"from,omitempty"`
		To    uint64 `json:"to,omitempty"`
		Head  string `json:"head,omitempty"`
	}
	for _, f := range v.flaws {
		if err := h.sh.printJSON(shown{Chain: v.name, Flaw: f.text, Row: f.row}); err != nil {
			return err
		}
	}
	if len(v.flaws) > 0 {
		return nil
	}
	return h.sh.printJSON(shown{Chain: v.name, Whole: true, From: v.after + 1, To: v.last, Head: hex.EncodeToString(v.head[:])})
}
