package main

// What a subscription of a prefix costs the server beside one of all: CPU and bytes of each event that is delivered.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// followRow is one line of the table: what the server does for a subscriber and an event of the log, and the medians of the
// rounds' ratios to a subscription of all.
type followRow struct {
	db, what             string
	cpu                  time.Duration
	bytes                float64
	cpuToAll, bytesToAll float64
}

// Subscribers, each with a connection of its own, and the ops that each batch has while they follow.
const (
	followers   = 32
	followBatch = 100
)

// followAim is 1 and an allowance for noise.
const followAim = 1.1

// follow measures subscriptions of all and of a prefix, by turns.
func (b *bench) follow(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	w, err := rig.newWriter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	var bytes traffic
	sessions := make([]*client.Session, followers)
	for i := range sessions {
		config := rig.config(fmt.Sprintf("follower%d", i))
		config.DialContext = bytes.dial
		c, err := client.Open(ctx, config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		if sessions[i], err = c.Session(ctx, w.session.Ref()); err != nil {
			return err
		}
	}
	kinds := []struct {
		what string
		keys []string
		part int // one of so many events is below the prefix
	}{{what: "all", part: 1}, {"a prefix that has all events", []string{kindPrefix}, 1}, {"a prefix that has one event of ten", []string{kindPrefix}, 10}}
	series := make([]struct{ cpu, bytes, cpuToAll, bytesToAll []float64 }, len(kinds))
	for round := range b.opts.rounds {
		alone, _, err := b.followed(ctx, rig, w, nil, nil, &bytes, 1) // what the appends cost by themselves
		if err != nil {
			return err
		}
		turn := []int{0, 1, 2}
		if round%2 == 1 { // none is always the first
			slices.Reverse(turn)
		}
		for _, i := range turn {
			k := kinds[i]
			cpu, size, err := b.followed(ctx, rig, w, sessions, k.keys, &bytes, k.part)
			if err != nil {
				return err
			}
			n := float64(followers * b.opts.followed)
			of := &series[i]
			of.cpu, of.bytes = append(of.cpu, max(cpu-alone, time.Millisecond).Seconds()/n), append(of.bytes, float64(size)/n)
			b.progress.Printf("%s, %d subscriptions of %s, round %d of %d: %.2f µs and %.0f bytes an event", db, followers, k.what, round+1, b.opts.rounds, of.cpu[round]*1e6, of.bytes[round])
		}
		all := &series[0]
		for i := range series {
			of := &series[i]
			of.cpuToAll, of.bytesToAll = append(of.cpuToAll, of.cpu[round]/all.cpu[round]), append(of.bytesToAll, of.bytes[round]/all.bytes[round])
		}
	}
	for i, k := range kinds {
		of := &series[i]
		r.follow = append(r.follow, followRow{db: db, what: k.what, cpu: seconds(measure.Median(of.cpu)), bytes: measure.Median(of.bytes),
			cpuToAll: measure.Median(of.cpuToAll), bytesToAll: measure.Median(of.bytesToAll)})
	}
	return nil
}

// followed puts events while sessions follow, one of so many below kindPrefix, and returns the server's CPU and the bytes that it
// sent to them.
func (b *bench) followed(ctx context.Context, rig *rig, w *writer, sessions []*client.Session, keys []string, bytes *traffic, part int) (cpu time.Duration, size int64, err error) {
	info, err := w.session.Describe(ctx)
	if err != nil {
		return 0, 0, err
	}
	from := info.Session.Cursor
	to := from + uint64(b.opts.followed)
	ended := make(chan error, len(sessions))
	ready := make(chan struct{}, len(sessions))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range sessions {
		go func() {
			first, wanted := true, 0
			err := s.Subscribe(ctx, client.SubscribeOptions{After: from - 1, Keys: keys}, func(e client.Event) error {
				if first {
					first = false
					ready <- struct{}{}
				}
				if !e.Hidden && e.Cursor > from {
					wanted++
				}
				if e.Cursor < to {
					return nil
				}
				return errFollowed
			})
			if !errors.Is(err, errFollowed) {
				ended <- err
				return
			}
			if least := b.opts.followed / part; wanted < least && keys != nil || keys == nil && wanted != b.opts.followed {
				ended <- fmt.Errorf("a subscriber got %d of %d events", wanted, b.opts.followed)
				return
			}
			ended <- nil
		}()
	}
	for range sessions {
		select {
		case <-ready:
		case err := <-ended:
			return 0, 0, err
		}
	}
	before, err := rig.cpu()
	if err != nil {
		return 0, 0, err
	}
	sent := bytes.received.Load()
	for n := 0; n < b.opts.followed; n += followBatch {
		batch := w.session.Batch()
		for k := n; k < n+followBatch; k++ {
			key := ownKey(k)
			if k%part != 0 {
				key = "other/" + key
			}
			batch.Put(key, ownValue(int(w.n.Add(1))))
		}
		if _, err := batch.CommitWait(ctx); err != nil {
			return 0, 0, err
		}
	}
	for range sessions {
		err = errors.Join(err, <-ended)
	}
	if err != nil {
		return 0, 0, err
	}
	after, err := rig.cpu()
	return after - before, bytes.received.Load() - sent, err
}

// errFollowed ends a subscription that has seen all.
var errFollowed = errors.New("followed")
