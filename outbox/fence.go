package outbox

// Fencing off a stream that is to be left, and how far its server has it. What former
// senders have on its way would else be decided behind the back of who has read the log.

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

const (
	sqlAddIncarnation = `UPDATE mooring_outbox SET incarnation = incarnation + $2 WHERE box = $1`

	sqlBatchWithSeq = `SELECT num FROM mooring_outbox_batch WHERE box = $1 AND session = $2 AND first_seq > 0 AND first_seq <= $3
		ORDER BY first_seq DESC LIMIT 1`
)

// fenceTimeout is how long a server is tried that cannot be reached.
const fenceTimeout = 10 * time.Second

// Fence has a session's server take nothing more of the session's stream from those who
// have sent till now, and asks how far it has the stream. Then log, which is to be read
// after it, is all that there will be of it: Reconcile refuses a log in whose time a
// sender has begun (InUse). gone says that the session is to be made again.
//
// What the server has of the stream up to its last seq is not missing, if what this
// outbox has there is what the server has: it is shown that batch as a repeat, and
// compares the digests. It is not, in a copy or a restored outbox: then the log decides.
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
		switch what, f := classifyError(err); {
		case f.Code == fault.WrongOutbox, grantsNothing(f.Code): // there is no stream that anything could arrive on
			log.fenceIncarnation = incarnation
			return nil
		case what == leaseLost: // this outbox is older than what was sent: catch up, ever faster
			if step *= 2; step > 1<<40 {
				return err
			}
			continue
		case what != retryHost && what != retryStream || time.Now().After(limit):
			return err
		}
		b.pause(ctx, again.NextBackOff())
		if ctx.Err() != nil {
			return fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
		}
	}
}

// grantsNothing says whether a ref for which a server gives that code can change nothing, so that
// it makes no stream for it.
func grantsNothing(c fault.Code) bool {
	switch c {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.MissingRight, fault.SessionDeleted:
		return true
	}
	return false
}

// raiseIncarnationBy makes the incarnation higher than any that was sent under.
func (b *Box) raiseIncarnationBy(ctx context.Context, step int64) (incarnation int64, err error) {
	err = b.w.do(ctx, func(ctx context.Context, q querier) error {
		if _, err := q.exec(ctx, sqlAddIncarnation, b.t.box, step); err != nil {
			return err
		}
		row, err := b.t.readBox(ctx, q, "")
		incarnation = row.incarnation
		return err
	})
	return incarnation, err
}

// openFenced opens the stream under an incarnation and compares what is at its last seq.
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
			if what, _ := classifyError(r.Err); what != stopStream {
				return last, r.Err
			}
		}
		return last, nil // it diverged, or is not to be asked: the log decides
	case <-ctx.Done():
		return last, fault.Canceled.Because(ctx.Err(), "stopped asking how far the server has the stream")
	}
}

// fenceRoute is how the session's stream is opened when nothing is to be sent.
func (b *Box) fenceRoute(ctx context.Context, session string, gone bool) (to route, err error) {
	var first *batchRow // that makes the session
	if gone {
		err = b.read(ctx, "reconcile", func(ctx context.Context, q querier) error {
			rows, err := b.t.batches(ctx, q, sqlList, b.t.box, int64(-1), session)
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
		return b.resolver().routeOf(ctx, session, "", &body{ops: []opRow{{method: "put"}}})
	}
	bd, err := first.decode()
	if err != nil {
		return to, err
	}
	return b.resolver().routeOf(ctx, session, first.via, bd)
}

// lastBatchOf is the batch that holds a seq and ends with it, as it was sent; nil if it is
// not here as it was.
func (b *Box) lastBatchOf(ctx context.Context, session string, last uint64) (repeat *ledger.Batch, err error) {
	err = b.read(ctx, "reconcile", func(ctx context.Context, q querier) error {
		repeat = nil
		num := int64(-1)
		err := q.query(ctx, sqlBatchWithSeq, []any{b.t.box, session, int64(last)}, func(scan scanner) error { return scan(&num) })
		if err != nil || num < 0 {
			return err
		}
		r, err := b.t.batchNum(ctx, q, num, "")
		if err != nil || r == nil || !r.sequenced() {
			return err
		}
		bd, err := r.decode()
		if err != nil || bd.compacted || uint64(*r.firstSeq)+uint64(bd.seqCount()) != last+1 {
			return nil // the log decides
		}
		repeat = wireBatchOf(&entry{id: r.id, session: session, firstSeq: uint64(*r.firstSeq), seqCount: bd.seqCount(), body: bd})
		return nil
	})
	return repeat, err
}
