// Package measure holds what the benchmark programs share: the line that tells
// how far a run is, and the median.
package measure

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// Median of a list that is not empty.
func Median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Progress is the line that tells how far the run is: overwritten on a
// terminal, a line each elsewhere. One goroutine uses it at a time.
type Progress struct {
	out      io.Writer
	terminal bool
	start    time.Time
	open     bool // the line is not ended
}

// NewProgress makes one whose clock starts now.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, start: time.Now()}
	if f, ok := out.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Printf tells something, with the seconds so far before it.
func (p *Progress) Printf(format string, args ...any) {
	text := fmt.Sprintf("%4.0f s  %s", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
	if p.terminal {
		p.open = true
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// End leaves the line.
func (p *Progress) End() {
	if p.open {
		p.open = false
		fmt.Fprintln(p.out)
	}
}
