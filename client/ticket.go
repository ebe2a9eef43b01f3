// Tickets: handles by which a committed batch's outcomes are read, in this process or a later
// one.

package client

import (
	"context"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// Ticket names a durable batch. Its id (Batch) can be saved and given to Client.Ticket in any
// later process, for 30 days after the batch is finished.
type Ticket struct {
	client  *Client
	Session string   // "" if made from the id alone
	Batch   string   // the batch's id
	Ops     []string // its ops' ids, in order; nil if made from the id alone
}

// Ticket returns the ticket of a batch committed earlier, here or in another process.
func (c *Client) Ticket(batchID string) Ticket { return Ticket{client: c, Batch: batchID} }

// Results are the outcomes of a batch's ops, in order.
type Results []ledger.Outcome

// Wait blocks until every op of the batch has its outcome; until ctx ends if no client sends the
// outbox, that is if every client that has it open is Offline. It goes on waiting while the
// outbox's database is away, as during a restart. The error is about waiting: Canceled, NotFound,
// or an *outbox.StreamStoppedError if the stream of the session, or of a session whose ops the
// batch needs, has stopped until someone decides. A refusal of an op is in the results.
func (t Ticket) Wait(ctx context.Context) (Results, error) {
	if t.client == nil {
		return nil, fault.Usage.With("the ticket is of no client: Commit gives tickets, and Client.Ticket")
	}
	outcomes, err := t.client.box.Wait(ctx, t.Batch)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Canceled.Because(ctx.Err(), "stopped waiting for batch %s (%v): it stays in the outbox", t.Batch, ctx.Err())
	}
	for i := range outcomes {
		outcomes[i].Batch = t.Batch
	}
	return outcomes, err
}

// Err returns the first refusal among the results, nil if every op applied. It matches the
// outcome's code and its reason in errors.Is, and its text ends with the batch's id.
func (r Results) Err() error {
	for i := range r {
		if err := r[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

// Of returns the outcome of one op; NotFound if it is not of this batch.
func (r Results) Of(p *Promise) (*ledger.Outcome, error) {
	if p == nil {
		return nil, fault.Usage.With("the outcome of a nil *Promise was asked for")
	}
	return r.ByID(p.OpID())
}

// ByID returns the outcome of the op with an id, for a later process that does not have the
// promise; NotFound if it is not of this batch.
func (r Results) ByID(opID string) (*ledger.Outcome, error) {
	for i := range r {
		if r[i].OpID == opID {
			return &r[i], nil
		}
	}
	return nil, fault.NotFound.With("op %s is not of this batch", opID)
}

// Decode unmarshals one op's result, a JSON object, into v. If the op did not apply, the error is
// why.
func (r Results) Decode(p *Promise, v any) error {
	o, err := r.Of(p)
	if err != nil {
		return err
	}
	return o.Decode(v)
}

// Drain waits until nothing is left to send; like Wait, until ctx ends if no client sends.
// progress, if not nil, is called with the number of finished ops and of all.
func (c *Client) Drain(ctx context.Context, progress func(done, total int)) error {
	return c.box.Drain(ctx, progress)
}

// Status returns the state of the outbox.
func (c *Client) Status(ctx context.Context) (outbox.Status, error) { return c.box.Status(ctx) }
