//go:build unix

// A call and nothing but what this package does for it: two vats whose messages are carried by hand.

package rpc

import (
	"context"
	"testing"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// bareVat is a connection that neither reads nor writes.
func bareVat(boot Object) *Conn {
	c := NewConn(quiet{}, Config{Bootstrap: boot})
	c.loop.Manual = true
	return c
}

// carry hands what waits at one vat to the other, which delivers what comes of it.
func carry(b *testing.B, from, to *Conn, spare []byte) []byte {
	from.mu.Lock()
	said := from.out.Bytes
	from.out.Bytes, from.out.Ends = spare[:0], from.out.Ends[:0]
	from.unlockAndRun()
	to.mu.Lock()
	for rest := said; len(rest) > 0; {
		frame, next, err := framing.Split(rest, to.limits.frame())
		if err == nil {
			err = to.handle(frame)
		}
		if err != nil {
			b.Fatal(err)
		}
		rest = next
	}
	to.unlockAndRun()
	to.loop.Deliver()
	return said
}

func BenchmarkVat(b *testing.B) {
	x, y := bareVat(nil), bareVat(echoObject{})
	boot := x.Bootstrap(context.Background())
	var spare []byte
	spare = carry(b, x, y, spare)
	spare = carry(b, y, x, spare)
	promises := make([]*Promise, 64)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpuTime()
	defer func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }()
	for n := b.N; n > 0; n -= len(promises) {
		promises = promises[:min(n, 64)]
		for i := range promises {
			promises[i] = boot.Call(context.Background(), mEcho, echoSize, placeBenchText)
		}
		spare = carry(b, x, y, spare)
		spare = carry(b, y, x, spare)
		for _, p := range promises {
			checkBenchText(b, p)
		}
	}
}
