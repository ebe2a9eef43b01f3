package main

// Taking a sample: batches are committed offline and their outbox rows read,
// then sent, and the finished rows and the events read.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/session"
)

// sampleBatches is how many batches a sample has.
const sampleBatches = 16

// takeSample runs batches of a size through the path and reads what they left.
func (r *rig) takeSample(ctx context.Context, size int) (_ *sample, err error) {
	w, err := r.newWriter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	if err := w.reopen(ctx, true); err != nil {
		return nil, err
	}
	s := &sample{session: w.session.ID()}
	for range sampleBatches {
		if _, err := w.commit(ctx, size); err != nil {
			return nil, err
		}
	}
	err = r.outboxRows(ctx, w, func(via string, body, _ []byte) {
		s.batches = append(s.batches, sampleBatch{via: via, body: body})
	})
	if err != nil {
		return nil, err
	}
	if err := w.reopen(ctx, false); err != nil {
		return nil, err
	}
	if err := w.settled(ctx); err != nil {
		return nil, err
	}
	i := 0
	err = r.outboxRows(ctx, w, func(_ string, body, outcomes []byte) {
		s.batches[i].slim, s.batches[i].outcomes = body, outcomes
		i++
	})
	if err != nil {
		return nil, err
	}
	return s, s.readEvents(ctx, w, size)
}

// readEvents gets the events of the sample's batches, which follow the create.
func (s *sample) readEvents(ctx context.Context, w *writer, size int) error {
	after := uint64(1)
	for i := range s.batches {
		page, err := w.session.Events(ctx, after, uint32(size))
		if err != nil {
			return err
		}
		if len(page.Events) != size {
			return fmt.Errorf("sample: %d events after cursor %d, want %d", len(page.Events), after, size)
		}
		for _, e := range page.Events {
			s.batches[i].events = append(s.batches[i].events, session.Event{
				Session: e.Session, Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: e.Payload, Hash: session.Hash(e.Hash),
				Sum: session.SumOf(e.Payload), Ref: e.Ref, Actor: e.Actor, Outbox: e.Outbox, Op: e.Op, Batch: e.Batch, At: e.At.UnixMilli(),
			})
		}
		after += uint64(size)
	}
	info, err := w.session.Describe(ctx)
	if err != nil {
		return err
	}
	s.space = info.Grant.Target
	return nil
}

const sqlSample = `SELECT via, body, COALESCE(outcomes, '') FROM mooring_outbox_batch b JOIN mooring_outbox o ON o.box = b.box
	WHERE o.name = $1 AND batch > (SELECT MIN(batch) FROM mooring_outbox_batch m WHERE m.box = b.box) ORDER BY num`

// outboxRows reads a writer's outbox rows, but for that of the create.
func (r *rig) outboxRows(ctx context.Context, w *writer, each func(via string, body, outcomes []byte)) (err error) {
	name := w.name
	var db *sql.DB
	if r.pair != nil {
		conf, err := pgx.ParseConfig(r.pair.client)
		if err != nil {
			return err
		}
		db = stdlib.OpenDB(*conf)
	} else {
		name = "default"
		if db, err = sql.Open("sqlite", filepath.Join(r.dir, w.name, "outbox.db")); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, sqlSample, name)
	if err != nil {
		return err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next(); n++ {
		var via string
		var body, outcomes []byte
		if err := rows.Scan(&via, &body, &outcomes); err != nil {
			return err
		}
		each(via, body, outcomes)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if n != sampleBatches {
		return fmt.Errorf("sample: %d rows in the outbox, want %d", n, sampleBatches)
	}
	return nil
}
