//go:build unix

package web

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/slowreader"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// silentBytes is what a reader who takes nothing may hold of the heap beyond what one holds for whom there is nothing: a
// piece that is being written, once or twice, and what says where it is.
const silentBytes = 16 << 10

// A reader who takes nothing holds a few KB, however much there is for it, over any of the ways to follow; and when it
// reads again it has missed nothing and gets nothing twice.
func TestSilentReaders(t *testing.T) { // not beside others: the heap is looked at
	const each, some, round, bytes = 25, 2, 60, 16 << 10
	r := start(t, teststore.SQLite(t), func(_ *node.Config, pages *Config) {
		pages.EventBytes, pages.WriteTimeout = 64<<10, 2*patience // what is kept for all readers together is full at once
	})
	text := strings.Repeat("x", bytes)
	write := func(m *made) {
		for i := range round {
			m.do(put(fmt.Sprintf("part/a/%d", i), fmt.Sprintf(`{"type":"text","n":%d,"text":%q}`, i+1, text)))
		}
	}
	write(r.create()) // what is kept of what was written last is there
	m := r.create()
	target := slowreader.Target{Host: r.host, Share: m.publish().ID, Session: m.id, Bearer: m.owner.ID + "#" + m.owner.Secret.RevealText()}
	var readers []*slowreader.Reader
	for i := range each * len(slowreader.Endpoints) {
		reader, err := target.Open(t.Context(), slowreader.Endpoints[i%len(slowreader.Endpoints)])
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		readers = append(readers, reader)
	}
	idle := heapInUse()
	write(m)
	held := int64(0)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if held = (heapInUse() - idle) / int64(len(readers)); held <= silentBytes {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("each of %d readers who take nothing holds %d KiB", len(readers), held>>10)
		}
	}
	t.Logf("each of %d readers who take nothing holds %.1f KiB more than one who has taken all", len(readers), float64(held)/1024)
	var reading sync.WaitGroup
	for _, reader := range readers[:some*len(slowreader.Endpoints)] {
		reading.Go(func() {
			if err := reader.Read(within(t), 1, round); err != nil {
				t.Error(err)
			}
		})
	}
	reading.Wait()
}

// heapInUse is what lives on the heap.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what pools kept is gone
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
