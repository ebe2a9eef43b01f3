// Plan is an agent that works on a plan together with others: no chat, but shared state that is durable,
// live and revocable. plan.mjs is the same agent in JavaScript; both may work on one plan.
//
//	go run ./examples/plan new srv/owner.ref plan.ref sand paint launch
//	go run ./examples/plan work plan.ref ann & go run ./examples/plan work plan.ref bob
//
// new makes a session with a step/ID for each step, and writes a ref for those who work. work takes
// one open step after the other, and ends when all are done.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// step is the value of a key step/ID.
type step struct {
	Title string `json:"title"`
	State string `json:"state"` // open, taken or done
	By    string `json:"by,omitempty"`
}

const usage = "usage: plan new OWNER-REF-FILE REF-FILE STEP...\n       plan work REF-FILE NAME"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch args := os.Args[1:]; {
	case len(args) > 3 && args[0] == "new":
		err = create(ctx, args[1], args[2], args[3:])
	case len(args) == 3 && args[0] == "work":
		err = work(ctx, args[1], args[2])
	default:
		err = errors.New(usage)
	}
	if err != nil {
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

// create makes a session with the steps, and writes a ref that reads it and writes steps and the
// counter alone.
func create(ctx context.Context, ownerFile, refFile string, steps []string) error {
	return withClient(ctx, "plan", ownerFile, func(c *client.Client, owner capability.Ref) error {
		space, err := c.Space(ctx, owner)
		if err != nil {
			return err
		}
		_, b := space.Create(client.CreateOptions{})
		b.Put("plan", map[string]any{"title": "Until the boat floats", "done": 0})
		for i, title := range steps {
			b.Put(fmt.Sprintf("step/%d", i+1), step{Title: title, State: "open"})
		}
		worker, _ := b.Share(client.ShareOptions{Rights: capability.Read | capability.Append, WriteKeys: []string{"plan", "step/"}})
		if _, err := b.CommitWait(ctx); err != nil {
			return err
		}
		return os.WriteFile(refFile, []byte(worker.Text()+"\n"), 0o600)
	})
}

// work takes open steps until all are done.
func work(ctx context.Context, refFile, name string) error {
	return withClient(ctx, name, refFile, func(c *client.Client, ref capability.Ref) error {
		plan, err := c.Session(ctx, ref)
		if err != nil {
			return err
		}
		for {
			all, err := plan.SnapshotOfKeys(ctx, client.Position{}, []string{"step/"})
			if err != nil {
				return err
			}
			done := 0
			for _, e := range all.Entries {
				var s step
				if err := json.Unmarshal(e.Payload, &s); err != nil {
					return fmt.Errorf("%s: %w", e.Key, err)
				}
				if s.State == "open" {
					if s.State, err = do(ctx, plan, name, e, s.Title); err != nil {
						return err
					}
				}
				if s.State == "done" {
					done++
				}
			}
			if done == len(all.Entries) {
				fmt.Printf("%s: all %d steps are done\n", name, done)
				return nil
			}
			// What the others have taken may be done with the next change of a step.
			o := client.SubscribeOptions{After: all.Cursor, Hash: all.Hash, Keys: []string{"step/"}}
			for event, err := range plan.Follow(ctx, o) {
				if err != nil {
					return err
				}
				if !event.Hidden {
					break
				}
			}
		}
	})
}

// do takes a step, unless another was faster, and does it. It returns the step's state.
func do(ctx context.Context, plan *client.Session, name string, e client.Entry, title string) (state string, err error) {
	b := plan.Batch()
	b.Patch(e.Key, map[string]any{"state": "taken", "by": name}).ExpectKey(e.Cursor)
	if _, err = b.CommitWait(ctx); errors.Is(err, fault.Conflict) {
		return "taken", nil
	} else if err != nil {
		return "", err
	}
	fmt.Printf("%s: %s\n", name, title) // the work itself
	b = plan.Batch()
	b.Patch(e.Key, map[string]any{"state": "done"})
	b.Add("plan", "done", 1)
	_, err = b.CommitWait(ctx)
	return "done", err
}
