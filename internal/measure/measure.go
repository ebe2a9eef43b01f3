// Package measure holds what the benchmark programs share: the line that tells
// how far a run is, the median, and what a process uses.
package measure

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
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

// CPU is how long a process has computed, on Linux.
func CPU(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("what a process costs is measured on Linux alone: %w", err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // after the program's name, which may have spaces
	total := 0
	for _, of := range fields[11:13] { // utime, stime
		ticks, err := strconv.Atoi(of)
		if err != nil {
			return 0, err
		}
		total += ticks
	}
	const tick = 10 * time.Millisecond // on every Linux
	return time.Duration(total) * tick, nil
}

// RSS is the memory that a process holds, in bytes, on Linux.
func RSS(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("what a process holds is measured on Linux alone: %w", err)
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}
