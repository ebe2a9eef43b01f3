package main

// What a session of very many own keys costs beside one of a thousand: appends, claims, single keys, pages and snapshots. Each
// has a server and databases of its own, and the two are measured by turns.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mooring-rpc/mooring/client"
)

// keysRow is one line of the table: medians, and what the ratio may be at most.
type keysRow struct {
	db, what  string
	few, many time.Duration
	aim       float64
}

func (r *keysRow) ratio() float64 { return float64(r.many) / float64(r.few) }

// Keys are in lists of listKeys each, of which listsTogether grow at a time. The small session has one list.
const (
	kindPrefix    = "item/"
	listKeys      = 1000
	listsTogether = 50
)

// pageKeys is how many keys a page has.
const pageKeys = 100

// Aims, of what writes and of what reads.
const (
	writeAim = 1.2
	readAim  = 3
)

// listPrefix is the prefix of the i-th list.
func listPrefix(i int) string { return string(append(appendID([]byte(kindPrefix), uint64(i)), '/')) }

// ownKey is the n-th key in their order.
func ownKey(n int) string {
	return string(appendID([]byte(listPrefix(n/listKeys)), uint64(n%listKeys)))
}

// ownValue is what is put there.
func ownValue(n int) json.RawMessage {
	return fmt.Appendf(nil, `{"state":"open","tries":%d,"title":%q}`, n, prose[:payloadBytes/3])
}

// nthPut is which of n keys is put after i others: listsTogether lists grow at a time, each by keys from all over it, so that
// neighbours in a list are not put together.
func nthPut(n, i int) int {
	const stride = 787 // has no divisor in common with listKeys: its multiples are all of a list's keys
	first := i / (listsTogether * listKeys) * listsTogether
	lists := min(listsTogether, n/listKeys-first)
	i -= first * listKeys
	return (first+i%lists)*listKeys + i/lists*stride%listKeys
}

// Batches of fillBatch keys fill a session, fillAtOnce of them at a time.
const (
	fillBatch  = 1000
	fillAtOnce = 8
)

// fill puts n keys.
func (w *writer) fill(ctx context.Context, n int) error {
	err := inParallel(n/fillBatch, fillAtOnce, func(i int) error {
		b := w.session.Batch()
		for k := range fillBatch {
			key := nthPut(n, i*fillBatch+k)
			b.Put(ownKey(key), ownValue(key))
		}
		_, err := b.CommitWait(ctx)
		return err
	})
	return errors.Join(err, w.client.Drain(ctx, nil))
}

// keysWork is something that is done over and over with a session of n keys; prepare and undo are not measured.
type keysWork struct {
	what string
	aim  float64
	do   func(ctx context.Context, s *client.Session, n int) (undo func() error, err error)
}

// keysWorks are what the two sessions are compared by.
func keysWorks() []keysWork {
	put := func(key func(n int) string) func(context.Context, *client.Session, int) (func() error, error) {
		return func(ctx context.Context, s *client.Session, n int) (func() error, error) {
			b := s.Batch()
			b.Put(key(n), ownValue(rand.IntN(1e9)))
			_, err := b.CommitWait(ctx)
			return nil, err
		}
	}
	page := func(prefix string, order client.KeyOrder, after func(n int) string) func(context.Context, *client.Session, int) (func() error, error) {
		return func(ctx context.Context, s *client.Session, n int) (func() error, error) {
			page, err := s.ListPage(ctx, client.KeyOptions{Prefix: prefix, Order: order, Values: true}, after(n), pageKeys)
			if err == nil && len(page.Entries) != pageKeys {
				err = fmt.Errorf("a page of %d keys", len(page.Entries))
			}
			return nil, err
		}
	}
	first := func(int) string { return "" }
	works := []keysWork{
		{"put of a key that is there", writeAim, put(func(n int) string { return ownKey(rand.IntN(n)) })},
		{"claim of a key", writeAim, func(ctx context.Context, s *client.Session, n int) (func() error, error) {
			b := s.Batch()
			return claimed(ctx, s, b, b.Claim(ownKey(rand.IntN(n)), time.Minute, ""))
		}},
		{"claim of a prefix", writeAim, func(ctx context.Context, s *client.Session, n int) (func() error, error) {
			b := s.Batch()
			return claimed(ctx, s, b, b.ClaimFirst(kindPrefix, time.Minute, ""))
		}},
		{"get of a key", readAim, func(ctx context.Context, s *client.Session, n int) (func() error, error) {
			page, err := s.Get(ctx, ownKey(rand.IntN(n)))
			if err == nil && len(page.Entries) != 1 {
				err = errors.New("a key that was put is not there")
			}
			return nil, err
		}},
	}
	for _, o := range []client.KeyOrder{client.ByKey, client.ByPut} {
		// A place in the order; by put it is that of an event's cursor.
		place := func(i int) string {
			if o == client.ByKey {
				return ownKey(i)
			}
			return fmt.Sprintf("%d.0.%s", i+1, ownKey(0))
		}
		by := ", by " + string(o)
		works = append(works,
			keysWork{"the kind's first page" + by, readAim, page(kindPrefix, o, first)},
			keysWork{"a page anywhere" + by, readAim, page(kindPrefix, o, func(n int) string { return place(rand.IntN(n - pageKeys - 1)) })},
			keysWork{"the last page" + by, readAim, page(kindPrefix, o, func(n int) string { return place(n - pageKeys - 1) })},
			keysWork{"a list's first page" + by, readAim, func(ctx context.Context, s *client.Session, n int) (func() error, error) {
				return page(listPrefix(rand.IntN(n/listKeys)), o, first)(ctx, s, n)
			}})
	}
	return append(works, keysWork{"a snapshot of a list", readAim, func(ctx context.Context, s *client.Session, n int) (func() error, error) {
		state, err := s.SnapshotOfKeys(ctx, client.Position{}, []string{listPrefix(rand.IntN(n / listKeys))})
		if err == nil && len(state.Entries) < listKeys {
			err = fmt.Errorf("a snapshot of %d keys", len(state.Entries))
		}
		return nil, err
	}},
		// Last, since it makes the lists longer.
		keysWork{"put of a new key", writeAim, put(func(n int) string { return fmt.Sprintf("%s.%d", ownKey(rand.IntN(n)), rand.IntN(1e9)) })})
}

// claimed commits a claim; undo releases it.
func claimed(ctx context.Context, s *client.Session, b *client.Batch, claim *client.Promise) (undo func() error, err error) {
	res, err := b.CommitWait(ctx)
	if err != nil {
		return nil, err
	}
	var made struct {
		Key   string
		Claim uint64
	}
	return func() error {
		b := s.Batch()
		b.Release(made.Key, made.Claim)
		_, err := b.CommitWait(ctx)
		return err
	}, res.Decode(claim, &made)
}

// keys measures the two sessions.
func (b *bench) keys(ctx context.Context, db string, r *report) (err error) {
	sizes := [2]int{listKeys, b.opts.keys}
	var sessions [2]*client.Session
	for i, n := range sizes {
		rig, err := b.newRig(ctx, db, fmt.Sprintf("keys%d", i))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rig.close()) }()
		w, err := rig.newWriter(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.client.Close()) }()
		took, err := timed(func() error { return w.fill(ctx, n) })
		if err != nil {
			return err
		}
		b.progress.Printf("%s, %d keys put in %v", db, n, took.Round(time.Millisecond))
		sessions[i] = w.session
	}
	for _, work := range keysWorks() {
		var took [2][]time.Duration
		for k := range max(b.opts.appends/3, 1) + warmUp {
			for i, s := range sessions {
				var undo func() error
				d, err := timed(func() (err error) {
					undo, err = work.do(ctx, s, sizes[i])
					return err
				})
				if err == nil && undo != nil {
					err = undo()
				}
				if err != nil {
					return fmt.Errorf("%s: %w", work.what, err)
				}
				if k >= warmUp {
					took[i] = append(took[i], d)
				}
			}
		}
		row := keysRow{db: db, what: work.what, few: quantilesOf(took[0]).p50, many: quantilesOf(took[1]).p50, aim: work.aim}
		b.progress.Printf("%s, %s: %s and %s ms", db, work.what, ms(row.few), ms(row.many))
		r.keys = append(r.keys, row)
	}
	return nil
}
