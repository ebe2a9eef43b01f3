package e2e

// Plans: what an agent is to commit, as data, so that a process that is killed
// in the middle can be told the same again. Batches carry their ids and ops
// theirs, so repeating a plan changes nothing that was done.

import (
	"encoding/json"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/outbox"
)

// plan is an agent's work.
type plan struct {
	Home      string // of its SQLite outbox, or
	OutboxURL string // its Postgres outbox
	Window    int    // batches in flight; 0: as many as is usual
	Space     string // the space's ref as text, for batches that create
	Batches   []planBatch
	Out       string // the file that gets the results, when all are there
	// UntilDenied goes on with the last batch, its first op another put each time,
	// until an op is denied. The results have the ids of all that were committed.
	UntilDenied bool
	// Together waits for all answers at once.
	Together bool
}

// planBatch is one batch.
type planBatch struct {
	ID      string
	Session string // the text of the ref it goes through; of a creating batch, the owner's ref it mints
	Creates bool   // its first op is create or fork
	Source  string // a fork's source: the ref it is read through
	Atomic  bool
	After   string // a batch to wait for before committing this one; "" for none
	Ops     []planOp
}

// planOp is one op. Its id is that of its place (opID).
type planOp struct {
	Method    string
	Args      []planArg
	DependsOn []string
	Expected  *planArg // Name is not used
}

// planArg is an argument: JSON text, or a reference.
type planArg struct {
	Name string
	JSON json.RawMessage `json:",omitempty"`
	Ref  *planRef        `json:",omitempty"`
}

// planRef is a client.ResultRef that can be written into the file with the plan.
type planRef client.ResultRef

// opID is the id of the op at a place of a batch.
func opID(batch string, place int) string { return outbox.OpID(batch, place) }

// arg is an argument with a value.
func arg(name string, value any) planArg {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the tests' own values
	}
	return planArg{Name: name, JSON: text}
}

// refArg is an argument that refers to an earlier op's result.
func refArg(name, op, path string) planArg {
	return planArg{Name: name, Ref: &planRef{Op: op, Path: path}}
}

func op(method string, args ...planArg) planOp { return planOp{Method: method, Args: args} }

// batch makes a batch for a session with a new id.
func batch(session capability.Ref, ops ...planOp) planBatch {
	return planBatch{ID: outbox.NewBatchID(), Session: session.Text(), Ops: ops}
}

// target is the id of the session a batch is for.
func (b *planBatch) target() string { return parseRef(b.Session).Target() }

// put is the most common op.
func put(key string, payload any) planOp {
	return op("put", arg("key", key), arg("payload", payload))
}

// createOp is the op that creates the session of an owner's ref.
func createOp(owner capability.Ref, more ...planArg) planOp {
	h := owner.Secret.Hash()
	return op("create", append([]planArg{arg("ref", owner.ID), arg("hash", hashText(h))}, more...)...)
}

// creating makes the batch that creates a session.
func creating(owner capability.Ref, ops ...planOp) planBatch {
	b := batch(owner, append([]planOp{createOp(owner)}, ops...)...)
	b.Creates = true
	return b
}

// forking makes the batch that forks source into the session of owner.
func forking(owner, source capability.Ref, at uint64, ops ...planOp) planBatch {
	h := owner.Secret.Hash()
	fork := op("fork", arg("ref", owner.ID), arg("hash", hashText(h)), arg("source", source.Target()), arg("via", source.ID))
	if at != 0 {
		fork.Args = append(fork.Args, arg("at", at))
	}
	b := batch(owner, append([]planOp{fork}, ops...)...)
	b.Creates, b.Source = true, source.Text()
	return b
}

// fill puts the batch's ops into a client's batch, the creating one excepted,
// which the client's own verb has put there.
func (b *planBatch) fill(to *client.Batch) {
	if b.Atomic {
		to.Atomic()
	}
	for i, o := range b.Ops {
		if i == 0 && b.Creates {
			continue
		}
		p := to.Do(o.Method)
		for _, a := range o.Args {
			if a.Ref != nil {
				p.Arg(a.Name, client.ResultRef(*a.Ref))
			} else {
				p.Arg(a.Name, a.JSON)
			}
		}
		p.DependsOnID(o.DependsOn...)
		if o.Expected != nil && o.Expected.Ref != nil {
			p.Expect(client.ResultRef(*o.Expected.Ref))
		} else if o.Expected != nil {
			p.Expect(o.Expected.JSON)
		}
	}
}

// set sets an argument, in place of the one of its name if there is one.
func (o *planOp) set(a planArg) {
	for i := range o.Args {
		if o.Args[i].Name == a.Name {
			o.Args[i] = a
			return
		}
	}
	o.Args = append(o.Args, a)
}

// argument gives an argument's value, nil if it is not there or a reference.
func (o *planOp) argument(name string) json.RawMessage {
	for _, a := range o.Args {
		if a.Name == name {
			return a.JSON
		}
	}
	return nil
}
