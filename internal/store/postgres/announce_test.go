package postgres

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/pgtune"
)

// failureHandler is a log handler that tells of every line.
type failureHandler struct {
	slog.Handler
	lines chan<- struct{}
}

func (h failureHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h failureHandler) Handle(context.Context, slog.Record) error {
	h.lines <- struct{}{}
	return nil
}

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
	failed := make(chan struct{}, 100)
	b := &backend{pool: pool, sizedPool: pgtune.NewAdaptivePool(pool, nil), log: slog.New(failureHandler{slog.DiscardHandler, failed}), announcer: newAnnouncer()}
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
	b.Announce(map[string]uint64{"ses_1": 6})
	select {
	case <-failed:
	case <-time.After(testTimeout):
		t.Fatal("announced without a connection")
	}
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
