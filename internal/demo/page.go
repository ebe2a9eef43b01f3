// The demo's output.

package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// page prints the demo so that a person can follow it.
type page struct {
	out   io.Writer
	steps int
	began time.Time
}

func (p *page) title(s string) {
	p.began = time.Now()
	fmt.Fprintf(p.out, "%s\n%s\n", s, strings.Repeat("=", len(s)))
}

func (p *page) step(s string) {
	p.steps++
	fmt.Fprintf(p.out, "\n%d. %s\n", p.steps, s)
}

// say prints a remark of the demo's own.
func (p *page) say(format string, args ...any) {
	fmt.Fprintf(p.out, "   "+format+"\n", args...)
}

// ran prints a command as a user would type it, and what it said on its two outputs.
func (p *page) ran(args []string, out, errOut string) {
	fmt.Fprintf(p.out, "   $ mooring %s\n", strings.Join(args, " "))
	p.quote(out)
	p.quote(errOut)
}

// quote prints a text's first and last lines.
func (p *page) quote(said string) {
	lines := strings.Split(strings.TrimRight(said, "\n"), "\n")
	const most = 8
	for i, line := range lines {
		if len(lines) > most && i == most/2 {
			fmt.Fprintf(p.out, "     … %d more lines\n", len(lines)-most)
		}
		if line == "" || len(lines) > most && i >= most/2 && i < len(lines)-most/2 {
			continue
		}
		fmt.Fprintf(p.out, "     %s\n", hidden(line))
	}
}

func (p *page) end() {
	fmt.Fprintf(p.out, "\nAll of it held, in %.0f s.\n", time.Since(p.began).Seconds())
}

// hidden takes the secret out of a ref's text: a page is for showing around.
func hidden(line string) string {
	scheme := strings.Index(line, "mooring://")
	if scheme < 0 {
		return line
	}
	hash := strings.IndexByte(line[scheme:], '#')
	if hash < 0 {
		return line
	}
	end := strings.IndexAny(line[scheme+hash:], " \t\"")
	if end < 0 {
		return line[:scheme+hash] + "#…"
	}
	return line[:scheme+hash] + "#…" + line[scheme+hash+end:]
}
