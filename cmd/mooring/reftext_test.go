//go:build unix

// Where commands print the text of a ref, with its secret.

package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// With --json a ref's secret stands in text, and in no other field of any command.
func TestTheTextOfARefIsInText(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_fields")
	check := func(out string) {
		t.Helper()
		var made map[string]any
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		ref, text := made["ref"].(string), made["text"].(string)
		if capability.Target(ref) == "" || !strings.Contains(text, "/"+ref+"#") {
			t.Errorf("ref is %q, and text not that one's", ref)
		}
		for name, value := range made {
			if s, is := value.(string); is && name != "text" && strings.Contains(s, "#") {
				t.Errorf("the field %s has a secret", name)
			}
		}
	}
	check(r.ok("share", id, "--rights", "read", "--json"))
	check(r.ok("share", r.owner(), "--rights", "list", "--json"))
	check(r.okIn(`{"method":"share","rights":["read"]}`, "session", "append", id, "--json"))
	if out := r.ok("share", id, "--rights", "read", "--json", "--to", filepath.Join(r.dir, "x.ref")); strings.Contains(out, "text") || strings.Contains(out, "#") {
		t.Errorf("with a file: %s", out)
	}
	r.stop()
	code, out, message := command(t, "admin", "rotate-owner", "--data", r.data(), "--session", id, "--json")
	if code != cli.ExitOK {
		t.Fatal(code, message)
	}
	check(out)
}
