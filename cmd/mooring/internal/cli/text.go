// Text for people: columns, numbers, times, and what others wrote.

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mooring-rpc/mooring/fault"
)

// MessageOf returns an error's message without its code.
func MessageOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
}

// WriteTable writes rows in aligned columns.
func WriteTable(w io.Writer, rows [][]string) error {
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

// PrintTable ends a list: with --json it was printed already, and none says that the head has no rows below it.
func (env *Env) PrintTable(rows [][]string, none string) error {
	switch {
	case env.JSON:
		return nil
	case len(rows) == 1:
		fmt.Fprintln(env.Err, none)
		return nil
	}
	return WriteTable(env.Out, rows)
}

// Plural formats a number of things: 1 op, 2 ops.
func Plural(n int, label string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(label, "ch"):
		label += "es"
	default:
		label += "s"
	}
	return fmt.Sprintf("%d %s", n, label)
}

// UnixMs converts a time as printed with --json: Unix milliseconds, 0 for none.
func UnixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// FormatTime formats a time, in UTC; "-" for none.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// OrDash returns s, or "-" for an empty column.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// CompactJSON returns JSON text without line ends.
func CompactJSON(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// ClipLine truncates and cleans untrusted text so that it does not break a column or a terminal.
func ClipLine(s string) string {
	s = SanitizeLine(s)
	if r := []rune(s); len(r) > 80 {
		s = string(r[:79]) + "…"
	}
	return s
}

// SanitizeLine removes line ends, control characters, and characters that reorder text or are
// invisible, so that untrusted text looks as it is.
func SanitizeLine(s string) string { return strings.ReplaceAll(SanitizeText(s), "\n", " ") }

// SanitizeText is SanitizeLine, but leaves line ends.
func SanitizeText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', invisible(r) && !unicode.Is(unicode.Cf, r):
			return ' '
		case invisible(r):
			return -1
		}
		return r
	}, s)
}
