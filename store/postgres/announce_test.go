package postgres

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// TestAnnounceAgain: what cannot be announced, since the database or its
// connections are busy, is announced when it can.
func TestAnnounceAgain(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	conf, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	conf.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{pool: pool, log: slog.New(slog.DiscardHandler), announcer: newAnnouncer()}
	type word struct {
		session string
		cursor  uint64
	}
	heard := make(chan word, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Listen(ctx, func(id string, cursor uint64) { heard <- word{id, cursor} }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got := <-heard; got != (word{}) {
		t.Fatalf("heard %+v", got)
	}

	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Announce(map[string]uint64{"ses_1": 5})
	go b.announce()
	time.Sleep(2 * announceTimeout / 3)
	b.Announce(map[string]uint64{"ses_1": 6})
	time.Sleep(2 * announceTimeout / 3) // it has failed once
	only.Release()
	select {
	case got := <-heard:
		if got != (word{"ses_1", 6}) {
			t.Errorf("heard %+v", got)
		}
	case <-time.After(testTimeout):
		t.Fatal("heard nothing")
	}
}
