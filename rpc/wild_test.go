// Wild peers against a vat: a few in every run, as many as one likes with the tag soak (soak_test.go), and under a fuzzer.

package rpc

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// runWild runs the connection of one seed. Most have no goroutines; one in 64 runs over a transport, with all of them.
func runWild(seed uint64, threads bool) (w *wild, err error) {
	d := seeded(seed)
	if threads {
		a, b := Pipe()
		w = newWild(d, a, true)
		return w, w.runThreads(b)
	}
	w = newWild(d, quiet{}, false)
	if err = w.runManual(); err != nil { // once more, with its story
		w = newWild(seeded(seed), quiet{}, false)
		w.story = new([]string)
		if again := w.runManual(); again != nil {
			err = fmt.Errorf("%w\n%s", again, strings.Join(*w.story, "\n"))
		}
	}
	return w, err
}

// runThreads runs one connection over a transport, whose other end is link.
func (w *wild) runThreads(link Transport) error {
	ended := make(chan error, 1)
	go func() { ended <- w.c.Run(context.Background()) }()
	drained := make(chan struct{})
	go func() { // what the vat says is looked at by the trace
		defer close(drained)
		for {
			if _, err := link.ReadBatch(context.Background()); err != nil {
				return
			}
		}
	}()
	over := func() bool {
		select {
		case <-w.c.Done():
			return true
		default:
			return false
		}
	}
	for !w.d.over() && !over() {
		if w.d.n(3) == 0 {
			w.p.step(noWaitCtx)
			continue
		}
		w.c.mu.Lock()
		frame := w.message()
		taken := w.c.counters.MessagesIn
		w.c.mu.Unlock()
		if frame == nil {
			continue
		}
		if err := link.WriteBatch(context.Background(), frame); err != nil {
			break
		}
		for end := time.Now().Add(testDeadline); !over() && w.c.Stats().MessagesIn == taken; runtime.Gosched() {
			if time.Now().After(end) {
				return fmt.Errorf("a message is not taken in")
			}
		}
	}
	switch w.d.n(3) {
	case 0:
		link.Close(peerconn.CloseNormal, "")
	case 1:
		w.c.Close("over")
	case 2:
		_ = w.c.Drain(noWaitCtx, "over")
	}
	select {
	case <-ended:
	case <-time.After(testDeadline):
		return fmt.Errorf("Run does not return")
	}
	link.Close(peerconn.CloseNormal, "")
	<-drained
	if n := w.p.undone(); n > 0 {
		w.p.letGoOfPromises()
	}
	w.settle(func() {})
	return w.verdict()
}

// letGoOfPromises resolves the promises of this vat that calls within it wait for.
func (p *wildProgram) letGoOfPromises() {
	p.mu.Lock()
	resolves := p.resolves
	p.resolves = nil
	p.mu.Unlock()
	for _, f := range resolves {
		f(nil, errCanceled)
	}
}

var wildThreads = flag.Bool("threads", false, "run wild peers with goroutines and a transport only")

func TestWildPeers(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	for i := range 10 * *randomPeers {
		s, threads := seed+uint64(i), i%16 == 15 || *wildThreads
		if _, err := runWild(s, threads); err != nil {
			t.Fatalf("%v\nSEED=%d -run WildPeers -peers 1 -threads=%v is the same again", err, s, threads)
		}
	}
}

// FuzzPeer has a fuzzer's bytes decide what a wild peer and the program do.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		if err := newWild(&dice{bytes: data}, quiet{}, false).runManual(); err != nil {
			t.Fatal(err)
		}
	})
}
