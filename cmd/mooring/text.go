// Text for people: columns, numbers, times, and what others wrote.

package main

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

// messageOf returns an error's message without its code.
func messageOf(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Message
	}
	return err.Error()
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

// oneLine returns JSON text without line ends.
func oneLine(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}

// clipLine truncates and cleans untrusted text so that it does not break a column or a terminal.
func clipLine(s string) string {
	s = sanitizeLine(s)
	if r := []rune(s); len(r) > 80 {
		s = string(r[:79]) + "…"
	}
	return s
}

// sanitizeLine removes line ends, control characters, and characters that reorder text or are
// invisible, so that untrusted text looks as it is.
func sanitizeLine(s string) string { return strings.ReplaceAll(sanitizeText(s), "\n", " ") }

// sanitizeText is sanitizeLine, but leaves line ends.
func sanitizeText(s string) string {
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
