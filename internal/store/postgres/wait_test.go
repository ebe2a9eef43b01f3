package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/stmtfault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/until"
)

// TestOpenWaitsForAConnection: while there is none for it, that is said once, and as often that
// it goes on.
func TestOpenWaitsForAConnection(t *testing.T) {
	t.Parallel()
	url, allow := pgtest.Role(t, pgtest.URL(t), 0)
	if _, err := Open(t.Context(), Config{URL: url}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("without waiting: %v", err)
	}
	var log lockbuf.Buffer
	opened := make(chan *store.Store, 1)
	go func() {
		st, err := Open(t.Context(), Config{URL: url, MaxConns: 3, Wait: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Error(err)
		}
		opened <- st
	}()
	until.True(t, "it says that it waits", func() bool { return strings.Contains(log.String(), "waiting for a connection") })
	if len(opened) > 0 {
		t.Error("it does not wait")
	}
	allow(-1)
	st := <-opened
	if st == nil {
		return
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
	text := log.String()
	if strings.Count(text, "waiting for a connection") != 1 || strings.Count(text, "available again") != 1 {
		t.Errorf("said %s", text)
	}

	allow(0)
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if st, err := Open(ctx, Config{URL: url, Wait: true, Log: slog.New(slog.DiscardHandler)}); err == nil || st != nil {
		t.Errorf("it waits longer than it may: %v", err)
	}
}

// TestASilentPoolerIsSaid: one that has no connection left refuses nothing, and lets one wait.
func TestASilentPoolerIsSaid(t *testing.T) {
	t.Parallel()
	var log lockbuf.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	broken := errors.New("broken")
	for _, end := range []error{nil, broken} {
		_, err := waitFor(t.Context(), logger, 0, func() (*store.Store, error) {
			until.True(t, "it says that it waits", func() bool { return strings.Contains(log.String(), "no answer yet") })
			return nil, end
		})
		if goes := strings.Contains(log.String(), "available again"); !errors.Is(err, end) || goes != (end == nil) {
			t.Errorf("%v: %v, said %s", end, err, log.String())
		}
		log = lockbuf.Buffer{}
	}
}

// TestFewerConnectionsThanThePool: a role that has fewer than the pool may use fails no request,
// and that is said once.
func TestFewerConnectionsThanThePool(t *testing.T) {
	t.Parallel()
	url, _ := pgtest.Role(t, pgtest.URL(t), 2)
	var log lockbuf.Buffer
	st, err := Open(t.Context(), Config{URL: url, MaxConns: 8, Wait: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	together(t, st, 32)
	have, most, short := st.PoolStats()
	if have > 2 || most != 8 || !short || strings.Count(log.String(), "fewer connections") != 1 {
		t.Errorf("%d of %d connections (%t), said %s", have, most, short, log.String())
	}
}

// together has so many requests need a connection at once.
func together(t *testing.T, st *store.Store, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for range 3 {
				if err := st.Ping(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestReserved: connections are kept that nobody uses.
func TestReserved(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conn := admin(t, url)
	s, err := Open(t.Context(), Config{URL: url, MaxConns: 3, Reserve: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	until.True(t, "it has them all", func() bool { return connections(t, conn) == 3 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// connections counts the others of a connection's database.
func connections(t *testing.T, conn *pgx.Conn) (n int) {
	t.Helper()
	err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOpenWaitsForADatabase that answers, and is not there yet. Each reason is said once.
func TestOpenWaitsForADatabase(t *testing.T) {
	t.Parallel()
	proxy := stmtfault.Postgres(t, pgtest.URL(t), nil)
	starting := &stmtfault.Failure{State: "57P03", Fatal: true}
	proxy.Refuse(starting)
	if _, err := Open(t.Context(), Config{URL: proxy.URL()}); fault.CodeOf(err) != fault.Unavailable {
		t.Errorf("without waiting: %v", err)
	}
	var log lockbuf.Buffer
	opened := make(chan *store.Store, 1)
	go func() {
		st, err := Open(t.Context(), Config{URL: proxy.URL(), Wait: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Error(err)
		}
		opened <- st
	}()
	for _, c := range []struct {
		refused *stmtfault.Failure
		onwards stmtfault.Failure // of what it does next
		words   string
	}{
		{starting, stmtfault.Failure{}, waitMessages[dbfault.Unreachable]},
		{&stmtfault.Failure{State: "53300", Fatal: true}, stmtfault.Failure{}, waitMessages[dbfault.NoConnection]},
		{nil, stmtfault.Failure{State: "25006"}, waitMessages[dbfault.ReadOnly]},
		{nil, stmtfault.Failure{State: "57P01", Fatal: true}, waitMessages[dbfault.Unreachable]},
	} {
		before := strings.Count(log.String(), c.words)
		if c.refused == starting {
			before = 0 // it may have been said by now
		}
		proxy.Fail(1, true, c.onwards)
		proxy.Refuse(c.refused)
		until.True(t, c.words, func() bool { return strings.Count(log.String(), c.words) > before })
	}
	if len(opened) > 0 {
		t.Error("it does not wait")
	}
	proxy.Refuse(nil)
	proxy.Fail(0, false, stmtfault.Failure{})
	st := <-opened
	if st == nil {
		return
	}
	if err := errors.Join(st.Ping(t.Context()), st.Close()); err != nil {
		t.Error(err)
	}
	text := log.String()
	if n, on := strings.Count(text, "waiting for"), strings.Count(text, "available again"); n != 4 || on != 1 {
		t.Errorf("said %d and %d times: %s", n, on, text)
	}
}

// TestWrongSettingsEndTheServer has a server end where somebody is mistaken.
func TestWrongSettingsEndTheServer(t *testing.T) {
	t.Parallel()
	link := dbfault.Unreachable.Fault(io.EOF, "the link")
	refused := func(state string) error {
		return translate(t.Context(), fmt.Errorf("connect: %w", &pgconn.PgError{Code: state}))
	}
	for _, c := range []struct {
		err      error
		answered bool
		want     dbfault.Cause
	}{
		{nil, true, dbfault.None}, {errors.New("unknown"), true, dbfault.None}, {link, false, dbfault.None}, {link, true, dbfault.Unreachable},
		{refused("57P01"), false, dbfault.Unreachable}, {refused("53300"), false, dbfault.NoConnection}, {refused("25006"), false, dbfault.ReadOnly},
		{refused("28P01"), true, dbfault.None}, {refused("3D000"), true, dbfault.None}, {refused("XX001"), true, dbfault.None},
		{fault.UnsafeStore.With("off"), true, dbfault.None}, {dbfault.ReadOnly.Fault(errRecovering, "a standby"), false, dbfault.ReadOnly},
	} {
		if got := retryCause(c.err, c.answered); got != c.want {
			t.Errorf("%v, %t: %q, want %q", c.err, c.answered, got, c.want)
		}
	}
}
