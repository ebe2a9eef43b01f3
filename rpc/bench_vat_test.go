//go:build unix

// A call and nothing but what this package does for it: two vats whose messages are carried by hand.

package rpc

import (
	"context"
	"testing"
)

// bareVat is a connection that neither reads nor writes.
func bareVat(boot Object) *Conn {
	c := NewConn(quiet{}, Config{Bootstrap: boot})
	c.loop.Manual = true
	return c
}

// carry hands what waits at one vat to the other, which delivers what comes of it.
func carry(b *testing.B, from, to *Conn) {
	from.mu.Lock()
	said := from.out.TakeMessages()
	from.unlockAndRun()
	to.mu.Lock()
	for _, frame := range said {
		if err := to.handle(frame); err != nil {
			b.Fatal(err)
		}
	}
	to.unlockAndRun()
	to.loop.Deliver()
}

func BenchmarkVat(b *testing.B) {
	x, y := bareVat(nil), bareVat(echoObject{})
	boot := x.Bootstrap(context.Background())
	carry(b, x, y)
	carry(b, y, x)
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
		carry(b, x, y)
		carry(b, y, x)
		for _, p := range promises {
			checkBenchText(b, p)
		}
	}
}
