package pgtune

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgfault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
)

// sizedPool is a pool of most connections, and the changes of its size.
func sizedPool(t *testing.T, url string, most int32, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*AdaptivePool, func() []Size) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = most
	if dial != nil {
		cfg.ConnConfig.DialFunc = dial
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	var mu sync.Mutex
	var sizes []Size
	s := NewAdaptivePool(pool, func(size Size) {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, size)
	})
	t.Cleanup(s.Close)
	return s, func() []Size {
		mu.Lock()
		defer mu.Unlock()
		return append([]Size(nil), sizes...)
	}
}

// use has n callers at once use a connection each, some times.
func use(t *testing.T, s *AdaptivePool, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for range 3 {
				conn, release, err := s.Acquire(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := conn.Exec(ctx, "SELECT pg_sleep(0.001)"); err != nil {
					t.Error(err)
				}
				release()
			}
		})
	}
	all.Wait()
}

// TestAPoolOfFewerThanItMayHave uses what there is, says so once, and uses more when there is.
func TestAPoolOfFewerThanItMayHave(t *testing.T) {
	t.Parallel()
	const have = 2
	url, allow := pgtest.Role(t, pgtest.URL(t), have)
	s, changes := sizedPool(t, url, 8, nil)
	var releases []func()
	for range have { // one after the other: Postgres counts those that it is about to refuse
		_, release, err := s.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	for _, release := range releases {
		release()
	}
	use(t, s, 16)
	if got := changes(); len(got) != 1 || !got[0].Short || got[0].Have > have || got[0].Max != 8 {
		t.Errorf("the changes were %+v", got)
	}
	if size := s.Size(); size.Have > have || !size.Short {
		t.Errorf("it has %+v", size)
	}
	s.probe() // in vain
	use(t, s, 16)
	allow(-1)
	until.True(t, "it has more", func() bool {
		s.probe()
		use(t, s, 16)
		return !s.Size().Short
	})
	if got := changes(); len(got) != 2 || got[1].Short {
		t.Errorf("the changes were %+v", got)
	}
	use(t, s, 16)
}

// TestAPoolThatHangs: who asks for a connection that a pooler does not have waits for another's.
func TestAPoolThatHangs(t *testing.T) {
	t.Parallel()
	var dialed atomic.Int64
	s, changes := sizedPool(t, pgtest.URL(t), 4, func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Add(1) > 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	s.connectTimeout = time.Millisecond
	conn, release, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, release, err := s.Acquire(t.Context())
		if err == nil {
			release()
		}
		got <- err
	}()
	until.True(t, "it is said", func() bool { return len(changes()) == 1 })
	if err := conn.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if size := s.Size(); size.Have != 1 || !size.Short {
		t.Errorf("it has %+v", size)
	}
}

// TestAPoolWithoutAny fails at once, as every pool does.
func TestAPoolWithoutAny(t *testing.T) {
	t.Parallel()
	url, _ := pgtest.Role(t, pgtest.URL(t), 0)
	s, changes := sizedPool(t, url, 4, nil)
	for range 3 {
		if _, _, err := s.Acquire(t.Context()); pgfault.Of(err) != dbfault.NoConnection {
			t.Errorf("%v", err)
		}
	}
	if len(changes()) != 0 || s.unusedSlots != 0 {
		t.Errorf("the changes were %+v, lost %d", changes(), s.unusedSlots)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Acquire(ended); err == nil {
		t.Error("a caller that gave up gets one")
	}
}
