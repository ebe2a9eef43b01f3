package main

// What followers note, however they follow, all in one process: when each event reached each of them. The followers of an
// older commit (old_followers.go) are built from this file too, so it knows nothing of Mooring's packages.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// following says who follows what.
type following struct {
	Wire      string   // of which the followers are
	Addresses []string // of servers, to which they are spread
	Refs      []string // of Mooring's sessions, each a topic that all of them follow
	Last      []uint64 // event of each session: who has it has all there are
	FromEnd   bool     // of the Go client and of the API's events: nothing before that event is asked for
	Topics    int      // of a bare server
	Followers int      // each with a connection of its own, or on HTTP with one for each topic
	Dir       string   // of an outbox, which the Go client has to have
	Count     bool     // bytes, which takes more CPU
	Stops     bool     // some time, which does too
}

// expectation is what is to come.
type expectation struct{ Events int } // of each topic

// followers are connected.
type followers struct {
	cancel  context.CancelFunc
	all     []*follower // of one topic each: a connection's are in a row
	ended   chan error  // the first that ended too early
	wg      sync.WaitGroup
	bytes   atomic.Int64
	stopped chan struct{} // closed when they are to read no more
	onClose []func() error

	left atomic.Int64  // events that have not reached a follower
	done chan struct{} // closed when left is 0
}

// follower is one connection's view of one topic.
type follower struct {
	of    *followers
	topic int
	first uint64        // event with which it follows: whichever comes first if 0
	seen  chan struct{} // closed when it follows
	once  sync.Once

	mu    sync.Mutex
	last  uint64  // event that was seen
	base  uint64  // event before the first that is expected
	times []int64 // when those came
}

// begin records that the follower follows.
func (f *follower) begin() { f.once.Do(func() { close(f.seen) }) }

// note records that the events up to number n have come.
func (f *follower) note(n uint64) {
	now := time.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for i := f.last - f.base; i < uint64(len(f.times)) && f.base+i < n; i++ {
		f.times[i], count = now, count+1
	}
	f.last = max(f.last, n)
	if f.last >= f.first {
		f.begin()
	}
	if count > 0 && f.of.left.Add(-int64(count)) == 0 {
		close(f.of.done)
	}
}

// connecting is how many followers connect at a time.
const connecting = 32

// follow connects followers and waits until each follows each topic.
func follow(ctx context.Context, o *following) (_ *followers, err error) {
	ctx, cancel := context.WithCancel(ctx)
	fs := &followers{cancel: cancel, ended: make(chan error, 1), stopped: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.close())
		}
	}()
	connect, err := fs.connector(ctx, o)
	if err != nil {
		return nil, err
	}
	slots := make(chan struct{}, connecting)
	var starting sync.WaitGroup
	for n := range o.Followers {
		topics := make([]*follower, max(len(o.Refs), o.Topics))
		for t := range topics {
			topics[t] = &follower{of: fs, topic: t, seen: make(chan struct{})}
			if o.Last != nil {
				topics[t].first = o.Last[t]
			}
		}
		fs.all = append(fs.all, topics...)
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			fs.wg.Go(func() {
				if err := connect(ctx, o.Addresses[n%len(o.Addresses)], topics); ctx.Err() == nil {
					select {
					case fs.ended <- fmt.Errorf("follower %d: %w", n, errors.Join(err, io.ErrUnexpectedEOF)):
					default:
					}
					cancel()
				}
			})
			for _, f := range topics {
				select {
				case <-f.seen:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	starting.Wait()
	return fs, fs.failed(ctx)
}

// stop has followers that were to (following.Stops) read no more. What becomes of their connections is no matter.
func (fs *followers) stop() { close(fs.stopped) }

// failed is why a follower ended too early.
func (fs *followers) failed(ctx context.Context) error {
	select {
	case err := <-fs.ended:
		return err
	default:
		return ctx.Err()
	}
}

// expect begins to note when events come. None may be on its way.
func (fs *followers) expect(e *expectation) {
	fs.done = make(chan struct{})
	fs.left.Store(int64(len(fs.all) * e.Events))
	fs.bytes.Store(0)
	for _, f := range fs.all {
		f.mu.Lock()
		f.base, f.times = f.last, make([]int64, e.Events)
		f.mu.Unlock()
	}
}

// await waits until all has come, and returns when the last did.
func (fs *followers) await(ctx context.Context) (last int64, err error) {
	select {
	case <-fs.done:
	case err := <-fs.ended:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for _, f := range fs.all {
		last = max(last, slices.Max(f.times))
	}
	return last, nil
}

func (fs *followers) received() int64 { return fs.bytes.Load() }

// delays returns p50, p99, p99.9 and the longest of the times from commits to followers.
func (fs *followers) delays(commits [][]int64) []int64 {
	var all []int64
	for _, f := range fs.all {
		for i, t := range f.times {
			all = append(all, t-commits[f.topic][i])
		}
	}
	slices.Sort(all)
	var q []int64
	for _, p := range []float64{0.5, 0.99, 0.999, 1} {
		q = append(q, all[min(int(p*float64(len(all))), len(all)-1)])
	}
	return q
}

func (fs *followers) close() error {
	fs.cancel()
	fs.wg.Wait()
	var err error
	for _, f := range slices.Backward(fs.onClose) {
		err = errors.Join(err, f())
	}
	return err
}
