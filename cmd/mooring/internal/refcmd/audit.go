// mooring audit: the calls and ops under each ref.

package refcmd

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
)

// Audit returns the command mooring audit, with its subcommand.
func Audit(env *cli.Env) *cobra.Command {
	var from client.Position
	var follow bool
	cmd := &cobra.Command{
		Use:   "audit REF",
		Short: "Print the audit: what was done under which ref",
		Long: "Print the audit of a session, or of a space, one row a line: time, act, ref, actor, target\n" +
			"(a ref or a method), count, reason of a refusal, the session's cursor, and the peer's\n" +
			"address. Calls and ops are counted per minute by ref, actor and method; each refusal to a\n" +
			"ref has a row; wrong secrets are counted by address. --from N begins after row N; --follow\n" +
			"continues until it is stopped. With --json each line is an object that also has the row's\n" +
			"number and hash.\n\n" +
			"A server that was restored from a backup may have other rows with the same numbers. --follow\n" +
			"detects that by the rows' hashes, and so does --from N:HASH, with the hash that --json\n" +
			"printed for row N: then audit ends with server_behind.\n\n" +
			"It needs an owner's ref, or the root ref of a space.\n\n" + home.RefHelp,
		Example: "  mooring audit ses_01J…\n  mooring audit @srv/owner.ref --follow\n  mooring audit verify ses_01J…",
		Args:    cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			of, err := auditTarget(ctx, h, c, args[0])
			if err != nil {
				return err
			}
			if follow {
				return followAudit(ctx, h, of, from)
			}
			return printAudit(ctx, h, of, from)
		})
	}
	cmd.Flags().Var((*rowFlag)(&from), "from", "print the rows after this one (the last row's number, and its hash)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "print what is added, until stopped")
	cmd.AddCommand(auditVerifyCmd(h))
	h.CompleteRefs(cmd)
	return cmd
}

// rowFlag is a flag whose value is a client.Position in an audit.
type rowFlag client.Position

// String implements pflag.Value.
func (f *rowFlag) String() string { return (*cli.PositionFlag)(f).String() }

// Set implements pflag.Value.
func (f *rowFlag) Set(text string) error { return (*cli.PositionFlag)(f).Set(text) }

// Type implements pflag.Value.
func (f *rowFlag) Type() string { return "ROW[:HASH]" }

// auditable is a session or a space.
type auditable interface {
	ID() string
	Audit(ctx context.Context, after uint64, limit uint32) (client.AuditPage, error)
	FollowAudit(ctx context.Context, o client.AuditOptions) iter.Seq2[capability.AuditRow, error]
}

// auditTarget returns the session or space of a REF.
func auditTarget(ctx context.Context, h *home.Folder, c *client.Client, arg string) (auditable, error) {
	s, sp, err := h.SessionOrSpace(ctx, c, arg, capability.SpaceRights)
	if err != nil {
		return nil, err
	}
	if sp != nil {
		return sp, nil
	}
	return s, nil
}

// printAudit prints the present rows.
func printAudit(ctx context.Context, h *home.Folder, of auditable, from client.Position) error {
	out := bufio.NewWriter(h.Env.Out)
	after, end := from.Cursor, uint64(0)
	for {
		page, err := of.Audit(ctx, after, 0)
		if err == nil && end == 0 && from.Hash != (client.Hash{}) {
			err = cli.ExplainServerBehind("audit", page.Follows(from), from)
		}
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if end == 0 {
			end = page.Seq
			h.Env.WarnBeyondEnd("audit", after, end)
		}
		for i := range page.Rows {
			if page.Rows[i].Seq > end {
				break
			}
			if err := printAuditRow(h, out, &page.Rows[i]); err != nil {
				return err
			}
			after = page.Rows[i].Seq
		}
		if len(page.Rows) == 0 || after >= end {
			return out.Flush()
		}
	}
}

// followAudit prints the present rows, then new ones until it is interrupted, which is not an
// error.
func followAudit(ctx context.Context, h *home.Folder, of auditable, from client.Position) error {
	out := bufio.NewWriter(h.Env.Out)
	troubled, last := false, from
	rows := of.FollowAudit(ctx, client.AuditOptions{After: from.Cursor, Hash: from.Hash, Trouble: func(err error) {
		if !troubled && !h.Env.JSON {
			fmt.Fprintf(h.Env.Err, "no connection (%v); continuing when there is one\n", err)
		}
		troubled = true
	}})
	for row, err := range rows {
		if ctx.Err() != nil && err != nil {
			return nil
		}
		if err != nil {
			return cli.ExplainServerBehind("audit", err, last)
		}
		troubled, last = false, client.Position{Cursor: row.Seq, Hash: row.Hash}
		if err := printAuditRow(h, out, &row); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("print audit row %d: %w", row.Seq, err)
		}
	}
	return nil
}

// AuditRow is a row of the audit as --json prints it.
type AuditRow struct {
	Seq     uint64 `json:"seq"`
	At      int64  `json:"at"`
	Act     string `json:"act"`
	Ref     string `json:"ref,omitempty"`
	Actor   string `json:"actor,omitempty"`
	Subject string `json:"subject,omitempty"`
	Count   uint32 `json:"count"`
	Reason  string `json:"reason,omitempty"`
	Op      string `json:"op,omitempty"`
	Cursor  uint64 `json:"cursor,omitempty"`
	Peer    string `json:"peer,omitempty"`
	Hash    string `json:"hash"`
}

func printAuditRow(h *home.Folder, out *bufio.Writer, r *capability.AuditRow) error {
	reason := ""
	if r.Reason != fault.None {
		reason = r.Reason.String()
	}
	if h.Env.JSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		err := enc.Encode(AuditRow{Seq: r.Seq, At: r.At, Act: r.Act.String(), Ref: r.Ref, Actor: r.Actor, Subject: r.Subject, Count: r.Count,
			Reason: reason, Op: r.Op, Cursor: r.Cursor, Peer: r.Peer, Hash: hex.EncodeToString(r.Hash[:])})
		if err != nil {
			return fmt.Errorf("print audit row %d: %w", r.Seq, err)
		}
		return nil
	}
	cursor := ""
	if r.Cursor > 0 {
		cursor = fmt.Sprint(r.Cursor)
	}
	cells := []string{cli.FormatTime(time.UnixMilli(r.At)), r.Act.String(), shortRef(r.Target, r.Ref), cli.ClipLine(r.Actor), shortRef(r.Target, r.Subject),
		fmt.Sprintf("%d×", r.Count), reason, cursor, cli.ClipLine(r.Peer)}
	for i, cell := range cells {
		cells[i] = cli.OrDash(cell)
	}
	if _, err := fmt.Fprintln(out, strings.Join(cells, "\t")); err != nil {
		return fmt.Errorf("print audit row %d: %w", r.Seq, err)
	}
	return nil
}

// shortTail is how many bytes of a ref's id are shown where the whole does not fit.
const shortTail = 9

// shortRef returns the part of a ref of target that distinguishes it from others; any other text
// is unchanged.
func shortRef(target, ref string) string {
	tail, ok := strings.CutPrefix(ref, target+".")
	if !ok || target == "" {
		return cli.ClipLine(ref)
	}
	return tail[:min(len(tail), shortTail)]
}
