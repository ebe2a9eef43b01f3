package main

// The bare program: it writes the same rows as the whole path, as fast as each
// database takes them. It has nothing to decide, to check or to send: rows are
// ready-made, and goroutines write them to the client's and to the server's
// database at the same time, durably.

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// technique is how a bare program gets rows into its database.
type technique struct {
	batches int    // in one transaction
	conns   int    // writing at once, to each of the two databases where it can
	bulk    string // copy, arrays (Postgres); rows, values (SQLite)
}

func (t technique) String() string {
	return fmt.Sprintf("%d batches a transaction, %d connections, %s", t.batches, t.conns, t.bulk)
}

// inserts says that rows go in by INSERT, and not by COPY.
func (t technique) inserts() bool { return t.bulk != "copy" }

// sink writes transactions to one of the two databases. Each connection's
// sink belongs to one goroutine.
type sink interface {
	write(ctx context.Context, c *chunk) error
	close() error
}

// bareTarget is a pair of fresh databases.
type bareTarget interface {
	// prepare makes what has to be there before the first batch: sessions,
	// streams, outboxes.
	prepare(ctx context.Context, writers []*writerRows) error
	// clients and servers give the sinks of up to n connections each, and which
	// writers' rows each one takes.
	clients(ctx context.Context, writers []*writerRows, t technique) ([]share, error)
	servers(ctx context.Context, writers []*writerRows, t technique) ([]share, error)
	close(ctx context.Context) error
}

// share is a sink and the writers whose rows go into it.
type share struct {
	sink    sink
	writers []*writerRows
}

// partition gives n hands of writers.
func partition(writers []*writerRows, n int) [][]*writerRows {
	hands := make([][]*writerRows, min(n, len(writers)))
	for i, w := range writers {
		hands[i%len(hands)] = append(hands[i%len(hands)], w)
	}
	return hands
}

// runBare writes all rows to both databases at once and tells how long it took.
func runBare(ctx context.Context, target bareTarget, writers []*writerRows, t technique) (took time.Duration, err error) {
	if err := target.prepare(ctx, writers); err != nil {
		return 0, fmt.Errorf("prepare: %w", err)
	}
	clients, err := target.clients(ctx, writers, t)
	if err != nil {
		return 0, err
	}
	servers, err := target.servers(ctx, writers, t)
	if err != nil {
		return 0, err
	}
	all := append(clients, servers...)
	defer func() {
		for _, s := range all {
			if e := s.sink.close(); err == nil {
				err = e
			}
		}
	}()
	plans := make([][]chunk, len(all))
	for i, s := range all {
		plans[i] = interleave(s.writers, t.batches)
	}
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	start := time.Now()
	for i, s := range all {
		wg.Go(func() {
			for k := range plans[i] {
				if errs[i] = s.sink.write(ctx, &plans[i][k]); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took = time.Since(start)
	for _, e := range errs {
		if e != nil {
			return 0, e
		}
	}
	return took, nil
}

// interleave takes the writers' transactions in turns.
func interleave(writers []*writerRows, size int) []chunk {
	var plan []chunk
	cut := make([][]chunk, len(writers))
	for i, w := range writers {
		cut[i] = w.cut(size)
	}
	for k := 0; ; k++ {
		n := len(plan)
		for i := range cut {
			if k < len(cut[i]) {
				plan = append(plan, cut[i][k])
			}
		}
		if len(plan) == n {
			return plan
		}
	}
}
