package attach

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func tied(t *testing.T, dir, id string) *Tie {
	t.Helper()
	tie, err := OpenTie(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return tie
}

func closed(t *testing.T, tie *Tie) {
	t.Helper()
	if err := tie.Close(); err != nil {
		t.Error(err)
	}
}

// A tie is one process's at a time, is there in a later one, and its session has no other.
func TestTies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tie := tied(t, dir, "ses_1")
	if _, err := OpenTie(dir, "ses_1"); fault.CodeOf(err) != fault.InUse {
		t.Errorf("a second process has it: %v", err)
	}
	owner := capability.Ref{Hosts: []string{"127.0.0.1:1"}}.New("ses_01M8800Z2W0WC3SYW0QTE18W3C")
	must(tie.SetSession(owner.Target(), owner, "batch"))
	must(tie.SetDirectory("/project"))
	closed(t, tie)
	if err := os.WriteFile(filepath.Join(dir, ".ses_1.json-left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tie = tied(t, dir, "ses_1")
	got, batch, err := tie.Begun()
	if err != nil || got.Text() != owner.Text() || batch != "batch" || tie.Session() != owner.Target() || tie.Directory() != "/project" {
		t.Errorf("read again: %v, %s, %v", tie.rec, batch, err)
	}
	must(tie.SetSession(owner.Target(), capability.Ref{}, ""))
	p := &prompt{Request: "r", Stage: handing, Claim: 7, Message: "msg_1", Parts: []part{{ID: "prt_1", Type: "text", Text: "a", Metadata: &partMetadata{partOrigin{"r"}}}}, End: "e"}
	must(tie.setPrompt(p))
	closed(t, tie)
	tie = tied(t, dir, "ses_1")
	if _, batch, err := tie.Begun(); err != nil || batch != "" || tie.rec.Owner != "" || !reflect.DeepEqual(tie.rec.Prompt, p) {
		t.Errorf("read again: %v, %v", tie.rec, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("left is %v, %v", left, err)
	}
	other := tied(t, dir, "ses_2")
	if err := other.SetSession(owner.Target(), capability.Ref{}, ""); fault.CodeOf(err) != fault.InUse {
		t.Errorf("a second of opencode's sessions goes into one: %v", err)
	}
	closed(t, other)
	closed(t, tie)
	must(os.WriteFile(filepath.Join(dir, "ses_1.json"), []byte(`{"opencode":"ses_1`), 0o600))
	if _, err := OpenTie(dir, "ses_1"); fault.CodeOf(err) != fault.OutboxDamaged {
		t.Errorf("a damaged file: %v", err)
	}
	for _, id := range []string{"", "../x", "ses 1", "ses_1.json", "ses/1"} {
		if _, err := OpenTie(dir, id); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("%q: %v", id, err)
		}
	}
}
