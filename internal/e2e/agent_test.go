package e2e

// An agent's process: this test binary, started again with a plan. It commits
// what the plan says, waits for the answers and writes them down; killed at any
// moment, it is started again with the same plan and the same home.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/rpctrace"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// agentVar names the variable with the plan's file that makes the test binary an agent.
const agentVar = "E2E_AGENT_PLAN"

// killAtVar names the variable with the number of the wire message, sent or
// received, counted over all connections, at which an agent kills itself.
const killAtVar = "E2E_KILL_AT_MESSAGE"

// agentMain is the agent's main. It gives the exit code.
func agentMain(file string) int {
	text, err := os.ReadFile(file)
	var p plan
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil {
		err = p.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1
	}
	return 0
}

// openOutbox opens the plan's outbox in Postgres; nil if it is in the home folder.
func (p *plan) openOutbox() func(context.Context, outbox.Config) (*outbox.Box, error) {
	if p.OutboxURL == "" {
		return sqliteclient.Outbox(p.Home)
	}
	return pgclient.Outbox(p.OutboxURL, "")
}

// run works the plan off.
func (p *plan) run(ctx context.Context) error {
	seenAcks, kill := &acks{}, killAt(os.Getenv(killAtVar))
	traced := rpctrace.With(ctx, func(dir string, m rpccp.Message) {
		kill(dir, m)
		seenAcks.see(dir, m)
	})
	c, err := client.Open(traced, client.Config{OpenOutbox: p.openOutbox(),
		OutboxConfig: outbox.Config{Window: outbox.Window{Batches: p.Window}}})
	if err != nil {
		return err
	}
	defer c.Close()
	tickets, err := p.commit(ctx, c)
	if err != nil {
		return err
	}
	fmt.Println("committed")
	results := map[string][]client.Outcome{}
	if p.UntilDenied {
		if err := p.goOn(ctx, c, results); err != nil {
			return err
		}
	}
	if err := p.wait(ctx, c, tickets, results); err != nil {
		return err
	}
	if err := writeJSON(p.Out, results); err != nil {
		return err
	}
	all, repeated := seenAcks.counts()
	fmt.Printf(answeredFormat+"\n", all, repeated)
	return nil
}

// wait fills in the results of tickets.
func (p *plan) wait(ctx context.Context, c *client.Client, tickets []client.Ticket, results map[string][]client.Outcome) error {
	var mu sync.Mutex // guards results
	all, ctx := errgroup.WithContext(ctx)
	if !p.Together {
		all.SetLimit(1)
	}
	for _, t := range tickets {
		all.Go(func() error {
			// By the id alone, as a later process would.
			got, err := c.Ticket(t.Batch).Wait(ctx)
			mu.Lock()
			defer mu.Unlock()
			results[t.Batch] = got
			return err
		})
	}
	return all.Wait()
}

// answeredFormat is an agent's last line: the acks it got, and those of them that
// told of duplicates.
const answeredFormat = "answered by %d acks, %d of them of what had been committed before"

// goOn commits the last batch again and again, under new ids, with some ahead of
// the answers, until one is denied.
func (p *plan) goOn(ctx context.Context, c *client.Client, results map[string][]client.Outcome) error {
	b := p.Batches[len(p.Batches)-1]
	var waiting []client.Ticket
	for denied := false; !denied || len(waiting) > 0; {
		if !denied {
			b.ID = outbox.NewBatchID()
			b.Ops[0] = put("session", map[string]any{"n": len(results) + len(waiting)})
			to, err := p.open(ctx, c, &b)
			if err != nil {
				return err
			}
			b.fill(to)
			t, err := to.Commit(ctx)
			if err != nil {
				return err
			}
			waiting = append(waiting, t)
		}
		if denied || len(waiting) > 8 {
			got, err := waiting[0].Wait(ctx)
			if err != nil {
				return err
			}
			results[waiting[0].Batch] = got
			waiting = waiting[1:]
			denied = denied || got[0].Status == client.Denied
		}
	}
	return nil
}

// killAt gives a trace that ends this process at the n-th message.
func killAt(n string) func(string, rpccp.Message) {
	if n == "" {
		return func(string, rpccp.Message) {}
	}
	at, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		panic(err)
	}
	var seen atomic.Int64
	return func(string, rpccp.Message) {
		if seen.Add(1) == at {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				panic(err)
			}
			select {} // until the signal is delivered
		}
	}
}

// commit commits every batch, in order. Repeating it changes nothing.
func (p *plan) commit(ctx context.Context, c *client.Client) ([]client.Ticket, error) {
	var tickets []client.Ticket
	for i := range p.Batches {
		b := &p.Batches[i]
		if b.After != "" {
			if _, err := c.Ticket(b.After).Wait(ctx); err != nil {
				return nil, err
			}
		}
		if b.createsByReference() {
			if err := p.commitCreation(ctx, c, b); err != nil {
				return nil, fmt.Errorf("batch %d: %w", i, err)
			}
			tickets = append(tickets, c.Ticket(b.ID))
			continue
		}
		to, err := p.open(ctx, c, b)
		if err != nil {
			return nil, err
		}
		b.fill(to)
		t, err := to.Commit(ctx)
		if err != nil {
			return nil, fmt.Errorf("batch %d: %w", i, err)
		}
		tickets = append(tickets, t)
	}
	return tickets, nil
}

// createsByReference says whether the op that creates needs other ops: the client's
// own verbs take values alone, the outbox takes references.
func (b *planBatch) createsByReference() bool { return b.Creates && len(b.Ops[0].needs()) > 0 }

// commitCreation commits a batch that creates a session to the outbox itself.
func (p *plan) commitCreation(ctx context.Context, c *client.Client, b *planBatch) error {
	space, err := c.Space(ctx, parseRef(p.Space)) // which keeps it
	if err != nil {
		return err
	}
	owner := parseRef(b.Session)
	if err := c.Outbox().PutRef(ctx, owner, outbox.RefMeta{Role: outbox.SessionOwner}); err != nil {
		return err
	}
	to := outbox.Batch{ID: b.ID, Session: owner.Target(), Via: space.Ref().ID, Atomic: b.Atomic}
	for _, o := range b.Ops {
		op := outbox.Op{Method: o.Method, DependsOn: o.DependsOn}
		for _, a := range o.Args {
			op.Args = append(op.Args, ledger.Arg{Name: a.Name, JSON: a.JSON, Ref: (*ledger.Ref)(a.Ref)})
		}
		if e := o.Expected; e != nil {
			op.Expected = ledger.Expect{Set: true, Ref: (*ledger.Ref)(e.Ref)}
			if e.Ref == nil {
				if err := json.Unmarshal(e.JSON, &op.Expected.Cursor); err != nil {
					return err
				}
			}
		}
		to.Ops = append(to.Ops, op)
	}
	_, err = c.Outbox().Commit(ctx, to)
	return err
}

// open begins the client's batch for b.
func (p *plan) open(ctx context.Context, c *client.Client, b *planBatch) (*client.Batch, error) {
	ref := parseRef(b.Session)
	if !b.Creates {
		s, err := c.Session(ctx, ref)
		if err != nil {
			return nil, err
		}
		return s.Batch().SetID(b.ID), nil
	}
	space, err := c.Space(ctx, parseRef(p.Space))
	if err != nil {
		return nil, err
	}
	o := client.CreateOptions{Owner: ref, BatchID: b.ID}
	if b.Source == "" {
		_, to := space.Create(o)
		return to, nil
	}
	source, err := c.Session(ctx, parseRef(b.Source))
	if err != nil {
		return nil, err
	}
	var at uint64
	_ = json.Unmarshal(b.Ops[0].argument("at"), &at) // 0 where there is none
	_, to := space.Fork(source, at, o)
	return to, nil
}

// agent is an agent's process and its successors.
type agent struct {
	t    testing.TB
	plan plan
	file string
	env  []string // of every process, in addition
	run  *process // the present one
	all  []*process
}

// newAgent writes a plan down for a process to be started. Home and Out are made
// if they are not given.
func newAgent(t testing.TB, p plan) *agent {
	t.Helper()
	dir := t.TempDir()
	if p.Home == "" && p.OutboxURL == "" {
		p.Home = filepath.Join(dir, "home")
	}
	if p.Out == "" {
		p.Out = filepath.Join(dir, "results.json")
	}
	a := &agent{t: t, plan: p, file: filepath.Join(dir, "plan.json")}
	if err := writeJSON(a.file, p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range a.all {
			p.kill()
			p.checkDefects(t)
		}
	})
	return a
}

// start starts the process, armed with a crash point if one is named.
func (a *agent) start(point string) {
	a.t.Helper()
	self, err := os.Executable()
	if err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(environment(point), agentVar+"="+a.file)
	cmd.Env = append(cmd.Env, a.env...)
	if a.run, err = launch(cmd); err != nil {
		a.t.Fatal(err)
	}
	a.all = append(a.all, a.run)
}

// finish waits for the process's end, starting it again as often as it was
// killed, and gives the results by batch id.
func (a *agent) finish() map[string][]client.Outcome {
	a.t.Helper()
	for {
		if !within(5*patience, a.run.done) {
			_ = a.run.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines say what they wait for
			within(patience, a.run.done)
			a.t.Fatalf("the agent does not come to an end:\n%s%s", a.run.out.text(), a.run.err.text())
		}
		if !a.run.killed() {
			break
		}
		a.start("")
	}
	if code := a.run.cmd.ProcessState.ExitCode(); code != 0 {
		a.t.Fatalf("the agent ended with code %d:\n%s", code, a.run.err.text())
	}
	return a.results()
}

// results reads what the agent wrote down.
func (a *agent) results() map[string][]client.Outcome {
	a.t.Helper()
	text, err := os.ReadFile(a.plan.Out)
	if err != nil {
		a.t.Fatal(err)
	}
	var results map[string][]client.Outcome
	if err := json.Unmarshal(text, &results); err != nil {
		a.t.Fatal(err)
	}
	return results
}

// repeatedAcks is how many acks told the agent's last process of duplicates.
func (a *agent) repeatedAcks() int {
	a.t.Helper()
	var all, repeated int
	if _, err := fmt.Sscanf(lastLine(a.run.out.text()), answeredFormat, &all, &repeated); err != nil {
		a.t.Fatalf("the agent does not say how it was answered: %v\n%s", err, a.run.out.text())
	}
	a.t.Logf("%d acks, %d of them of what had been committed before", all, repeated)
	return repeated
}

// parseRef reads a ref's text that the tests made.
func parseRef(text string) capability.Ref {
	ref, err := capability.ParseRef(text)
	if err != nil {
		panic(err)
	}
	return ref
}

func hashText(h [32]byte) string { return base64.RawURLEncoding.EncodeToString(h[:]) }

// writeJSON writes a file as a whole or not at all.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}
