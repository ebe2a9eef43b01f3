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
	if !strings.Contains(progress.String(), "round 1 of 1") {
		t.Errorf("no progress:\n%s", progress.String())
	}
}
