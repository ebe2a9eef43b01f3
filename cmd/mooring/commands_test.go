package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// TestCommandsAreInTheTable: docs/commands.md has a row for each command there is, and for no other.
func TestCommandsAreInTheTable(t *testing.T) {
	t.Parallel()
	root := newRoot(&cli.Env{Out: io.Discard, Err: io.Discard})
	root.InitDefaultCompletionCmd("completion")
	var there []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "mooring ")
		if c.Name() == "completion" || c.Runnable() && c != root && !c.Hidden {
			there = append(there, path)
		}
		if c.Name() != "completion" { // its shells are one argument to a reader
			for _, child := range c.Commands() {
				walk(child)
			}
		}
	}
	walk(root)
	text, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	named := regexp.MustCompile("`((?:[a-z-]+ ?)+)")
	for row := range strings.Lines(string(text)) {
		first, rest, _ := strings.Cut(strings.TrimPrefix(row, "| `"), "|")
		if !strings.HasPrefix(row, "| `") || rest == "" {
			continue
		}
		group := ""
		for _, m := range named.FindAllStringSubmatch("`"+first, -1) {
			path := strings.TrimSpace(m[1])
			if before, _, flag := strings.Cut(path, " -"); flag {
				path = before
			}
			if !strings.Contains(path, " ") && group != "" {
				path = group + " " + path // "outbox status, list"
			}
			if before, _, below := strings.Cut(path, " "); below {
				group = before
			}
			documented = append(documented, path)
		}
	}
	slices.Sort(there)
	slices.Sort(documented)
	there, documented = slices.Compact(there), slices.Compact(documented)
	for _, path := range there {
		group := slices.ContainsFunc(there, func(other string) bool { return strings.HasPrefix(other, path+" ") })
		if !group && !slices.Contains(documented, path) {
			t.Errorf("docs/commands.md has no row for mooring %s", path)
		}
	}
	for _, path := range documented {
		if !slices.Contains(there, path) {
			t.Errorf("docs/commands.md has a row for mooring %s, which is no command", path)
		}
	}
}
