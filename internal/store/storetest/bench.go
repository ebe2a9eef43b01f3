// What a group costs: one transaction with a batch of puts, as Commit makes it.

package storetest

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// Bench measures Update with 1 and 32 ops a batch, alone and from several
// goroutines with a session each; it reports ops a second.
func Bench(b *testing.B, fresh harness.Fresh) {
	for _, ops := range []int{1, 32, 100} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("ops=%d/writers=%d", ops, writers), func(b *testing.B) {
				f := harness.Begin(b, fresh)
				b.SetParallelism(writers)
				b.ResetTimer()
				if writers == 1 {
					w := newWriter(f, ops)
					for b.Loop() {
						w.batch()
					}
				} else {
					b.RunParallel(func(pb *testing.PB) {
						for w := newWriter(f, ops); pb.Next(); {
							w.batch()
						}
					})
				}
				b.ReportMetric(float64(b.N*ops)/b.Elapsed().Seconds(), "ops/s")
			})
		}
	}
}

// BenchCommit measures the same through decide.Commit: puts of new keys, each
// batch acknowledging the one before.
func BenchCommit(b *testing.B, fresh harness.Fresh) {
	for _, ops := range []int{1, 32} {
		b.Run(fmt.Sprintf("ops=%d", ops), func(b *testing.B) {
			f := harness.Begin(b, fresh)
			f.Ctx = b.Context() // without the suite's bound
			commit, n := f.Appender(ops), 0
			b.ResetTimer()
			for b.Loop() {
				commit()
				n += ops
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// writer commits batches of one stream.
type writer struct {
	f       *harness.Fixture
	ops     int
	key     session.StreamKey
	seq     uint64
	payload string
}

func newWriter(f *harness.Fixture, ops int) *writer {
	f.Ctx = f.Context() // without the suite's bound
	return &writer{f: f, ops: ops, key: session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()},
		payload: fmt.Sprintf(`{"text":"%0280d"}`, 1)}
}

func (w *writer) batch() {
	ctx := w.f.Ctx
	err := w.f.Update(ctx, func(tx session.Tx) error {
		keys := make([]string, w.ops)
		for i := range keys {
			keys[i] = fmt.Sprintf("message/m%012d", w.seq+uint64(i))
		}
		id := w.key.Session
		rows, err := tx.Load(ctx, &session.ReadSet{Sessions: []string{id}, Streams: []session.StreamKey{w.key},
			EntryMeta: map[string][]string{id: keys}, Turns: []string{id}, Grants: []string{id + ".x"}})
		if err != nil {
			return err
		}
		stream := rows.Streams[w.key]
		if stream == nil {
			stream = &ledger.Stream{Session: id, Outbox: w.key.Outbox}
		}
		c := &session.Changes{Streams: []*ledger.Stream{stream}}
		var ids []string
		for _, key := range keys {
			row := rows.Sessions[id]
			row.Cursor++
			e := harness.Event(id, row.Cursor, key, w.payload)
			row.Head = e.Hash
			c.Sessions, c.Events = []*session.Row{row}, append(c.Events, e)
			c.Entries = append(c.Entries, harness.EntryOf(e))
			ids = append(ids, e.Op)
		}
		c.Records = []session.StreamRecord{{Stream: w.key, Record: harness.Record(w.seq+1, ids...)}}
		if stream.LastSeq > 0 {
			c.Prune = []session.StreamPrune{{Stream: w.key, Through: stream.LastSeq}}
			stream.AckedThrough = stream.LastSeq
		}
		w.seq += uint64(w.ops)
		stream.LastSeq = w.seq
		return tx.Save(ctx, c)
	})
	if err != nil {
		w.f.Errorf("update: %v", err)
	}
}
