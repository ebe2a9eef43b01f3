//go:build crash

package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// TestEveryLineIsMeasured runs the whole program, in its smallest form.
func TestEveryLineIsMeasured(t *testing.T) {
	url, err := pgtest.ServerURL(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Setenv(envURL, url); err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"--quick"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	for _, c := range cases() {
		c = c.small()
		line := `\| ` + regexp.QuoteMeta(c.label()) + ` \| \d+ \| \d+ \| \d+ \| \d+\.\d\d \| .* \|\n`
		if n := len(regexp.MustCompile(line).FindAllString(out.String(), -1)); n != 1 {
			t.Errorf("%d lines like %s in\n%s", n, line, out.String())
		}
	}
	for _, s := range specials(oldCommit) {
		label := s.small().label()
		line := `\| ` + regexp.QuoteMeta(label) + ` \| .* \| \d+(\.\d+)? \| .* \| .* \| .* \| .* \| .* \|\n`
		n, leftOut := len(regexp.MustCompile(line).FindAllString(out.String(), -1)), strings.Contains(out.String(), "Not measured: "+label+": old: this clone has no commit")
		if _, old := s.(oldClients); n != 2 && !(old && leftOut) {
			t.Errorf("%d lines like %s in\n%s", n, line, out.String())
		}
	}
	if !strings.Contains(progress.String(), "round 1 of 1") {
		t.Errorf("no progress:\n%s", progress.String())
	}
}

// TestNoHistory: a clone without the older commit measures everything else, and says what is missing.
func TestNoHistory(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"--quick", "--db", "sqlite", "--only", "of commit", "--old", "0123456789"}, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if want := "\nNot measured: 5 followers of commit 0123456789, full speed: old: this clone has no commit 0123456789: fetch the whole history"; !strings.Contains(out.String(), want) {
		t.Errorf("no %s in\n%s", want, out.String())
	}
}
