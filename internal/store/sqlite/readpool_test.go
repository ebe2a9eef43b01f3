package sqlite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// TestReadsInTurnUseOneConnection: reads that do not overlap use one connection and its cache, and
// those that do as many as there are of them, up to the limit.
func TestReadsInTurnUseOneConnection(t *testing.T) {
	t.Parallel()
	b, err := open(t.Context(), Config{Dir: t.TempDir(), Now: time.Now, Readers: 4})
	if err != nil {
		t.Fatal(err)
	}
	opened := func() (n int) { // none is in use
		for _, c := range b.readers.conns {
			if c.driver != nil {
				n++
			}
		}
		return n
	}
	sequential := func() {
		for range 10 {
			if err := b.Snapshot(t.Context(), func(dialect.Runner) error { return nil }); err != nil {
				t.Error(err)
			}
		}
	}
	if sequential(); opened() != 1 {
		t.Errorf("reads in turn opened %d connections", opened())
	}
	var reads, begun sync.WaitGroup
	begun.Add(3)
	for range 3 {
		reads.Go(func() {
			if err := b.Snapshot(t.Context(), func(dialect.Runner) error { begun.Done(); begun.Wait(); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	reads.Wait()
	if sequential(); opened() != 3 {
		t.Errorf("3 reads at once, and some in turn, opened %d connections", opened())
	}
	var taken []*conn
	for range 4 {
		c, err := b.readers.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, c)
	}
	brief, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if _, err := b.readers.acquire(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fifth of four: %v", err)
	}
	for _, c := range taken {
		b.readers.release(c)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Snapshot(t.Context(), nil); !errors.Is(err, dialect.ErrClosed) {
		t.Errorf("after it was closed: %v", err)
	}
}
