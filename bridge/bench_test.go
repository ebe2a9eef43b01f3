package bridge

import (
	"context"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// BenchmarkCall is a call of an object of the vat's over a pipe, with so many in flight.
func BenchmarkCall(b *testing.B) {
	for _, flying := range []int{1, 64} {
		b.Run(fmt.Sprintf("flying=%d", flying), func(b *testing.B) {
			r := newRig(b, kindsConfig())
			calls := make([]*capnweb.Promise, 0, flying)
			wait := func() {
				if _, err := r.await(calls[0]); err != nil {
					b.Fatal(err)
				}
				calls[0].Release()
				calls = append(calls[:0], calls[1:]...)
			}
			b.ReportAllocs()
			for b.Loop() {
				if len(calls) == flying {
					wait()
				}
				p := r.main.Call(context.Background(), "echo", map[string]any{"amount": 5})
				p.Then(func(any, error) {})
				calls = append(calls, p)
			}
			for len(calls) > 0 {
				wait()
			}
		})
	}
}

// BenchmarkConvert is a struct of every kind written, and read.
func BenchmarkConvert(b *testing.B) {
	bridge := compiled(b, kindsConfig())
	p := kindsPlan(bridge)
	v := everything()
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := written(bridge, p, v, roomy); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		s, err := written(bridge, p, v, roomy)
		if err != nil {
			b.Fatal(err)
		}
		s.Message().ResetReadLimit(1 << 62)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := readBack(bridge, p, s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
