package decide_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// BenchmarkCommit is the domain's own cost of a group of one-op batches, without a database.
func BenchmarkCommit(b *testing.B) {
	for name, x := range map[string]func(i int) anOp{
		"put": func(i int) anOp {
			return op("put", "key", "part/m/p", "payload", raw(`{"type":"text","i":%d,"text":"%0200d"}`, i, 0))
		},
		"delta": func(i int) anOp { return op("appendText", "key", "part/m/t", "offset", 10*i, "text", "0123456789") },
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.cfg.Limits.TextBytes = 1 << 30
			o := w.create()
			o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
			o.apply(op("put", "key", "part/m/t", "payload", raw(`{}`)))
			const group = 64
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				subs := make([]decide.Submission, group)
				acked := o.seq
				for j := range subs {
					subs[j] = o.batch(false, x(i))
					i++
				}
				o.acked = acked
				b.StartTimer()
				err := w.store.Update(b.Context(), func(tx session.Tx) error {
					answers, _, err := decide.Commit(b.Context(), tx, subs, w.cfg)
					for j := range answers {
						if out := answers[j].Outcomes[0]; out.Cursor == 0 {
							b.Fatalf("%+v", out)
						}
					}
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/group, "ns/op-intent")
		})
	}
}
