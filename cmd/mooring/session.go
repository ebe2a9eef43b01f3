// mooring session: the commands about sessions, and their shared helpers.

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func sessionCmd(sh *cliEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "session",
		Short: "Create, import, export, fork, list, show, count, read, append to, follow, ask in, verify and end sessions",
		Long:  "Create, import, export, fork, list, show, count, read, append to, follow, ask in, verify and end sessions.\n\n" + refHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := withHome(sh, cmd)
	cmd.AddCommand(
		sessionImportCmd(h), sessionExportCmd(h), sessionCreateCmd(h), sessionForkCmd(h), sessionAppendCmd(h), sessionTailCmd(h),
		sessionVerifyCmd(h), sessionAbortTurnsCmd(h), sessionRevertCmd(h), sessionUnrevertCmd(h), sessionCompactCmd(h), sessionAskCmd(h), sessionAnswerCmd(h), sessionWithdrawCmd(h), sessionRequestsCmd(h), sessionWebhookCmd(h), sessionPurgeCmd(h), sessionDeleteCmd(h),
	)
	cmd.AddCommand(sessionLookCmds(h)...)
	h.completeRefs(cmd)
	return cmd
}

// writeTable writes rows in aligned columns.
func writeTable(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// plural formats a number of things: 1 op, 2 ops.
func plural(n int, label string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(label, "ch"):
		label += "es"
	default:
		label += "s"
	}
	return fmt.Sprintf("%d %s", n, label)
}

// unixMs converts a time as printed with --json: Unix milliseconds, 0 for none.
func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// formatTime formats a time, in UTC; "-" for none.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// orDash returns s, or "-" for an empty column.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
