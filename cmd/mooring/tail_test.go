//go:build unix

// What tail and audit print, to the character, and where they end.

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestFromBeyondTheEnd(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_short")
	for _, c := range []struct {
		what string
		args []string
		code int
	}{{"log", []string{"session", "tail", id}, cli.ExitRefused}, {"audit", []string{"audit", id}, cli.ExitOK}} {
		from := func(n int, more ...string) []string {
			return append(append(append([]string{}, c.args...), "--from", fmt.Sprint(n)), more...)
		}
		if got := r.runIn("", from(99)...); got.code != c.code || got.out != "" || !strings.Contains(got.err, fmt.Sprintf("the %s ends at ", c.what)) {
			t.Errorf("%q: %+v", c.args, got)
		}
		if got := r.runIn("", from(99, "--follow")...); got.code != cli.ExitRefused || got.out != "" || strings.Count(got.err, "\n") != 1 ||
			!strings.Contains(got.err, fmt.Sprintf("the %s ends at ", c.what)) || !strings.Contains(got.err, "before --from 99") {
			t.Errorf("%q, followed: %+v", c.args, got)
		}
	}
	if got := r.runIn("", "session", "tail", id, "--from", "2"); got.err != "" || got.out != "" {
		t.Errorf("from the very end: %+v", got)
	}
	if got := r.runIn("", "session", "tail", id, "--from", "99", "--json"); got.code != cli.ExitRefused || got.out != "" || !strings.Contains(got.err, `"code":"server_behind"`) {
		t.Errorf("beyond the end as JSON: %+v", got)
	}
}

// The lines of tail, with who did it.
func TestTailLines(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_lines")
	helper := r.shareTo("helper", id, "--rights", "read,append", "--actor", "owner/helper")
	ref := mustRef(t, helper).ID
	home := r.otherHome("helper")
	var shown struct{ Op, Batch string }
	out := r.okAs(home, `{"method":"put","key":"message/m","payload":{"a":"<b>&","n":1.50}}`, "session", "append", helper, "--wait", "--json")
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(err)
	}
	r.okIn(`{"method":"bumpEpoch"}`, "session", "append", id, "--wait")
	plain := "1\tcreate\tref/" + r.refs(id)[0].Ref + "\towner\n2\tput\tsession\towner\n3\tshare\tref/" + ref + "\towner\n4\tput\tmessage/m\towner/helper\n5\tbumpEpoch\tepoch\towner\n"
	if got := r.ok("session", "tail", id); got != plain {
		t.Errorf("tail prints\n%swant\n%s", got, plain)
	}
	lines := strings.Split(r.ok("session", "tail", id, "--from", "3", "--json"), "\n")
	want := regexp.MustCompile(`^\{"cursor":4,"method":"put","key":"message/m","actor":"owner/helper","ref":"` + ref + `","op":"` + shown.Op + `","batch":"` + shown.Batch +
		`","outbox":"` + r.statusOf(home).Outbox + `","at":[0-9]{13},"hash":"[0-9a-f]{64}","schema_version":1,"payload":\{"a":"<b>&","n":1\.50\}\}$`)
	if len(lines) != 3 || !want.MatchString(lines[0]) {
		t.Errorf("tail --json prints %q, want %s", lines, want)
	}
}
