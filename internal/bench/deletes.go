package main

// The number of sessions deleted for good per second, one by one from the client's Commit to the
// answer, or by their age: after that nothing of their payloads stands in the server's files.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// deleteEvents is how many events a session has before it is deleted, with its first.
const deleteEvents = 20

// deletesRow is one line of the table.
type deletesRow struct {
	db     string
	atOnce int     // 0: by their age
	rate   float64 // a second
}

func (d *deletesRow) how() string {
	if d.atOnce == 0 {
		return "by age"
	}
	return strconv.Itoa(d.atOnce)
}

func (b *bench) deletes(ctx context.Context, db string, r *report) error {
	for _, atOnce := range []int{1, b.opts.deleting, 0} {
		var rates []float64
		row := deletesRow{db: db, atOnce: atOnce}
		sessions := b.opts.deleted
		if atOnce == 1 {
			sessions = max(sessions/10, 1)
		}
		for i := range b.opts.rounds {
			err := b.onRig(ctx, db, func(rig *rig) error {
				rate, err := b.deleteRate(ctx, rig, fmt.Sprintf("%s-deletes-%d", db, atOnce), sessions, atOnce, i == 0)
				rates = append(rates, rate)
				return err
			})
			if err != nil {
				return err
			}
			row.rate = rates[i]
			b.progress.Printf("%s, %d deletes, at once: %s, round %d of %d: %.0f/s", db, sessions, row.how(), i+1, b.opts.rounds, row.rate)
		}
		row.rate = measure.Median(rates)
		r.deletes = append(r.deletes, row)
	}
	return nil
}

// deleteRate makes so many sessions from one outbox and deletes them, so many at once.
func (b *bench) deleteRate(ctx context.Context, r *rig, name string, n, atOnce int, profile bool) (rate float64, err error) {
	c, err := client.Open(ctx, r.config("deleter"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	space, err := c.Space(ctx, r.owner)
	if err != nil {
		return 0, err
	}
	sessions, err := makeSessions(ctx, c, space, nil, n)
	if err != nil {
		return 0, err
	}
	run := func() error {
		took, err := timed(func() error {
			if atOnce == 0 {
				return deleteOld(ctx, space, n)
			}
			return inParallel(n, atOnce, func(i int) error {
				batch := sessions[i].Batch()
				batch.Delete()
				t, err := batch.Commit(ctx)
				if err == nil {
					err = applied(ctx, t)
				}
				return err
			})
		})
		rate = float64(n) / took.Seconds()
		return err
	}
	if atOnce == 0 {
		time.Sleep(oldAge + 100*time.Millisecond)
	}
	if profile && b.opts.profile != "" {
		return rate, b.profiled(name, run)
	}
	return rate, run()
}

// oldAge is how long nothing has changed in sessions that are deleted by their age.
const oldAge = time.Second

// deleteOld deletes all old sessions of a space, of which there are n at least.
func deleteOld(ctx context.Context, space *client.Space, n int) error {
	done := 0
	for page, err := range space.RemoveOlder(ctx, client.OlderOptions{Remove: client.DeleteOlder, Age: oldAge}) {
		if err != nil {
			return err
		}
		done += page.Done
	}
	if done < n {
		return fmt.Errorf("%d of %d sessions were deleted", done, n)
	}
	return nil
}

// makeSessions makes n sessions of deleteEvents events.
func makeSessions(ctx context.Context, c *client.Client, space *client.Space, parent *client.Session, n int) ([]*client.Session, error) {
	sessions := make([]*client.Session, n)
	err := inParallel(n, queueWriters, func(i int) error {
		s, batch := space.Create(client.CreateOptions{Parent: parent})
		for k := range deleteEvents - 1 {
			batch.Put(opKey(uint64(k)), json.RawMessage(opPayload(nil, uint64(k))))
		}
		sessions[i] = s
		t, err := batch.Commit(ctx)
		if err == nil {
			err = applied(ctx, t)
		}
		return err
	})
	return sessions, errors.Join(err, c.Drain(ctx, nil))
}

// inParallel does f for 0 to n-1, so many at once.
func inParallel(n, atOnce int, f func(int) error) error {
	errs := make([]error, min(atOnce, n))
	var next atomic.Int64
	var all sync.WaitGroup
	for k := range errs {
		all.Go(func() {
			for errs[k] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[k] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
