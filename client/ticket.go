// Tickets: what a committed batch can be asked by, in this process or a later one.

package client

import (
	"context"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// Ticket names a durable batch. Its id (Batch) can be kept and given to
// Client.Ticket in any later process, for 30 days after the batch is finished.
type Ticket struct {
	client  *Client
	Session string   // "" if made from the id alone
	Batch   string   // the batch's id
	Ops     []string // its ops' ids, in order; nil if made from the id alone
}

// Ticket is the ticket of a batch committed earlier, here or in another process.
func (c *Client) Ticket(batchID string) Ticket { return Ticket{client: c, Batch: batchID} }

// Results are what became of a batch's ops, in order.
type Results []ledger.Outcome

// Wait blocks until every op of the batch has its outcome: until ctx ends if nobody
// sends the outbox, that is if every client that has it open is Offline. The error is
// about waiting (Canceled, NotFound, or an *outbox.Standstill if nothing more of the
// session, or of one whose ops the batch needs, is sent until someone decides):
// that an op was refused is in the results. It goes on waiting while the outbox's database
// is away, as when that is restarted.
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

// Err is the first refusal among the results, nil if every op applied. It
// matches the outcome's code and its reason in errors.Is, and its text ends with the batch's id.
func (r Results) Err() error {
	for i := range r {
		if err := r[i].Err(); err != nil {
			return err
		}
	}
	return nil
}

// Of is the outcome of one op; NotFound if it is not of this batch.
func (r Results) Of(p *Promise) (*ledger.Outcome, error) {
	if p == nil {
		return nil, fault.Usage.With("the outcome of a nil *Promise was asked for")
	}
	return r.ByID(p.OpID())
}

// ByID is the outcome of the op with an id, for a later process than the one that
// has the promise; NotFound if it is not of this batch.
func (r Results) ByID(opID string) (*ledger.Outcome, error) {
	for i := range r {
		if r[i].OpID == opID {
			return &r[i], nil
		}
	}
	return nil, fault.NotFound.With("op %s is not of this batch", opID)
}

// Decode reads one op's result, a JSON object, into v. If the op did not apply,
// the error says why.
func (r Results) Decode(p *Promise, v any) error {
	o, err := r.Of(p)
	if err != nil {
		return err
	}
	return o.Decode(v)
}

// Drain waits until nothing is left to send; as Wait does, until ctx ends if nobody
// sends. progress, if not nil, is told how
// many of how many ops are finished.
func (c *Client) Drain(ctx context.Context, progress func(done, total int)) error {
	return c.box.Drain(ctx, progress)
}

// Status is the state of the outbox.
func (c *Client) Status(ctx context.Context) (outbox.Status, error) { return c.box.Status(ctx) }
