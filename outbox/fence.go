package outbox

// Fence: fencing a stream before it is replaced, and asking how far its server has it.
// Otherwise batches that former senders have in flight would be decided after the log was read.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// fenceTimeout bounds the attempts to reach a server.
const fenceTimeout = 10 * time.Second

// Fence makes a session's server refuse every present sender of the session's stream, and asks
// for its last seq. The log that is read after it is then complete: Reconcile refuses a log if
// a sender has begun since (InUse). gone says that the session is to be created again.
//
// Ops up to the server's last seq are not missing from the log, if this outbox's batch there is
// the server's: it is shown to the server as a repeat, which compares the digests. In a copied
// or restored outbox the digests differ: then the log decides.
func (b *Box) Fence(ctx context.Context, link Link, log *Log, session string, gone bool) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	again, limit := b.newBackoff(), time.Now().Add(fenceTimeout)
	for step := int64(1); ; {
		incarnation, err := b.raiseIncarnationBy(ctx, step)
		if err != nil {
			return err
		}
		var agrees bool
		last, err := b.openFenced(ctx, link, session, gone, incarnation, &agrees)
		if err == nil {
			log.fenceIncarnation, log.lastSeq, log.streamMatches = incarnation, last, agrees
			return nil
		}
		switch what, f := machine.ClassifyError(err); {
		case f.Code == fault.WrongOutbox, machine.GrantsNothing(f.Code): // there is no stream that a batch could arrive on
			log.fenceIncarnation = incarnation
			return nil
		case what == machine.LeaseLost: // this outbox is older than its last sender: raise the incarnation by doubling steps
			if step *= 2; step > 1<<40 {
				return err
			}
			continue
		case what != machine.RetryHost && what != machine.RetryStream || time.Now().After(limit):
			return err
		}
		b.pause(ctx, again.NextBackOff())
		if ctx.Err() != nil {
			return fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
		}
	}
}

// raiseIncarnationBy raises the incarnation by step, above all that were sent under.
func (b *Box) raiseIncarnationBy(ctx context.Context, step int64) (incarnation int64, err error) {
	err = b.w.Do(ctx, func(ctx context.Context, q sqlstore.Querier) error {
		if err := b.t.AddIncarnation(ctx, q, step); err != nil {
			return err
		}
		row, err := b.t.ReadBox(ctx, q, "")
		incarnation = row.Incarnation
		return err
	})
	return incarnation, err
}

// openFenced opens the stream under an incarnation and compares the batch at its last seq.
func (b *Box) openFenced(ctx context.Context, link Link, session string, gone bool, incarnation int64, agrees *bool) (last uint64, err error) {
	to, err := b.fenceRoute(ctx, session, gone)
	if err != nil {
		return 0, err
	}
	req, err := b.streamRequest(ctx, session, to, incarnation)
	if err != nil {
		return 0, err
	}
	s, err := link.OpenStream(ctx, req)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	if last, err = s.Opened(ctx); err != nil || last == 0 {
		*agrees = err == nil
		return last, err
	}
	repeat, err := b.lastBatchOf(ctx, session, last)
	if err != nil || repeat == nil {
		return last, err
	}
	repeat.Outbox, repeat.Incarnation = b.id, uint64(incarnation)
	answer := make(chan Reply, 1)
	s.Apply(repeat, func(r Reply) { answer <- r })
	select {
	case r := <-answer:
		if *agrees = r.Err == nil; !*agrees {
			if what, _ := machine.ClassifyError(r.Err); what != machine.StopStream {
				return last, r.Err
			}
		}
		return last, nil // it diverged, or cannot be compared: the log decides
	case <-ctx.Done():
		return last, fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
	}
}

// fenceRoute returns the route for opening the session's stream with nothing to send.
func (b *Box) fenceRoute(ctx context.Context, session string, gone bool) (to machine.Route, err error) {
	var first *sqlstore.BatchRow // the batch that creates the session
	if gone {
		err = b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
			rows, err := b.t.List(ctx, q, sqlstore.AllRows, -1, session)
			if len(rows) > 0 && rowCreatesSession(rows[0]) {
				first = rows[0]
			}
			return err
		})
	}
	if err != nil {
		return to, err
	}
	if first == nil {
		return b.resolver().RouteOf(ctx, session, "", &intent.Batch{Ops: []intent.Op{{Method: "put"}}})
	}
	bd, err := first.Decode()
	if err != nil {
		return to, err
	}
	return b.resolver().RouteOf(ctx, session, first.Via, bd)
}

// lastBatchOf returns the batch that ends with seq last, as it was sent; nil if this outbox no
// longer has it in that form.
func (b *Box) lastBatchOf(ctx context.Context, session string, last uint64) (repeat *ledger.Batch, err error) {
	err = b.read(ctx, "reconcile", func(ctx context.Context, q sqlstore.Querier) error {
		repeat = nil
		r, err := b.t.BatchAt(ctx, q, session, last)
		if err != nil || r == nil || !r.Sequenced() {
			return err
		}
		bd, err := r.Decode()
		if err != nil || bd.Compacted || uint64(*r.FirstSeq)+uint64(bd.SeqCount()) != last+1 {
			return nil // the log decides
		}
		repeat = bd.Wire(session, r.ID, uint64(*r.FirstSeq))
		return nil
	})
	return repeat, err
}
