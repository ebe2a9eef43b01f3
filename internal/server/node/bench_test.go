//go:build unix

package node

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// BenchmarkApply is the server's half of an append: batch in, ack out, over
// pipes, with many writers of one op each.
func BenchmarkApply(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			r := start(b, sqliteStore(b), func(c *Config) { c.Transactions = 1 })
			p := r.dial()
			type writer struct {
				m      *made
				stream *rpc.Ref
			}
			all := make([]writer, writers)
			for i := range all {
				q := r.dial()
				m := r.create(p)
				all[i] = writer{m, q.open(q.restore(m.owner), m.box)}
			}
			b.ResetTimer()
			var n atomic.Int64
			var wg sync.WaitGroup
			for _, w := range all {
				wg.Go(func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						if ack := readReply(b, applying(b, w.stream, w.m.batch(put(int(i))))); ack.applied != 1 {
							b.Errorf("%+v", ack)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkFanOut is deliveries of one writer's events to many subscribers.
func BenchmarkFanOut(b *testing.B) {
	const subscribers, connections = 100, 10
	r := start(b, sqliteStore(b), nil)
	p := r.dial()
	m := r.create(p)
	var all []*recorder
	for range connections {
		q := r.dial()
		sess := q.restore(m.owner)
		for range subscribers / connections {
			k := newRecorder()
			all = append(all, k)
			defer q.subscribe(sess, k, 0).Release()
		}
	}
	b.ResetTimer()
	const inFlight = 32
	var flying []*rpc.Promise
	events := 0
	for deliveries := 0; deliveries < b.N; deliveries += 10 * subscribers {
		ops := make([]ledger.Intent, 10)
		for i := range ops {
			ops[i] = put(events)
			events++
		}
		flying = append(flying, applying(b, m.stream, m.batch(ops...)))
		if len(flying) == inFlight {
			readReply(b, flying[0])
			flying = flying[1:]
		}
	}
	for _, f := range flying {
		readReply(b, f)
	}
	for _, k := range all {
		k.untilCursor(b, uint64(events)+1)
	}
	b.ReportMetric(float64(events*subscribers)/b.Elapsed().Seconds(), "deliveries/s")
}

// BenchmarkApplyOverTheWeb is BenchmarkApply over Cap'n Web.
func BenchmarkApplyOverTheWeb(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			r := start(b, sqliteStore(b), func(c *Config) { c.Transactions = 1 })
			clients, made := make([]*webClient, writers), make([]*webMade, writers)
			for i := range clients {
				clients[i] = r.dialWeb()
				made[i] = r.createWeb(clients[i])
			}
			b.ResetTimer()
			var n atomic.Int64
			var wg sync.WaitGroup
			for k, w := range clients {
				wg.Go(func() {
					for {
						i := n.Add(1)
						if i > int64(b.N) {
							return
						}
						if ack := w.apply(made[k].stream, made[k].batch(put(int(i)))); ack.applied != 1 {
							b.Errorf("%+v", ack)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// BenchmarkFollow is BenchmarkFanOut to followers within the process.
func BenchmarkFollow(b *testing.B) {
	const followers = 100
	r := start(b, sqliteStore(b), nil)
	m := r.create(r.dial())
	live, err := r.server.Caller(b.Context(), "127.0.0.1:1").Restore(m.owner, "")
	if err != nil {
		b.Fatal(err)
	}
	ctx, leave := context.WithCancel(b.Context())
	defer leave()
	var behind atomic.Int64
	var all sync.WaitGroup
	for range followers {
		all.Go(func() {
			_ = live.Follow(ctx, fanout.Position{}, nil, func(events []*session.Event) error {
				behind.Add(-int64(len(events)))
				return nil
			})
		})
	}
	behind.Add(followers) // the create
	b.ResetTimer()
	events := 0
	for events*followers < b.N {
		ops := make([]ledger.Intent, 10)
		for i := range ops {
			ops[i] = put(events)
			events++
		}
		behind.Add(int64(len(ops)) * followers)
		readReply(b, applying(b, m.stream, m.batch(ops...)))
	}
	until.True(b, "all have it", func() bool { return behind.Load() == 0 })
	b.ReportMetric(float64(events*followers)/b.Elapsed().Seconds(), "deliveries/s")
	leave()
	all.Wait()
}
