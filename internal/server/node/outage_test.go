//go:build unix

// What is said while nothing can be committed.

package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// outageLines are what a log says of an outage, without times.
func outageLines(log string) (lines []string) {
	for line := range strings.Lines(log) {
		for label, short := range map[string]string{"nothing can be committed": "begins", "commits succeed again": "ends"} {
			if _, rest, ok := strings.Cut(line, label); ok {
				_, rest, _ = strings.Cut(rest, "cause=")
				cause, _, _ := strings.Cut(rest, " ")
				_, failed, _ := strings.Cut(rest, "failed=")
				failed, _, _ = strings.Cut(strings.TrimSpace(failed), " ")
				lines = append(lines, short+" "+cause+" "+failed)
			}
		}
	}
	return lines
}

// logInto has a server's log in a buffer.
func logInto(log *lockbuf.Buffer) func(*Config) {
	return func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) }
}

// hasty is logInto of one that notices an outage soon.
func hasty(log *lockbuf.Buffer) func(*Config) {
	return func(c *Config) {
		logInto(log)(c)
		c.probe = operator.ProbeConfig{Interval: 20 * time.Millisecond, Timeout: time.Second, SlowCommit: 20 * time.Millisecond}
	}
}

// outageOf waits until a server says that nothing can be committed, and then that it can.
func outageOf(t *testing.T, r *rig, log *lockbuf.Buffer, cause dbfault.Cause, over func()) {
	t.Helper()
	web, gauge := httpOf(t, r), fmt.Sprintf("mooring_commits_stopped{cause=%q}", cause)
	until.True(t, "readyz says why", func() bool {
		status, text := get(t, web+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "("+string(cause)+")")
	})
	until.True(t, "the metric says so", func() bool { return r.metric(gauge) == "1" })
	over()
	until.True(t, "readyz says that it is over", func() bool {
		status, _ := get(t, web+"/readyz")
		return status == http.StatusOK
	})
	until.True(t, "the metric does", func() bool { return r.metric(gauge) == "0" })
	begins := fmt.Sprintf("\"nothing can be committed: not ready until it can\" cause=%s failed=", cause)
	if _, after, ok := strings.Cut(log.String(), begins); !ok || !strings.Contains(after, "commits succeed again") {
		t.Errorf("the log says:\n%s", log.String())
	}
	if strings.Contains(log.String(), "not ready\"") {
		t.Errorf("the log says more than once that it is not ready:\n%s", log.String())
	}
}

// A database that nothing reaches: nobody needs to commit anything for that to be seen.
func TestOutageOfADatabaseAway(t *testing.T) {
	t.Parallel()
	proxy, url := pgtest.ViaProxy(t, teststore.PostgresURL(t))
	var log lockbuf.Buffer
	r := start(t, postgresStore(t, url), hasty(&log))
	proxy.Refuse(true)
	proxy.Cut()
	outageOf(t, r, &log, dbfault.Unreachable, func() { proxy.Refuse(false) })
	p := r.dial()
	m := r.create(p)
	if ack := p.must(m.stream, m.batch(put(1))); ack.applied != 1 {
		t.Errorf("%+v", ack)
	}
}

// What holds up every transaction is noticed long before the first of them fails.
func TestOutageOfALockedDatabase(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(t *testing.T) (st Store, cause dbfault.Cause, hold func(t *testing.T) (release func())){
		"sqlite": func(t *testing.T) (Store, dbfault.Cause, func(t *testing.T) func()) {
			st := sqliteStore(t)
			return st, dbfault.Timeout, func(t *testing.T) func() { return holdWriter(t, st) }
		},
		"postgres": func(t *testing.T) (Store, dbfault.Cause, func(t *testing.T) func()) {
			url := teststore.PostgresURL(t)
			return postgresStore(t, url), dbfault.Locked, func(t *testing.T) func() { return lockTable(t, url, "events") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, cause, hold := lock(t)
			var log lockbuf.Buffer
			r := start(t, st, func(c *Config) {
				hasty(&log)(c)
				c.CommitTimeout, c.SweepInterval, c.AuditWindow = time.Hour, time.Hour, time.Hour // nothing fails, and nothing else writes
			})
			p := r.dial()
			m := r.create(p)
			release := hold(t)
			flying := applying(t, m.stream, m.batch(put(1)))
			outageOf(t, r, &log, cause, release)
			if ack := readReply(t, flying); ack.applied != 1 && ack.refusal == nil {
				t.Errorf("%+v", ack)
			}
		})
	}
}

// lockTable has a table that nobody can write to, until release.
func lockTable(t *testing.T, url, table string) (release func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE "+table+" IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.Exec(context.Background(), "ROLLBACK"); err != nil {
			t.Error(err)
		}
	}
}
