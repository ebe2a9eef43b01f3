package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// pooler is a connection to a pooler: what it says of its backend is its own.
type pooler struct{ net.Conn }

func (c pooler) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if _, key, ok := bytes.Cut(p[:n], []byte("K\x00\x00\x00\x0c")); ok && len(key) >= 8 { // BackendKeyData
		key[0] ^= 0x40
	}
	return n, err
}

// TestListeningThroughAPooler does not say by which backend: it is not its own, and a sender that goes by another's number
// would be taken for dead.
func TestListeningThroughAPooler(t *testing.T) {
	t.Parallel()
	for name, through := range map[string]func(net.Conn) net.Conn{
		"direct": func(c net.Conn) net.Conn { return c },
		"pooler": func(c net.Conn) net.Conn { return pooler{c} },
	} {
		cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
		if err != nil {
			t.Fatal(err)
		}
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return through(conn), err
		}
		pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		var pids []int64
		looks := 0
		ctx, cancel := context.WithCancel(t.Context())
		listen(ctx, pool, "box", time.Hour, func() {
			if looks++; looks == 2 { // the second is for what came before it listened
				cancel()
			}
		}, func(pid int64) { pids = append(pids, pid) })
		if counts := len(pids) > 0; counts != (name == "direct") || looks != 2 {
			t.Errorf("%s: %v, after %d looks", name, pids, looks)
		}
	}
}

// TestListenWhileNewsCome begins to listen again and again under a hail of
// notifications: whoever begins is never kept from hearing, or from ending, and does
// not look all the time.
func TestListenWhileNewsCome(t *testing.T) {
	t.Parallel()
	pool := new(pgxpool.Pool) // only a key
	l := &Listener{Pool: pool, Stop: func() {}, Ended: make(chan struct{}), subscribers: map[*subscription]struct{}{{Outbox: "another"}: {}}}
	close(l.Ended)
	Listeners.Lock()
	if Listeners.ByPool == nil {
		Listeners.ByPool = make(map[*pgxpool.Pool]*Listener)
	}
	Listeners.ByPool[pool] = l
	Listeners.Unlock()
	t.Cleanup(func() {
		Listeners.Lock()
		delete(Listeners.ByPool, pool)
		Listeners.Unlock()
	})
	hail, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for hail.Err() == nil {
			l.Notify("box")
		}
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		began, looks := time.Now(), 0
		ctx, cancel := context.WithCancel(context.Background())
		listen(ctx, pool, "box", time.Hour, func() {
			if looks++; looks == 5 {
				cancel()
			}
		}, func(int64) {})
		if took := time.Since(began); took < 4*debounce {
			t.Errorf("%d looks in %v", looks, took)
		}
		for range 5_000 {
			ctx, cancel := context.WithCancel(context.Background())
			listen(ctx, pool, "box", time.Hour, cancel, func(int64) {})
		}
	}()
	select {
	case <-over:
	case <-time.After(time.Minute):
		t.Error("it listens to nothing and does not end")
	}
	stop()
	<-stopped
}

// TestNotifiedSubscribers: those who wait for the outbox, however often, and nobody else.
func TestNotifiedSubscribers(t *testing.T) {
	t.Parallel()
	var waits []*subscription
	l := &Listener{subscribers: make(map[*subscription]struct{})}
	for _, outbox := range []string{"a", "b", "a"} {
		w := &subscription{Outbox: outbox, Wake: make(chan struct{}, 1)}
		waits = append(waits, w)
		l.subscribers[w] = struct{}{}
	}
	counts := func() (n [3]int) {
		for i, w := range waits {
			n[i] = len(w.Wake)
		}
		return n
	}
	l.Notify("c")
	if got := counts(); got != [3]int{} {
		t.Errorf("of another: %v", got)
	}
	l.Notify("a")
	l.Notify("a")
	if got := counts(); got != [3]int{1, 0, 1} {
		t.Errorf("of one: %v", got)
	}
	l.Notify("")
	if got := counts(); got != [3]int{1, 1, 1} {
		t.Errorf("of all: %v", got)
	}
}

// TestPoolsOfAProcess: one for each URL, for as long as somebody uses it, of as many
// connections as the URL says.
func TestPoolsOfAProcess(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	conns := 0
	get := func(param, value string) (*pgxpool.Pool, func()) {
		t.Helper()
		query := u.Query()
		query.Set("application_name", t.Name())
		query.Set(param, value)
		of := *u
		of.RawQuery = query.Encode()
		p, release, err := sharedPool(t.Context(), of.String(), conns, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return p.Pool, release
	}
	one, releaseOne := get("connect_timeout", "20")
	two, releaseTwo := get("connect_timeout", "20")
	few, releaseFew := get("pool_max_conns", "6")
	if one != two || one == few {
		t.Error("the pools are not those of their URLs")
	}
	conns = 6
	said, releaseSaid := get("pool_max_conns", "5")
	conns = 1
	least, releaseLeast := get("pool_max_conns", "7")
	for what, c := range map[string]struct { // beside the one that listens
		pool *pgxpool.Pool
		want int32
	}{"by default": {one, 3}, "of the URL": {few, 5}, "of the Config": {said, 5}, "at least": {least, 2}} {
		if cfg := c.pool.Config(); cfg.MaxConns != c.want || cfg.MaxConnIdleTime != connIdleTime || cfg.HealthCheckPeriod > connIdleTime {
			t.Errorf("%s: a pool of %d connections, idle for %s", what, cfg.MaxConns, cfg.MaxConnIdleTime)
		}
	}
	conns = 0
	releaseSaid()
	releaseLeast()
	releaseFew()
	releaseOne()
	releaseOne()
	if err := two.Ping(t.Context()); err != nil {
		t.Errorf("closed while it is used: %v", err)
	}
	releaseTwo()
	if err := two.Ping(t.Context()); err == nil {
		t.Error("it is open, and nobody uses it")
	}
	again, release := get("connect_timeout", "20")
	defer release()
	if err := again.Ping(t.Context()); err != nil {
		t.Errorf("one that was closed is used again: %v", err)
	}
}
