//go:build unix

// What users get for bad input, and what they never get.

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

func TestBadInputGetsOneClearLine(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	before := r.tailed(id)
	for _, c := range []struct {
		in   string
		code int
		want string
		args []string
	}{
		{"{\"method\":\"put\",\"key\":\"session\",\"payload\":{}}\n{\"method\":", 1, "line 2", []string{"session", "append", id}},
		{`{"method":"explode"}`, 1, "unknown_method: line 1", []string{"session", "append", id}},
		{`{"method":"put","key":"turn/x","payload":{}}`, 1, "bad_key: line 1", []string{"session", "append", id}},
		{`{"method":"put","key":"session","payload":[]}`, 1, "bad_payload: line 1", []string{"session", "append", id}},
		{`{"method":"put","key":"session","payload":{"x":"` + strings.Repeat("x", 5<<20) + `"}}`, 1, "too_large: line 1", []string{"session", "append", id}},
		{`{"method":"put","key":"session","payload":{},"colour":"red"}`, 1, "line 1", []string{"session", "append", id}},
		{"", 1, "no op lines", []string{"session", "append", id}},
		{"", 1, "not_found", []string{"session", "show", "ses_unknown"}},
		{"", 2, "bad_ref_text", []string{"session", "show", "mooring://127.0.0.1:1/nonsense#secret"}},
		{"", 1, "bad_ref_text", []string{"session", "show", "@" + filepath.Join(r.dir, "no-such-file")}},
		{"", 1, "plaintext", []string{"session", "show", "mooring://example.org/" + id + ".s01JABCDEFGHJKMNPQRSTVWXYZ0#" + strings.Repeat("A", 43)}},
		{"", 2, "rights", []string{"share", id, "--rights", "everything"}},
		{"", 2, "rights", []string{"share", id}},
		{"", 2, "the ref to revoke", []string{"revoke", id}},
		{"", 2, "usage: mooring session export takes REF, and got 0 arguments (see mooring session export --help)", []string{"session", "export"}},
		{"", 2, "unknown flag", []string{"session", "list", "--colour"}},
		{"", 2, "--order is", []string{"session", "list", "--order", "size"}},
		{"", 2, "--limit is", []string{"session", "list", "--limit", "-1"}},
		{"", 2, "--state", []string{"outbox", "list", "--state", "lost"}},
		{"", 1, "not_found", []string{"outbox", "drop", "01JABCDEFGHJKMNPQRSTVWXYZ9"}},
		{"garbage", 1, "line 1", []string{"session", "import", "-"}},
	} {
		r.failsIn(c.in, c.code, c.want, c.args...)
	}
	if after := r.tailed(id); after != before {
		t.Errorf("bad input went from %d events to %d", before, after)
	}
	for _, args := range [][]string{{"explode"}, {"session", "show"}, {"session", "list", "--colour"}, {"session", "show", "ses_unknown"}} {
		for _, flagged := range [][]string{append([]string{"--json"}, args...), append(args, "--json")} {
			if got := r.runIn("", flagged...); !strings.HasPrefix(got.err, `{"error":{"code":`) || got.out != "" {
				t.Errorf("mooring %s: %+v", strings.Join(flagged, " "), got)
			}
		}
	}
	blocked := filepath.Join(r.dir, "blocked")
	if err := os.MkdirAll(filepath.Join(blocked, "outbox.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := r.runAs(blocked, "", "session", "list"); got.code != cli.ExitRefused || got.err != "mooring: open outbox: bad_argument: its file cannot be opened for writing: is a directory\n" {
		t.Errorf("an outbox that cannot be written: %+v", got)
	}
	r.stop()
	r.fails(1, "unavailable", "session", "show", id)
	fresh := r.runAs(filepath.Join(r.dir, "fresh"), "", "session", "list")
	if fresh.code != cli.ExitUsage || !strings.Contains(fresh.err, "--owner") {
		t.Errorf("a home without an owner: exit %d, %s", fresh.code, fresh.err)
	}
}

func TestNoOutputHasASecret(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.importSmall()
	text, err := os.ReadFile(filepath.Join(r.data(), "owner.ref"))
	if err != nil {
		t.Fatal(err)
	}
	_, secret, _ := strings.Cut(strings.TrimSpace(string(text)), "#")
	ref := strings.TrimSpace(string(text))
	for _, args := range [][]string{
		{"session", "show", ref}, {"redeem", ref}, {"session", "list", "--owner", ref + "x"}, {"revoke", ref},
		{"session", "tail", ref}, {"outbox", "list", "--json"}, {"outbox", "status"}, {"session", "show", id, "--json"},
	} {
		got := r.runIn("", args...)
		if strings.Contains(got.out+got.err, secret) {
			t.Errorf("mooring %s prints the secret", args[0])
		}
	}
}

func TestHelpHasExamples(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"session", "import"}, {"session", "export"}, {"session", "list"}, {"session", "show"}, {"session", "append"}, {"session", "tail"},
		{"share"}, {"redeem"}, {"revoke"}, {"outbox", "status"}, {"outbox", "list"}, {"outbox", "drain"}, {"outbox", "retry"}, {"outbox", "drop"}, {"version"},
	} {
		var out, errOut bytes.Buffer
		code := runContext(t.Context(), append(args, "--help"), strings.NewReader(""), &out, &errOut)
		if code != cli.ExitOK || !strings.Contains(out.String(), "Examples:") {
			t.Errorf("mooring %s --help: exit %d without examples", strings.Join(args, " "), code)
		}
	}
	var out, errOut bytes.Buffer
	if code := runContext(t.Context(), []string{"version", "--json"}, strings.NewReader(""), &out, &errOut); code != cli.ExitOK || !strings.Contains(out.String(), `"version"`) {
		t.Errorf("version: exit %d, %s", code, out.String())
	}
}
