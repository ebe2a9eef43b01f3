package acprun

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/agentproc"
	"github.com/mooring-rpc/mooring/internal/filelock"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "s.jsonl")
	open := func() *journal {
		t.Helper()
		j, err := openJournal(name)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	write := func(j *journal, r record) {
		t.Helper()
		if err := j.write(r); err != nil {
			t.Fatal(err)
		}
	}
	j := open()
	if _, err := openJournal(name); fault.CodeOf(err) != fault.InUse {
		t.Errorf("a second runner: %v", err)
	}
	write(j, record{Agent: &agentproc.Identity{Mark: "a"}})
	write(j, record{Agent: &agentproc.Identity{Mark: "a", PID: 7}})
	write(j, record{ACP: &acpSession{ID: "x", Dir: "/d"}, Begun: 5})
	write(j, record{Prompt: &prompt{Request: "p1", Stage: Claiming}})
	write(j, record{Prompt: &prompt{Request: "p1", Stage: Handing, Turn: "t"}})
	write(j, record{Prompt: &prompt{Request: "p2", Stage: Heard}})
	check := func(j *journal) {
		t.Helper()
		if p := j.prompts["p1"]; p == nil || p.Stage != Handing || p.Turn != "t" || len(j.prompts) != 2 {
			t.Errorf("prompts %v", j.prompts)
		}
		if a := j.agents["a"]; a == nil || a.PID != 7 || *j.acp != (acpSession{"x", "/d"}) || j.begun != 5 {
			t.Errorf("%+v", j)
		}
	}
	check(j)
	// A write that fails, and a runner that was killed while it wrote.
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	written := j.f
	j.f = f // which cannot be written
	if err := j.write(record{Ended: "a"}); err == nil || len(j.agents) != 1 {
		t.Errorf("not written: %v, %v", err, j.agents)
	}
	j.f = written
	if err := j.write(record{Ended: "a"}); err == nil {
		t.Error("it went on behind half a record")
	}
	if _, err := j.f.WriteString(`{"prompt":{"request":"p2","stage":"do`); err != nil {
		t.Fatal(err)
	}
	_ = j.f.Close()
	_ = filelock.Close(j.lock)
	j = open()
	check(j)
	for i := range maxRecords {
		write(j, record{Prompt: &prompt{Request: fmt.Sprint("q", i), Stage: Done}})
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(name); err != nil || len(text) > 1000 {
		t.Errorf("it was not written anew: %d bytes, %v", len(text), err)
	}
	j = open()
	check(j)
	write(j, record{Ended: "a"})
	write(j, record{Prompt: &prompt{Request: "p1", Stage: Done}})
	if len(j.agents) != 0 || len(j.prompts) != 1 {
		t.Errorf("%+v", j)
	}
	if err := j.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("{\"acp\":\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(name); fault.CodeOf(err) != fault.OutboxDamaged {
		t.Errorf("a damaged journal: %v", err)
	}
}
