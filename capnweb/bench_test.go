// How fast calls are, without a network.

package capnweb_test

import (
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

func benchPair(b *testing.B) *capnweb.Stub {
	x, y := capnweb.Pipe()
	client := capnweb.NewConn(x, capnweb.Config{})
	server := capnweb.NewConn(y, capnweb.Config{Main: newTarget(nil)})
	var wg sync.WaitGroup
	wg.Go(func() { client.Run(bg) })
	wg.Go(func() { server.Run(bg) })
	b.Cleanup(func() { client.Close(""); wg.Wait() })
	m := client.Main()
	b.Cleanup(m.Release)
	b.ReportAllocs()
	b.ResetTimer()
	return m
}

func BenchmarkCall(b *testing.B) {
	m := benchPair(b)
	for b.Loop() {
		p := m.Call(bg, "square", 7)
		if _, err := p.Await(bg); err != nil {
			b.Fatal(err)
		}
		p.Release()
	}
}

func BenchmarkCalls64(b *testing.B) {
	m := benchPair(b)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range b.N/64 + 1 {
				p := m.Call(bg, "square", 7)
				if _, err := p.Await(bg); err != nil {
					b.Error(err)
				}
				p.Release()
			}
		})
	}
	wg.Wait()
}
