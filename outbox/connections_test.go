package outbox

// How many connections a process has to a Postgres, and for how long.

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/outbox/internal/postgres"
)

// named gives a database's URL connections that can be counted.
func named(t *testing.T, at, name string, params ...string) (with string, count func() int) {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("application_name", name)
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	u.RawQuery = query.Encode()
	conn, err := pgx.Connect(limited(t), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return u.String(), func() (n int) {
		t.Helper()
		if err := conn.QueryRow(limited(t), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", name).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// TestWaitersHoldNoConnection: however many wait, and whoever sends, a process has four at
// most, and those that nobody uses are closed.
func TestWaitersHoldNoConnection(t *testing.T) {
	t.Parallel()
	at, count := named(t, pgtest.URL(t), t.Name(), "pool_max_conn_idle_time", "1h")
	p := place{"postgres", at, "box"}
	b, other := p.open(t, quick()), p.open(t, quick()) // in one process, as their URL is one
	srv := newFakeServer()
	session := withSession(t, b)
	const tickets = 64
	ended := make(chan error, tickets)
	for range tickets {
		x := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}})
		go func() {
			_, err := other.Wait(limited(t), x.Batch)
			ended <- err
		}()
	}
	few := func() { // one that was closed just now may be counted beside the one in its place
		t.Helper()
		eventually(t, "there are at most four connections", func() bool { return count() <= 4 })
	}
	looks := 0
	eventually(t, "all have waited for long", func() bool {
		few()
		looks++
		return other.hub.Waiting() == tickets && looks > 200
	})
	run(t, b, srv)
	for range tickets {
		if err := <-ended; err != nil {
			t.Error(err)
		}
		few()
	}
}

// TestFewerConnectionsThanThePool: a role that has fewer than the pool may use fails no verb, and that is said.
func TestFewerConnectionsThanThePool(t *testing.T) {
	t.Parallel()
	role, _ := pgtest.Role(t, pgtest.URL(t), 3)
	u, err := url.Parse(role)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("pool_max_conn_idle_time", "1h")
	u.RawQuery = query.Encode()
	cfg := quick()
	var log lockbuf.Buffer
	cfg.Connections, cfg.Logger = 12, slog.New(slog.NewTextHandler(&log, nil))
	b := place{"postgres", u.String(), "box"}.open(t, cfg)
	session := withSession(t, b)
	run(t, b, newFakeServer())
	until.True(t, "one listens", func() bool {
		postgres.Listeners.Lock()
		defer postgres.Listeners.Unlock()
		l := postgres.Listeners.ByPool[b.db.(*postgres.DB).Pool]
		return l != nil && l.PID.Load() != 0
	})
	commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}) // so there is another
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for range 3 {
				x, err := b.Commit(limited(t), Batch{Session: session, Ops: []Op{put("1")}})
				if err == nil {
					_, err = b.Wait(limited(t), x.Batch)
				}
				_, looked := b.List(limited(t), Filter{})
				if err := errors.Join(err, looked); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if !strings.Contains(log.String(), "fewer connections") {
		t.Errorf("said %s", log.String())
	}
}

// TestIdleConnectionsGoBack: nothing is left of what nobody uses.
func TestIdleConnectionsGoBack(t *testing.T) {
	t.Parallel()
	at, count := named(t, pgtest.URL(t), t.Name(), "pool_max_conn_idle_time", "10ms")
	b := place{"postgres", at, "box"}.open(t, quick())
	withSession(t, b)
	eventually(t, "it has none", func() bool { return count() == 0 })
	withSession(t, b)
}

// TestOneLookForAllWhoWait: what is asked of the database does not grow with those who wait.
func TestOneLookForAllWhoWait(t *testing.T) {
	both(t, func(t *testing.T, p place) {
		b := p.open(t, quick())
		session := withSession(t, b)
		ctx := limited(t)
		one, two := commit(t, b, Batch{Session: session, Ops: []Op{put("1")}}), commit(t, b, Batch{Session: session, Ops: []Op{put("2")}})
		ids := map[string]struct{}{one.Batch: {}, two.Batch: {}, "none": {}}
		look := func(want ...string) {
			t.Helper()
			got, err := b.unfinishedOf(ids)
			if err != nil || len(got) != len(want) {
				t.Fatalf("%v, %v; want %v", got, err, want)
			}
			for _, id := range want {
				if _, waits := got[id]; !waits {
					t.Errorf("%v; want %s", got, id)
				}
			}
		}
		look(one.Batch, two.Batch)
		if err := b.Drop(ctx, one.Ops[0]); err != nil {
			t.Fatal(err)
		}
		look(two.Batch)

		statements := 0
		useDB(b, hookedDB{b.db, func(string) { statements++ }})
		look(two.Batch)
		if statements > 3 {
			t.Errorf("found out with %d statements", statements)
		}
		standStill(t, b, session)
		look() // each finds out for itself
	})
}
