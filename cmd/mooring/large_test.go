//go:build unix && !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package main

import (
	"fmt"
	"strings"
	"testing"
)

// A large session is forked in pieces, by a server that is killed meanwhile and by the one that comes after it; the fork goes
// on by itself as any session, and may be forked again.
func TestForkOfALargeSession(t *testing.T) {
	t.Parallel()
	forkLarge(t, 20) // of two pieces
}

// TestSearchGoesOn: where so much is compared for a page that nothing of it is found, the next is asked for,
// whatever the limit is.
func TestSearchGoesOn(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	var ops strings.Builder
	for i := range 40 {
		text := "fails login" // both words, and not one after the other
		if i == 0 {
			text = "login fails"
		}
		fmt.Fprintf(&ops, `{"method":"put","key":"note/%d","payload":{"text":"%s","image":"data:image/png;base64,%s"}}`+"\n", i, text, strings.Repeat("A", 300_000))
	}
	r.okIn(ops.String(), "session", "append", id, "-", "--wait")
	for _, limit := range []string{"0", "1", "20"} {
		if out := r.ok("session", "search", id, "login fails", "--limit", limit); !strings.HasPrefix(out, "note/0 ") || strings.Count(out, "\n") != 1 {
			t.Errorf("with limit %s: %.200s", limit, out)
		}
	}
}
