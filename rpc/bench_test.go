//go:build unix

// Echo over a real WebSocket, both vats in one process: so allocations are those of both sides together.

package rpc

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc/internal/transport"
)

// echoObject returns its text.
type echoObject struct{}

var echoSize = capnp.ObjectSize{PointerCount: 1}

func (echoObject) Serve(call *Call) {
	p, _ := call.Params()
	ptr, err := p.Ptr(0)
	if err != nil {
		call.Fail(err)
		return
	}
	call.Return(echoSize, func(s capnp.Struct, _ *CapTable) error { return s.SetTextFromBytes(0, ptr.TextBytes()) })
}

var benchText = []byte(strings.Repeat("0123456789", 30))

func benchVats(b *testing.B) (*Ref, func()) {
	ta, tb := dialTest(b, nil)
	x, y := NewConn(ta, Config{}), NewConn(tb, Config{Bootstrap: echoObject{}})
	errs := make(chan error, 2)
	go func() { errs <- x.Run(context.Background()) }()
	go func() { errs <- y.Run(context.Background()) }()
	boot := x.Bootstrap(context.Background())
	return boot, func() {
		boot.Release()
		x.Close("done")
		<-errs
		<-errs
	}
}

func echoOnce(b *testing.B, boot *Ref) {
	checkBenchText(b, boot.Call(context.Background(), mEcho, echoSize, placeBenchText))
}

func placeBenchText(s capnp.Struct, _ *CapTable) error { return s.SetTextFromBytes(0, benchText) }

// checkBenchText waits for the answer and lets go of it.
func checkBenchText(b *testing.B, p *Promise) {
	s, _, err := p.Wait(context.Background())
	if err != nil {
		b.Error(err)
		return
	}
	if ptr, err := s.Ptr(0); err != nil || len(ptr.TextBytes()) != len(benchText) {
		b.Errorf("wrong answer: %v", err)
	}
	p.Release()
}

func BenchmarkEcho(b *testing.B) {
	b.Run("1 in flight", func(b *testing.B) {
		boot, stop := benchVats(b)
		defer stop()
		b.ReportAllocs()
		b.ResetTimer()
		before := cpuTime()
		for range b.N {
			echoOnce(b, boot)
		}
		b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	})
	b.Run("64 in flight", func(b *testing.B) {
		boot, stop := benchVats(b)
		defer stop()
		b.ReportAllocs()
		b.ResetTimer()
		before := cpuTime()
		defer func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }()
		var wg sync.WaitGroup
		for i := range 64 {
			n := b.N / 64
			if i < b.N%64 {
				n++
			}
			wg.Go(func() {
				for range n {
					echoOnce(b, boot)
				}
			})
		}
		wg.Wait()
	})
}

// BenchmarkRaw is the floor: the same bytes echoed by the WebSocket library alone, one frame a call.
func BenchmarkRaw(b *testing.B) {
	for name, flight := range map[string]int{"1 in flight": 1, "64 in flight": 64} {
		b.Run(name, func(b *testing.B) {
			ta, tb := dialTest(b, nil)
			x, y := ta.(*transport.WebSocket).Conn, tb.(*transport.WebSocket).Conn
			ctx := context.Background()
			go func() {
				for {
					_, m, err := y.Read(ctx)
					if err != nil {
						return
					}
					if y.Write(ctx, websocket.MessageBinary, m) != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime()
			window := make(chan struct{}, flight)
			go func() {
				for range b.N {
					window <- struct{}{}
					if x.Write(ctx, websocket.MessageBinary, benchText) != nil {
						return
					}
				}
			}()
			for range b.N {
				if _, _, err := x.Read(ctx); err != nil {
					b.Fatal(err)
				}
				<-window
			}
			b.StopTimer()
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
			x.CloseNow()
			y.CloseNow()
		})
	}
}

// cpuTime is what the process has used: steadier than the clock on a busy machine.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
