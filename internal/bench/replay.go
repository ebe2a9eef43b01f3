package main

// A reconnect that redeems the ref and replays what was queued offline, against
// appending the same ops online.

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// replayRow is one line of the table: how long each took, and the median of
// the rounds' ratios.
type replayRow struct {
	db             string
	batch, ops     int
	online, replay time.Duration
	ratio          float64
}

func (b *bench) replay(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	for _, size := range b.opts.batches {
		var online, replay, ratio []float64
		for i := range b.opts.rounds {
			a, err := b.timeOnline(ctx, rig, size)
			if err != nil {
				return err
			}
			q, err := b.timeReplay(ctx, rig, size)
			if err != nil {
				return err
			}
			b.progress.Printf("%s, replay in batches of %d, round %d of %d: online %v, replayed %v", db, size, i+1, b.opts.rounds,
				a.Round(time.Millisecond), q.Round(time.Millisecond))
			online, replay, ratio = append(online, a.Seconds()), append(replay, q.Seconds()), append(ratio, q.Seconds()/a.Seconds())
		}
		r.replay = append(r.replay, replayRow{db: db, batch: size, ops: b.opts.queued, ratio: measure.Median(ratio),
			online: seconds(measure.Median(online)), replay: seconds(measure.Median(replay))})
	}
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// timeOnline appends the ops with the server there.
func (b *bench) timeOnline(ctx context.Context, rig *rig, size int) (_ time.Duration, err error) {
	w, err := rig.newWriter(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	took, err := timed(func() error { return w.appendAll(ctx, size, b.opts.queued) })
	return took, errors.Join(err, w.settled(ctx))
}

// timeReplay appends them offline and times what follows: opening the outbox,
// dialling, redeeming, sending, to the last ack.
func (b *bench) timeReplay(ctx context.Context, rig *rig, size int) (_ time.Duration, err error) {
	w, err := rig.newWriter(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	if err := w.reopen(ctx, true); err != nil {
		return 0, err
	}
	last, err := w.queueAll(ctx, size, b.opts.queued)
	if err != nil {
		return 0, err
	}
	if err := w.client.Close(); err != nil {
		return 0, err
	}
	took, err := timed(func() error {
		if err := w.reopen(ctx, false); err != nil { // closing again does nothing
			return err
		}
		return applied(ctx, w.client.Ticket(last.Batch))
	})
	return took, errors.Join(err, w.settled(ctx))
}

// appendAll commits so many ops, one batch after the other, and waits for the
// last one's ack.
func (w *writer) appendAll(ctx context.Context, size, ops int) error {
	var last client.Ticket
	for done := 0; done < ops; done += size {
		t, err := w.commit(ctx, min(size, ops-done))
		if err != nil {
			return err
		}
		last = t
	}
	return applied(ctx, last)
}

// queueWriters is how many commit at once when only the queue matters.
const queueWriters = 16

// queueAll commits so many ops, no matter how, and gives the last batch's ticket.
func (w *writer) queueAll(ctx context.Context, size, ops int) (last client.Ticket, err error) {
	batches := (ops - 1) / size // but for the last one
	errs := make([]error, queueWriters)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for k := i; k < batches && errs[i] == nil; k += queueWriters {
				_, errs[i] = w.commit(ctx, size)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return last, err
	}
	return w.commit(ctx, ops-batches*size)
}
