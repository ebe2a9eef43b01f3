//go:build unix

// A session that holds as much as it may, at the command line.

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestAQuotaShowsInTheOutboxAndGoesAway(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "", "--session-quota", "64KiB")
	id := r.importSmall()
	put := func(key string) string {
		return fmt.Sprintf(`{"method":"put","key":"message/%s","payload":{"role":"user","text":"%s"}}`+"\n", key, strings.Repeat("x", 40_000))
	}
	r.okIn(put("msg_a"), "session", "append", id, "--wait")
	r.okIn(put("msg_b"), "session", "append", id)
	waits := r.listed("--state", "pending,in_flight")
	if len(waits) != 1 {
		t.Fatalf("%+v", waits)
	}
	if got := r.runIn("", "outbox", "drain", "--timeout", "900ms"); got.code != cli.ExitRefused || !strings.Contains(got.err, "still in the outbox: quota_exceeded") {
		t.Errorf("drain: %+v", got)
	}
	if st := r.ok("outbox", "status"); !strings.Contains(st, "quota_exceeded") || !strings.Contains(st, "--session-quota") || strings.Contains(st, "stopped") {
		t.Errorf("status: %s", st)
	}
	if got := r.runIn("", "outbox", "status"); !strings.Contains(got.err, "mooring outbox drop "+waits[0].Op) || !strings.Contains(got.err, "(put)") {
		t.Errorf("status does not say what to do: %q", got.err)
	}
	if st := r.ok("outbox", "status", "--json"); !strings.Contains(st, `"blocking":"`+waits[0].Op+`"`) && !strings.Contains(st, `"blocking": "`+waits[0].Op+`"`) {
		t.Errorf("status: %s", st)
	}
	// What takes something away passes, but not what stands before it in the same outbox.
	r.ok("outbox", "drop", waits[0].Op)
	r.ok("session", "purge", id, "message/msg_a", "--yes")
	r.okIn(put("msg_b"), "session", "append", id, "--wait")
}
