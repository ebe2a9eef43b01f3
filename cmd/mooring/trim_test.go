//go:build unix

// Trimmed logs at the command line.

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestTailOfATrimmedLogSaysWhereItStarts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database, "--keep-log", "1s")
		id := r.importSmall()
		before := r.ok("session", "export", id)
		deadline := time.Now().Add(servePatience)
		for ; !strings.Contains(r.runIn("", "session", "tail", id).err, "cursor_expired: the server has let go of the events before cursor 4: --from 3"); time.Sleep(pollInterval) {
			if time.Now().After(deadline) {
				t.Fatal("the log is never trimmed")
			}
		}
		for _, more := range []string{"--json", "--follow"} {
			r.fails(cli.ExitRefused, "--from 3 prints those that are left", "session", "tail", id, more)
		}
		if out := r.ok("session", "tail", id, "--from", "3"); out != "" {
			t.Errorf("the log has %q", out)
		}
		if after := r.ok("session", "export", id); after != before {
			t.Errorf("the state was %s and is %s", before, after)
		}
	})
}
