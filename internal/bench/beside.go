package main

// What others notice of work on many rows: the p99 of appends in other sessions while it is done, against that of quiet
// times before it, and how long it takes.

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// besideRow is one line of the table: p99s of all rounds' appends, and the median of how long the work took.
type besideRow struct {
	db, what      string
	quiet, beside time.Duration
	aim           float64 // of beside to quiet; 0: none
	took, within  time.Duration
}

func (r *besideRow) ratio() float64 { return float64(r.beside) / float64(r.quiet) }

// Those who append meanwhile, each to a session of their own: how many, and how long each rests after an answer, so that what is
// measured is waiting and not who gets the processors.
const (
	besideWriters = 4
	besideRest    = 4 * time.Millisecond
)

// besideWork is work that others append beside. prepare and run are given the round; what is measured begins when run calls
// begin, and ends when it returns.
type besideWork struct {
	what    string
	aim     float64
	within  time.Duration // 0: no aim
	prepare func(ctx context.Context) error
	run     func(ctx context.Context, begin func()) error
}

// beside measures all works on one server.
func (b *bench) beside(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	var writers []*writer
	for range besideWriters + 1 {
		w, err := rig.newWriter(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.client.Close()) }()
		writers = append(writers, w)
	}
	works, err := b.besideWorks(ctx, rig, writers[besideWriters])
	if err != nil {
		return err
	}
	for _, work := range works {
		var quiet, beside []time.Duration
		var took []float64
		for i := range b.opts.rounds {
			if err := work.prepare(ctx); err != nil {
				return fmt.Errorf("prepare %s: %w", work.what, err)
			}
			list, _, err := appendsBeside(ctx, writers[:besideWriters], func(ctx context.Context, begin func()) error {
				begin()
				return sleep(ctx, b.span())
			})
			if err != nil {
				return err
			}
			quiet = append(quiet, list...)
			list, long, err := appendsBeside(ctx, writers[:besideWriters], work.run)
			if err != nil {
				return fmt.Errorf("%s: %w", work.what, err)
			}
			beside, took = append(beside, list...), append(took, long.Seconds())
			b.progress.Printf("%s, beside %s, round %d of %d: p99 %s ms, quiet %s, in %.2f s", db, work.what, i+1, b.opts.rounds, ms(quantilesOf(beside).p99), ms(quantilesOf(quiet).p99), long.Seconds())
		}
		r.beside = append(r.beside, besideRow{db: db, what: work.what, quiet: quantilesOf(quiet).p99, beside: quantilesOf(beside).p99, aim: work.aim,
			took: seconds(measure.Median(took)), within: work.within})
	}
	return nil
}

// appendsBeside lets writers append while run runs, and returns how long each append took that came between run's begin and its
// return.
func appendsBeside(ctx context.Context, writers []*writer, run func(ctx context.Context, begin func()) error) (all []time.Duration, took time.Duration, err error) {
	type one struct {
		began time.Time
		took  time.Duration
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lists, errs := make([][]one, len(writers)), make([]error, len(writers))
	stop := make(chan struct{})
	var done sync.WaitGroup
	for i, w := range writers {
		done.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				t, err := w.commit(ctx, 1)
				if err == nil {
					err = applied(ctx, t)
				}
				if err != nil {
					errs[i] = err
					cancel()
					return
				}
				lists[i] = append(lists[i], one{began, time.Since(began)})
				_ = sleep(ctx, besideRest)
			}
		})
	}
	var from time.Time
	err = run(ctx, func() { from = time.Now() })
	to := time.Now()
	close(stop)
	done.Wait()
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, 0, err
	}
	for _, list := range lists {
		n := len(all)
		for _, a := range list {
			if a.began.Before(to) && a.began.Add(a.took).After(from) {
				all = append(all, a.took)
			}
		}
		if len(all) == n && len(list) > 0 { // the work was shorter than a rest
			all = append(all, list[len(list)-1].took)
		}
	}
	if len(all) == 0 {
		return nil, 0, errors.New("nobody appended meanwhile")
	}
	return all, to.Sub(from), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Aims: of the p99 beside a revert, and of the time that a revocation takes.
const (
	besideAim    = 1.5
	revokeWithin = time.Second
)

// Of the reverted session: how many keys its messages have, with their own.
const revertedParts = 10

// revertPause is between two reverts.
const revertPause = 50 * time.Millisecond

// besideWorks returns the works, which w does.
func (b *bench) besideWorks(ctx context.Context, rig *rig, w *writer) ([]besideWork, error) {
	space, err := w.client.Space(ctx, rig.owner)
	if err != nil {
		return nil, err
	}
	db, err := rig.openDatabase()
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = db.Close() })
	one := func(fill func(*client.Batch)) error {
		batch := w.session.Batch()
		fill(batch)
		_, err := batch.CommitWait(ctx)
		return err
	}
	filled := false
	fill := func(context.Context) error {
		if filled {
			return nil
		}
		filled = true
		return w.fillMessages(ctx, b.opts.reverted)
	}
	first := "message/" + messageID(0)
	revert := func() error { return one(func(batch *client.Batch) { batch.Revert(first) }) }
	var ref capability.Ref
	var opened, below []*client.Session
	var parent *client.Session
	return []besideWork{
		{what: fmt.Sprintf("reverts of %d keys", b.opts.reverted), aim: besideAim, prepare: fill, run: func(ctx context.Context, begin func()) error {
			begin()
			info, err := w.session.Describe(ctx)
			if err != nil {
				return err
			}
			cursor := info.Session.Cursor
			for end := time.Now().Add(b.span()); time.Now().Before(end); {
				if err := errors.Join(revert(), sleep(ctx, revertPause), one(func(batch *client.Batch) { batch.Unrevert() }), sleep(ctx, revertPause)); err != nil {
					return err
				}
				cursor += 2
			}
			if info, err = w.session.Describe(ctx); err == nil && info.Session.Cursor != cursor {
				err = fmt.Errorf("the session is at %d, not %d: a revert is more than an event", info.Session.Cursor, cursor)
			}
			return err
		}},
		{what: fmt.Sprintf("the removal of %d keys of a settled revert", b.opts.reverted), aim: besideAim, prepare: func(ctx context.Context) error {
			return errors.Join(fill(ctx), revert())
		}, run: func(ctx context.Context, begin func()) error {
			filled = false
			if err := one(func(batch *client.Batch) { batch.Put("message/after", json.RawMessage(`{"role":"user"}`)) }); err != nil {
				return err
			}
			gone := `SELECT count(*) FROM entries WHERE session = $1 AND key = $2`
			if err := untilNone(ctx, db, gone, w.session.ID(), "part/"+messageID(0)+"/"+partID(0)); err != nil {
				return err
			}
			begin()
			if err := untilNone(ctx, db, `SELECT count(*) FROM sessions WHERE id = $1 AND reverts_left <> ''`, w.session.ID()); err != nil {
				return err
			}
			return one(func(batch *client.Batch) { batch.Remove("message/after") })
		}},
		{what: fmt.Sprintf("the revocation of a ref that opened %d sessions", b.opts.opened), within: revokeWithin, prepare: func(ctx context.Context) (err error) {
			if opened == nil {
				if opened, err = makeSessions(ctx, w.client, space, nil, b.opts.opened); err != nil {
					return err
				}
			}
			if ref, err = space.Share(ctx, client.ShareOptions{Rights: capability.Manage}); err != nil {
				return err
			}
			managed, err := w.client.Space(ctx, ref)
			if err != nil {
				return err
			}
			return inParallel(len(opened), queueWriters, func(i int) error {
				s, err := managed.Open(opened[i].ID())
				if err == nil {
					_, err = s.Describe(ctx)
				}
				return err
			})
		}, run: func(ctx context.Context, begin func()) error {
			last := opened[len(opened)-1]
			before, err := last.Describe(ctx)
			if err != nil {
				return err
			}
			begin()
			if _, err := space.Revoke(ctx, ref.ID); err != nil {
				return err
			}
			after, err := last.Describe(ctx)
			if err == nil && after.Session.Cursor != before.Session.Cursor+1 {
				err = fmt.Errorf("a session that was opened is at %d, and was at %d: there is no cut", after.Session.Cursor, before.Session.Cursor)
			}
			return err
		}},
		{what: fmt.Sprintf("the revocation of a ref that reaches %d sessions below", b.opts.opened), within: revokeWithin, prepare: func(ctx context.Context) (err error) {
			if below == nil {
				of, err := makeSessions(ctx, w.client, space, nil, 1)
				if err != nil {
					return err
				}
				parent = of[0]
				if below, err = makeSessions(ctx, w.client, space, parent, b.opts.opened); err != nil {
					return err
				}
			}
			batch := parent.Batch()
			ref, _ = batch.Share(client.ShareOptions{Rights: capability.Read, Children: capability.Read})
			t, err := batch.Commit(ctx)
			if err == nil {
				err = applied(ctx, t)
			}
			return err
		}, run: func(ctx context.Context, begin func()) error {
			begin()
			cut, err := parent.Revoke(ctx, ref.ID)
			if err == nil && cut.ChildCount != len(below) {
				err = fmt.Errorf("%d sessions below have a cut, of %d", cut.ChildCount, len(below))
			}
			return err
		}},
		// Last, since the sessions of the works before are as old.
		{what: fmt.Sprintf("the deletion of %d sessions by their age", b.opts.deleted), prepare: func(ctx context.Context) error {
			_, err := makeSessions(ctx, w.client, space, nil, b.opts.deleted)
			return errors.Join(err, sleep(ctx, oldAge+100*time.Millisecond))
		}, run: func(ctx context.Context, begin func()) error {
			begin()
			return deleteOld(ctx, space, b.opts.deleted)
		}},
	}, nil
}

func messageID(n int) string { return string(appendID([]byte("msg_"), uint64(n))) }
func partID(n int) string    { return string(appendID([]byte("prt_"), uint64(n))) }

// fillMessages puts messages with their parts, n keys in all.
func (w *writer) fillMessages(ctx context.Context, n int) error {
	for from := 0; from < n; from += fillBatch {
		batch := w.session.Batch()
		for k := from; k < min(from+fillBatch, n); k++ {
			message := messageID(k / revertedParts)
			if k%revertedParts == 0 {
				batch.Put("message/"+message, json.RawMessage(`{"role":"user"}`))
				continue
			}
			batch.Put("part/"+message+"/"+partID(k%revertedParts-1), json.RawMessage(opPayload(nil, uint64(k))))
		}
		if _, err := batch.CommitWait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// openDatabase opens the server's database, to look at what is not shown.
func (r *rig) openDatabase() (*sql.DB, error) {
	if r.pair != nil {
		return sql.Open("pgx", r.pair.server)
	}
	return sql.Open("sqlite", "file:"+filepath.Join(r.dir, "server", "mooring.db")+"?mode=ro&_pragma=busy_timeout(10000)")
}

// untilNone waits until a query counts nothing.
func untilNone(ctx context.Context, db *sql.DB, query string, args ...any) error {
	for {
		var n int
		if err := db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil || n == 0 {
			return err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
