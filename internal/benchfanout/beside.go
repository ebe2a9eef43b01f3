package main

// What followers cost others: those who write to other sessions, and the other followers if one of them reads nothing.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/server/node"
)

// writersBeside is how long commits to other sessions take beside followers at full speed. A bare server's followers
// beside the same commits say how much of it is that all share the processors.
type writersBeside struct {
	followers, events int
	writers           int
	quiet             time.Duration // of a round
}

const quietSpan = 2 * time.Second

// commitRest is how long a writer rests after an answer, so that what is measured is waiting and not what it does itself.
const commitRest = 4 * time.Millisecond

func (l writersBeside) label() string {
	return fmt.Sprintf("%d writers of other sessions, %d followers of one at full speed", l.writers, l.followers)
}

func (l writersBeside) small() special {
	l.followers, l.events, l.quiet = l.followers/20, l.events/20, l.quiet/20
	return l
}

func (l writersBeside) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	c := benchCase{wire: wireCapnp, followers: l.followers, sessions: 1, events: l.events, batch: 1, replicas: 1}
	rig, err := b.newRig(ctx, dir, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	if _, _, err := rig.follow(ctx); err != nil {
		return nil, err
	}
	var others []*writer
	for i := range l.writers {
		w, err := newWriter(ctx, filepath.Join(dir, "other"+strconv.Itoa(i)), rig.owner, 1)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, w.client.Close()) }()
		others = append(others, w)
	}
	var quiet, beside, bare []float64
	for round := range b.opts.rounds {
		b.progress.Printf("%s, round %d of %d", l.label(), round+1, b.opts.rounds)
		q, err := commitsWhile(ctx, others, func() error {
			time.Sleep(l.quiet)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if _, err := rig.m.servers[0].ask(request{Commits: true}); err != nil { // those of before
			return nil, err
		}
		if err := rig.m.expect(l.events); err != nil {
			return nil, err
		}
		x, err := commitsWhile(ctx, others, func() error {
			_, err := rig.m.await(func() error { return rig.w.publish(ctx, c) })
			return err
		})
		if err != nil {
			return nil, err
		}
		committed, err := rig.m.servers[0].ask(request{Commits: true})
		if err != nil {
			return nil, err
		}
		if err := rig.plain.expect(l.events); err != nil {
			return nil, err
		}
		y, err := commitsWhile(ctx, others, func() error {
			_, err := rig.plain.await(func() error {
				_, err := rig.plain.servers[0].ask(request{Publish: &publication{Times: sinceFirst(committed.Times[:1]), Bytes: rig.plain.bytes}})
				return err
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("beside a bare server: %w", err)
		}
		quiet, beside, bare = append(quiet, q), append(beside, x), append(bare, y)
		b.progress.Printf("%s: p99 %.2f ms, quiet %.2f, beside a bare server's %.2f", l.label(), x, q, y)
	}
	return []figure{
		compared("p99 of their commits, ms", "quiet", beside, quiet, 2, "ratio ≤ 2"),
		compared("… beside a bare server's followers", "quiet", bare, quiet, 2, ""),
	}, nil
}

// commitsWhile has writers commit an event after the other while run runs; p99 is that of their commits, in ms.
func commitsWhile(ctx context.Context, writers []*writer, run func() error) (p99 float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	lists, errs := make([][]time.Duration, len(writers)), make([]error, len(writers))
	var done sync.WaitGroup
	for i, w := range writers {
		done.Go(func() {
			for {
				began := time.Now()
				if errs[i] = w.put(ctx, 0, 1); errs[i] != nil {
					return
				}
				lists[i] = append(lists[i], time.Since(began))
				select {
				case <-stop:
					return
				case <-time.After(commitRest):
				}
			}
		})
	}
	err = run()
	close(stop)
	done.Wait()
	all := slices.Concat(lists...)
	if err = errors.Join(append(errs, err)...); err != nil {
		return 0, err
	}
	slices.Sort(all)
	return all[len(all)*99/100].Seconds() * 1e3, nil
}

// stoppedReader is what a follower that reads nothing any more costs the others, by turns with it and without, and what
// such followers cost the server in memory.
type stoppedReader struct {
	followers, events int
	rate              float64
	rounds            int
	stopped, burst    int // how many for the memory, and how many events they get before, and none of as many after
}

func (l stoppedReader) label() string {
	return fmt.Sprintf("%d followers, %.0f/s, beside one that reads nothing", l.followers, l.rate)
}

func (l stoppedReader) small() special {
	return stoppedReader{followers: l.followers / 20, events: l.events / 20, rate: l.rate / 20, rounds: 1, stopped: l.stopped / 20, burst: l.burst / 10}
}

func (l stoppedReader) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	c := benchCase{wire: wireCapnp, followers: l.followers, sessions: 1, events: l.events, batch: 1, rate: l.rate, replicas: 1, waits: true}
	rig, err := b.newRig(ctx, dir, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	follow := func(s *side, name string, count int, stops bool) error {
		_, err := s.follow(ctx, &following{Wire: wireCapnp, Addresses: rig.m.addresses, Refs: rig.w.refs, Last: rig.w.last, Followers: count, Dir: filepath.Join(dir, name), Stops: stops})
		return err
	}
	if err := follow(rig.m, "followers", l.followers, false); err != nil {
		return nil, err
	}
	p99 := func(beside bool) (_ float64, err error) {
		if beside {
			one := &side{servers: rig.m.servers}
			if err := follow(one, "stopped", 1, true); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, one.followers.Stop()) }()
			if _, err := one.followers.ask(request{Expect: &expectation{Events: l.events}, Stop: true}); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, one.gotNothing(l.events)) }()
		}
		x, _, err := rig.round(ctx, "")
		return x.p99.Seconds() * 1e3, err
	}
	var with, without []float64
	for round := range l.rounds {
		b.progress.Printf("%s, round %d of %d", l.label(), round+1, l.rounds)
		for _, beside := range []bool{round%2 == 0, round%2 != 0} {
			ms, err := p99(beside)
			if err != nil {
				return nil, err
			}
			if beside {
				with = append(with, ms)
			} else {
				without = append(without, ms)
			}
		}
		b.progress.Printf("%s: p99 %.2f ms, without %.2f", l.label(), with[round], without[round])
	}
	memory, err := l.memory(ctx, rig, follow)
	if err != nil {
		return nil, err
	}
	return []figure{
		compared("p99 of the others, ms", "without it", with, without, 2, "ratio ≤ 1.25"),
		{what: fmt.Sprintf("what the server holds more for each of %d, KB", l.stopped), of: memory, aim: fmt.Sprintf("≤ %d, the window", node.DefaultConfig().WindowBytes>>10)},
	}, nil
}

// gotNothing checks that followers that were to read no more have not.
func (s *side) gotNothing(left int) error {
	a, err := s.followers.ask(request{Left: true})
	if err == nil && a.Left != int64(left) {
		err = fmt.Errorf("of %d events that nobody was to read %d are left", left, a.Left)
	}
	return err
}

// memory is by how much the server's grows for each follower that reads nothing of what comes, in KB. They have read as
// much before, so that their windows are as large as they become.
func (l stoppedReader) memory(ctx context.Context, rig *rig, follow func(s *side, name string, count int, stops bool) error) (float64, error) {
	burst := benchCase{sessions: 1, events: l.burst, batch: 100}
	publish := func() error { return rig.w.publish(ctx, burst) }
	many := &side{servers: rig.m.servers}
	if err := follow(many, "many", l.stopped, true); err != nil {
		return 0, err
	}
	if err := many.expect(l.burst); err != nil {
		return 0, errors.Join(err, many.followers.Stop())
	}
	grown := func() (kb float64, err error) {
		if _, err := many.await(func() error { return rig.m.deliver(l.burst, publish) }); err != nil {
			return 0, err
		}
		before, err := rig.m.usage()
		if err != nil {
			return 0, err
		}
		if _, err := many.followers.ask(request{Expect: &expectation{Events: l.burst}, Stop: true}); err != nil {
			return 0, err
		}
		if err := rig.m.deliver(l.burst, publish); err != nil {
			return 0, err
		}
		after, err := rig.m.usage()
		if err == nil {
			err = many.gotNothing(l.burst * l.stopped)
		}
		return float64(after.RSS-before.RSS) / 1024 / float64(l.stopped), err
	}
	kb, err := grown()
	return kb, errors.Join(err, many.followers.Stop())
}
