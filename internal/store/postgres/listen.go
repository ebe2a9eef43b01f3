// Listening for other servers' commits: a hint that arrives at once. Polling finds commits whose
// announcement was missed while disconnected.

package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	listenRetryMin = 50 * time.Millisecond
	listenRetryMax = 5 * time.Second
	// listenProbe is how long a connection may be silent before it is tested.
	listenProbe = 15 * time.Second
)

// Listen implements dialect.Backend. It uses a connection of its own.
func (b *backend) Listen(ctx context.Context, heard func(string, uint64)) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(listenRetryMin),
		backoff.WithMaxInterval(listenRetryMax),
		backoff.WithMaxElapsedTime(0))
	for {
		err := b.listenOnce(ctx, func(session string, cursor uint64) {
			wait.Reset()
			heard(session, cursor)
		})
		if ctx.Err() != nil {
			return nil
		}
		pause := wait.NextBackOff()
		b.log.Warn("the connection for notifications was lost; polling continues", "retry_in", pause, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (b *backend) listenOnce(ctx context.Context, heard func(string, uint64)) (err error) {
	config := b.pool.Config().ConnConfig
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		id, cursor, ok := parseNotification(n.Payload)
		if n.Channel == channel && ok {
			heard(id, cursor)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(end) // its error does not matter
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	heard("", 0) // earlier announcements were missed
	for {
		if err := b.waitNotification(ctx, conn); err != nil {
			return err
		}
	}
}

// waitNotification waits for an announcement, and tests the connection if none arrives.
func (b *backend) waitNotification(ctx context.Context, conn *pgx.Conn) error {
	quiet, cancel := context.WithTimeout(ctx, listenProbe)
	defer cancel()
	err := conn.PgConn().WaitForNotification(quiet)
	if err == nil || ctx.Err() != nil || quiet.Err() == nil || conn.IsClosed() {
		return err
	}
	probe, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return conn.Ping(probe)
}

// parseNotification parses an announcement.
func parseNotification(payload string) (session string, cursor uint64, ok bool) {
	session, text, found := strings.Cut(payload, " ")
	cursor, err := strconv.ParseUint(text, 10, 64)
	return session, cursor, found && err == nil && session != ""
}
