//go:build unix

package acprun

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/agentproc"
)

// An agent that dies of its prompt is ended while the one that has written the prompt still waits to say so.
func TestEndWhileAPromptIsWritten(t *testing.T) {
	t.Parallel()
	j, err := openJournal(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	r := &runner{ctx: t.Context(), work: context.WithoutCancel(t.Context()), events: make(chan func() error), over: make(chan struct{}), journal: j}
	r.cfg.Command = []string{"sh", "-c", "read prompt"}
	proc, err := r.cfg.start(agentproc.NewMark())
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{proc: proc, ending: make(chan struct{}), waits: map[uint64]call{}}
	r.agent, r.current = a, &prompt{Request: "req", Stage: Handing}
	written := make(chan struct{})
	r.call(acp.MethodPrompt, acp.PromptParams{}, func(err error) {
		close(written)
		r.written(a, r.current)(err)
	})
	<-written
	<-proc.Exited()
	ended := make(chan error, 1)
	go func() { ended <- r.endAgent() }() // and nobody takes what is posted
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the agent's end waits for what it has to take itself")
	}
}
