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
type Results []Outcome

// Outcome says what became of an op.
type Outcome struct {
	OpID    string
	Batch   string
	Status  OutcomeStatus
	Reason  fault.Code // why Status is not Applied: Revoked, WrongOffset, …; for Skipped and BatchAborted the cause's own reason
	Message string     // what is wrong, and what to do about it
	Cursor  uint64     // Applied: of its event, or the present one if nothing changed; Conflict: the session's
	Result  []byte     // Applied: the text of a JSON object; it has "cursor" always
	Cause   string     // Skipped, BatchAborted: the id of the op that is to blame
	At      uint64     // with WrongOffset: the length of the text, in bytes
}

// OutcomeStatus is what the server recorded of an op.
type OutcomeStatus string

// The statuses of an op. Results.Err returns those after Applied as errors of the codes of the same names, and Incompatible for
// a status that this version does not know. There is none for an op whose outcome the server has deleted: this outbox has
// stored it then, or is a copy of the one that has, which stops the stream (fault.OutboxDiverged). After Client.Reconcile
// such an op may be Rejected for the reason fault.Pruned.
const (
	Applied      OutcomeStatus = "applied"
	Skipped      OutcomeStatus = "skipped"       // an op that it refers to or depends on did not apply
	Denied       OutcomeStatus = "denied"        // the ref did not allow it
	Conflict     OutcomeStatus = "conflict"      // the session was not at the expected cursor
	Rejected     OutcomeStatus = "rejected"      // it breaks a rule
	Voided       OutcomeStatus = "voided"        // it was dropped here before the server had it
	BatchAborted OutcomeStatus = "batch_aborted" // another op of its atomic batch did not apply
)

// Err returns nil for an op that applied; else why it did not, matching the code of its status and its reason in errors.Is.
func (o *Outcome) Err() error { return o.recorded().Err() }

// Decode unmarshals the result, a JSON object, into v. If the op did not apply, the error is why.
func (o *Outcome) Decode(v any) error { return o.recorded().Decode(v) }

// recorded returns the outcome as the outbox has it, but for its digest.
func (o *Outcome) recorded() *ledger.Outcome {
	return &ledger.Outcome{OpID: o.OpID, Batch: o.Batch, Status: ledger.ParseStatus(string(o.Status)), Reason: o.Reason, Message: o.Message,
		Cursor: o.Cursor, Result: o.Result, Cause: o.Cause, At: o.At}
}

// Wait blocks until every op of the batch has its outcome; until ctx ends if no client sends the
// outbox, that is if every client that has it open is Offline. It goes on waiting while the
// outbox's database is away, as during a restart. The error is about waiting: Canceled, NotFound,
// or an *outbox.StreamStoppedError if the stream of the session, or of a session whose ops the
// batch needs, has stopped until someone decides. A refusal of an op is in the results.
func (t Ticket) Wait(ctx context.Context) (Results, error) {
	if t.client == nil {
		return nil, fault.Usage.With("the ticket has no client: get tickets from Commit or Client.Ticket")
	}
	outcomes, err := t.client.box.Wait(ctx, t.Batch)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Canceled.Because(ctx.Err(), "stopped waiting for batch %s (%v): it stays in the outbox", t.Batch, ctx.Err())
	}
	if len(outcomes) == 0 {
		return nil, err
	}
	results := make(Results, len(outcomes))
	for i, o := range outcomes {
		results[i] = Outcome{OpID: o.OpID, Batch: t.Batch, Status: OutcomeStatus(o.Status.String()), Reason: o.Reason, Message: o.Message,
			Cursor: o.Cursor, Result: o.Result, Cause: o.Cause, At: o.At}
	}
	return results, err
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
func (r Results) Of(p *Promise) (*Outcome, error) {
	if p == nil {
		return nil, fault.Usage.With("the outcome of a nil *Promise was asked for")
	}
	return r.ByID(p.OpID())
}

// ByID returns the outcome of the op with an id, for a later process that does not have the
// promise; NotFound if it is not of this batch.
func (r Results) ByID(opID string) (*Outcome, error) {
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
