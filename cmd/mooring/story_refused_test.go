//go:build unix

// Commands that refuse, or report refusals: nothing is half done, and what was
// done is told.

package main

import (
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestAWrongLineCommitsNothing(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_s")
	before, events := r.statusOf(r.home()).States["acked"], r.tailed(id)
	unknown := ulid.Make().String()
	line := func(batch, more string) string {
		return `{"method":"put","key":"message/m","payload":{"b":"` + batch + `"},"batch":"` + batch + `"` + more + "}\n"
	}
	for _, more := range []string{
		`,"depends_on":["` + unknown + `"]`,
		`,"expected_cursor":{"op":"` + unknown + `","path":"cursor"}`,
	} {
		r.failsIn(line("a", "")+line("b", more), cli.ExitRefused, "line 2: op "+unknown, "session", "append", id)
	}
	if after := r.statusOf(r.home()).States["acked"]; after != before || r.tailed(id) != events {
		t.Errorf("%d ops before, %d after", before, after)
	}

	// Ops with ids of their own can be appended again, and their ids are theirs.
	mine := ulid.Make().String()
	file := r.file("ops.jsonl", line("a", `,"op_id":"`+mine+`"`)+line("b", `,"op_id":"`+ulid.Make().String()+`","depends_on":["`+mine+`"]`))
	first := r.ok("session", "append", id, file, "--wait")
	if again := r.ok("session", "append", id, file, "--wait"); again != first {
		t.Errorf("appended again:\n%safter\n%s", again, first)
	}
	if n := r.tailed(id); n != events+2 {
		t.Errorf("%d events", n)
	}
	// What is durable when a later batch fails is told, and where to go on.
	got := r.runIn(line("e", "")+`{"method":"put","key":"message/m","batch":"f","refs":{"payload":{"op":"`+mine+`","path":"no.such.field"}}}`, "session", "append", id)
	if got.code != cli.ExitRefused || !strings.Contains(got.err, "lines 1 to 1 are in the outbox; continue with line 2") || strings.Count(got.out, "\n") != 1 {
		t.Errorf("a batch that cannot be committed: exit %d, %q %q", got.code, got.out, got.err)
	}
	events++
	r.failsIn(line("c", "")+line("c", `,"op_id":"`+mine+`"`), cli.ExitRefused, "line 2: op id "+mine+" is taken", "session", "append", id)
	if n := r.tailed(id); n != events+2 {
		t.Errorf("%d events", n)
	}
}

func TestDrainTellsOfRefusals(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_s")
	ref := r.shareTo("helper", id, "--rights", "read,append")
	home := r.otherHome("helper")
	r.okAs(home, putLine("m1"), "session", "append", ref, "--wait")
	r.stop()
	r.okAs(home, putLine("m2")+"\n"+putLine("m3"), "session", "append", ref)
	r.start()
	r.ok("revoke", ref)
	got := r.runAs(home, "", "outbox", "drain")
	if got.code != cli.ExitRefused || !strings.Contains(got.err, "2 of them did not apply: see mooring outbox list --state failed") || !strings.Contains(got.out, "2 ops answered") {
		t.Errorf("drain: exit %d, %q %q", got.code, got.out, got.err)
	}
	if out := r.okAs(home, "", "outbox", "drain"); !strings.Contains(out, "0 ops answered") { // they are not told twice
		t.Errorf("drain prints %q", out)
	}
}
