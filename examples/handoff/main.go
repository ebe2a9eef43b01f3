// Handoff is two agents: one gives tasks to the other, and gets its answers. Either may be killed at any moment and
// started again: no task is lost, none is done twice, and each has one end.
//
//	go run ./examples/handoff new srv/owner.ref lead.ref worker.ref
//	go run ./examples/handoff work worker.ref bob & go run ./examples/handoff ask lead.ref ann wash iron fold
//
// new makes a session, and a ref for each of the two, which allows no more than it needs. ask gives each task as a
// prompt, and ends when all have an end. work does one task after the other until it is stopped: doing one is to write a
// line to NAME-done.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

const usage = "usage: handoff new OWNER-REF-FILE LEAD-REF-FILE WORKER-REF-FILE\n       handoff ask LEAD-REF-FILE NAME TASK...\n       handoff work WORKER-REF-FILE NAME"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 4 && args[0] == "new":
		err = create(ctx, args[1], args[2], args[3])
	case len(args) > 3 && args[0] == "ask":
		err = withSession(ctx, args[2], args[1], func(s *client.Session) error { return ask(ctx, s, args[2], args[3:]) })
	case len(args) == 3 && args[0] == "work":
		err = withSession(ctx, args[2], args[1], func(s *client.Session) error { return work(ctx, s, args[2]) })
	default:
		err = errors.New(usage)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// withClient runs do with a client whose outbox lives in the folder NAME-outbox, and the ref in a file.
func withClient(ctx context.Context, name, refFile string, do func(*client.Client, capability.Ref) error) error {
	ref, err := capability.ReadRefFile(refFile)
	if err != nil {
		return err
	}
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(name + "-outbox")})
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c, ref)
}

func withSession(ctx context.Context, name, refFile string, do func(*client.Session) error) error {
	return withClient(ctx, name, refFile, func(c *client.Client, ref capability.Ref) error {
		s, err := c.Session(ctx, ref)
		if err != nil {
			return err
		}
		return do(s)
	})
}

// create makes the session and the two refs: one asks prompts, the other answers them.
func create(ctx context.Context, ownerFile, leadFile, workerFile string) error {
	return withClient(ctx, "handoff", ownerFile, func(c *client.Client, owner capability.Ref) error {
		space, err := c.Space(ctx, owner)
		if err != nil {
			return err
		}
		prompts := []string{client.KindPrompt}
		_, b := space.Create(client.CreateOptions{})
		lead, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Ask, AskKinds: prompts, Label: "lead"})
		worker, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Answer, AnswerKinds: prompts, Label: "worker"})
		if _, err := b.CommitWait(ctx); err != nil {
			return err
		}
		return errors.Join(os.WriteFile(leadFile, []byte(lead.Text()+"\n"), 0o600), os.WriteFile(workerFile, []byte(worker.Text()+"\n"), 0o600))
	})
}

// ask gives the tasks, and waits for the end of each. Their ids are the same whenever it runs, so what was asked before is
// not asked again.
func ask(ctx context.Context, s *client.Session, name string, tasks []string) error {
	var tickets []client.RequestTicket
	for i, task := range tasks {
		ticket, err := s.Ask(ctx, client.KindPrompt, map[string]string{"text": task}, client.AskOptions{ID: fmt.Sprintf("%s-%d", name, i+1)})
		if err != nil {
			return err
		}
		tickets = append(tickets, ticket)
	}
	for i, ticket := range tickets {
		r, err := ticket.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s %s%s\n", tasks[i], r.State, r.Answer, r.Reason)
	}
	return nil
}

// lease is how long a claim lasts before others see that the worker may be gone.
const lease = 30 * time.Second

// work does the tasks. What it may have begun to do before it was killed it does not do again: its journal says how far
// it was, and is durable before the task is begun.
func work(ctx context.Context, s *client.Session, name string) error {
	journal, begun, results, err := openJournal(name + "-journal")
	if err != nil {
		return err
	}
	defer journal.Close()
	for r, err := range s.Requests(ctx, client.KindPrompt) {
		if err != nil {
			return err
		}
		claim := any(nil)
		if r.Claim != nil { // by this outbox, before the worker was killed
			claim = r.Claim.Cursor
		}
		b := s.Batch()
		switch result, done := results[r.ID]; {
		case claim == nil:
			claim = b.ClaimRequest(r.ID, lease, "")
			if _, err := b.CommitWait(ctx); errors.Is(err, fault.Conflict) || errors.Is(err, fault.RequestEnded) {
				continue // another was faster, or it was withdrawn
			} else if err != nil {
				return err
			}
			if result, err = do(journal, name, r); err != nil {
				return err
			}
			b = s.Batch()
			b.Answer(r.ID, client.AnswerOptions{Payload: result, Claim: claim})
		case done:
			b.Answer(r.ID, client.AnswerOptions{Payload: result, Claim: claim})
		case begun[r.ID]:
			b.EndUnknown(r.ID, claim, "the worker was killed while it worked on it")
		default: // not begun
			b.ReleaseRequest(r.ID, claim)
		}
		// An answer that was durable in the outbox before the kill has been sent meanwhile: this one is a conflict.
		if _, err := b.CommitWait(ctx); err != nil && !errors.Is(err, fault.Conflict) && !errors.Is(err, fault.RequestEnded) {
			return err
		}
	}
	return nil
}

// do does a task: between the two lines of the journal.
func do(journal *os.File, name string, r *client.Request) (result string, err error) {
	var task struct{ Text string }
	if err := json.Unmarshal(r.Payload, &task); err != nil {
		return "", err
	}
	if err := note(journal, "begun "+r.ID); err != nil {
		return "", err
	}
	done, err := os.OpenFile(name+"-done", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintln(done, task.Text) // the work itself
	if err = errors.Join(err, done.Close()); err != nil {
		return "", err
	}
	result = task.Text + " is done by " + name
	return result, note(journal, "done "+r.ID+" "+result)
}

// note writes a line that is durable when it returns.
func note(journal *os.File, line string) error {
	_, err := fmt.Fprintln(journal, line)
	return errors.Join(err, journal.Sync())
}

// openJournal opens a journal, and reads what was begun, and the results of what was done. A last line that is cut
// off says nothing.
func openJournal(name string) (journal *os.File, begun map[string]bool, results map[string]string, err error) {
	journal, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, nil, err
	}
	begun, results = map[string]bool{}, map[string]string{}
	for lines := bufio.NewReader(journal); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		what, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, result, _ := strings.Cut(rest, " ")
		if begun[id] = true; what == "done" {
			results[id] = result
		}
	}
	return journal, begun, results, note(journal, "") // after a line that is cut off
}
