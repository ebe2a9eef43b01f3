//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// Values of own kinds, as show and export print them: tidy JSON, tables, who changed them when; and
// an export that is imported again has them.
func TestShowOwnKinds(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	r.okIn(`{"method":"put","key":"todo/2","payload":{"title":"paint the boat","by":{"name":"Ann"},"tags":[]}}
{"method":"put","key":"steps","payload":[{"step":"sand\u202e","hours":1},{"hours":2,"step":"paint"}]}
{"method":"put","key":"todo/1","payload":null}
`, "session", "append", id, "-", "--wait")
	head := ` +cursor \d+  owner  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n`
	want := regexp.MustCompile(`\nsteps` + head + `  step +hours\n  sand +1\n  paint +2\n` +
		`\ntodo/1` + head + `  null\n` +
		`\ntodo/2` + head + `  \{\n    "title": "paint the boat",\n    "by": \{\n      "name": "Ann"\n    \},\n    "tags": \[\]\n  \}\n$`)
	if out := r.ok("session", "show", id); !want.MatchString(out) {
		t.Errorf("show prints\n%s", out)
	}
	var shown struct {
		Values []struct {
			Key, Actor string
			At         int64
			Payload    json.RawMessage
		}
		More int `json:"more_values"`
	}
	if err := json.Unmarshal([]byte(r.ok("session", "show", id, "--json")), &shown); err != nil || len(shown.Values) != 3 || shown.More != 0 ||
		shown.Values[0].Key != "steps" || shown.Values[1].Actor != "owner" || shown.Values[1].At == 0 || string(shown.Values[1].Payload) != "null" {
		t.Errorf("show --json: %+v, %v", shown, err)
	}

	r.okIn(`{"method":"claim","key":"todo/1","lease":3600000,"worker":"w7"}`+"\n", "session", "append", id, "-", "--wait")
	if out := r.ok("session", "show", id); !regexp.MustCompile(`\ntodo/1 +cursor \d+  owner  \S+  claimed by owner w7 until \S+Z\n  null\n`).MatchString(out) {
		t.Errorf("show of a claimed key prints\n%s", out)
	}

	export := r.ok("session", "export", id)
	if !strings.Contains(export, `"todo/2": {"title":"paint the boat","by":{"name":"Ann"},"tags":[]}`) {
		t.Errorf("export prints\n%s", export)
	}
	changed := r.ok("session", "export", id, "--changed")
	var doc struct {
		Changed map[string]struct {
			Cursor     uint64
			At         int64
			Ref, Actor string
		}
	}
	if err := json.Unmarshal([]byte(changed), &doc); err != nil || len(doc.Changed) != 3 || doc.Changed["todo/2"].Cursor != doc.Changed["steps"].Cursor-1 ||
		doc.Changed["todo/1"].Actor != "owner" || doc.Changed["todo/1"].At != shown.Values[1].At || !strings.HasPrefix(doc.Changed["steps"].Ref, id+".") {
		t.Errorf("export --changed: %+v, %v", doc, err)
	}
	export = changed // an import ignores what that adds
	again := strings.TrimSpace(r.okIn(strings.Replace(export, `"ses_small"`, `"ses_again"`, 1), "session", "import", "-", "--owner", r.owner()))
	export = r.ok("session", "export", id)
	if got := r.ok("session", "export", again); got != strings.Replace(export, `"ses_small"`, `"ses_again"`, 1) {
		t.Errorf("exported, imported and exported again:\n%s", got)
	}

	var many strings.Builder
	for i := range 120 {
		fmt.Fprintf(&many, `{"method":"put","key":"n/%d","payload":1}`+"\n", i)
	}
	r.okIn(many.String(), "session", "append", id, "-", "--wait")
	if out := r.ok("session", "show", id); !strings.HasSuffix(out, "\nand 23 more values: mooring session ls lists all\n") || strings.Count(out, "\nn/") != 100 {
		t.Errorf("show of 123 values prints\n%s", out)
	}
}
