//go:build unix

// What is said while nothing can be committed.

package objects

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// outageLines are what a log says of an outage, without times.
func outageLines(log string) (lines []string) {
	for line := range strings.Lines(log) {
		for what, short := range map[string]string{"nothing can be committed": "begins", "commits succeed again": "ends"} {
			if _, rest, ok := strings.Cut(line, what); ok {
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

// stopped says by what the metric has commits stopped.
func stopped(t *testing.T, seen *instruments) (by []string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(seen.stopped)
	families, err := reg.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if m.GetGauge().GetValue() == 1 {
				by = append(by, m.GetLabel()[0].GetValue())
			}
		}
	}
	return by
}

func TestAnOutageIsFromTheFirstProbeThatFailsUntilOneSucceeds(t *testing.T) {
	fails := func(c dbfault.Cause) error { return c.Fault(errors.New("as the driver has it"), "in our words") }
	const full, away, locked, late, readOnly = dbfault.DiskFull, dbfault.Unreachable, dbfault.Locked, dbfault.Timeout, dbfault.ReadOnly
	for name, story := range map[string]struct {
		probes []error         // what they come to, one after the other; all after them succeed
		do     func(o *outage) // at the start
		during func(o *outage) // within each probe
		room   []uint64        // on the disk, as it is looked at one time after the other; then enough
		stands []dbfault.Cause // half a second after each probe
		bytes  []int           // of the probes
		lines  []string        // of the log in the end
	}{
		"a hiccup": {
			do: func(o *outage) { o.recordFailure(fails(away), 10) }, stands: []dbfault.Cause{""}, bytes: []int{0},
		},
		"a database away": {
			probes: []error{fails(away), fails(away)}, stands: []dbfault.Cause{away, away, ""}, bytes: []int{0, 0, 0},
			do:    func(o *outage) { o.recordFailure(fails(away), 10); o.recordFailure(fails(late), 10) },
			lines: []string{"begins away 2", "ends away 2"},
		},
		"a full disk, that others' small commits do not end": {
			probes: []error{fails(full)}, stands: []dbfault.Cause{full, ""}, bytes: []int{1 << 20, 1 << 20},
			do:     func(o *outage) { o.recordFailure(fails(full), 10) },
			during: func(o *outage) { o.recordSuccess() },
			lines:  []string{"begins disk_full 1", "ends disk_full 1"},
		},
		"a full disk, while nobody commits anything": {
			room: []uint64{minFreeSpace, minFreeSpace - 1}, probes: []error{fails(full), fails(full)}, stands: []dbfault.Cause{full, full, ""},
			bytes: []int{1 << 20, 1 << 20, 1 << 20}, lines: []string{"begins disk_full 0", "ends disk_full 0"},
		},
		"little room, but enough": {
			room: []uint64{0}, stands: []dbfault.Cause{""}, bytes: []int{1 << 20},
		},
		"no room for something large": {
			probes: []error{fails(full)}, stands: []dbfault.Cause{full, ""}, bytes: []int{3 << 20, 3 << 20},
			do:    func(o *outage) { o.recordFailure(fails(full), 3<<20); o.recordFailure(fails(full), 10) },
			lines: []string{"begins disk_full 2", "ends disk_full 2"},
		},
		"larger than a probe may be": {
			bytes: []int{16 << 20}, stands: []dbfault.Cause{""}, do: func(o *outage) { o.recordFailure(fails(full), 1<<30) },
		},
		"a full disk and then no database": {
			probes: []error{fails(full), fails(away), fails(full), fails(away)}, stands: []dbfault.Cause{full, away, full, away, ""},
			bytes: []int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, do: func(o *outage) { o.recordFailure(fails(full), 10) },
			lines: []string{"begins disk_full 1", "begins away 1", "ends away 1"},
		},
		"a slow transaction, while others commit": {
			probes: []error{fails(late)}, stands: []dbfault.Cause{""}, bytes: []int{0},
			do:     func(o *outage) { o.suspect(late) },
			during: func(o *outage) { o.recordSuccess() },
		},
		"a slow transaction, and nothing commits": {
			probes: []error{fails(locked)}, stands: []dbfault.Cause{locked, ""}, bytes: []int{0, 0},
			do:    func(o *outage) { o.recordSuccess(); o.suspect(late) },
			lines: []string{"begins locked 0", "ends locked 0"},
		},
		"a probe that fails in a way of its own": {
			probes: []error{errors.New("a defect")}, stands: []dbfault.Cause{readOnly, ""}, bytes: []int{0, 0},
			do:    func(o *outage) { o.recordFailure(fails(readOnly), 0) },
			lines: []string{"begins read_only 1", "ends read_only 1"},
		},
		"what is no fault of the database's": {
			do: func(o *outage) {
				o.recordFailure(fault.QuotaExceeded.With("full"), 10)
				o.recordFailure(fault.ContextError(context.Canceled, nil), 10)
				o.recordFailure(errors.New("a defect"), 10)
				o.recordFailure(nil, 10)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lockbuf.Buffer
				seen := newInstruments()
				cfg := DefaultConfig()
				logInto(&log)(&cfg)
				o := newOutage(cfg, seen)
				var bytes []int
				probed := make(chan struct{})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					o.watch(ctx, func(_ context.Context, n int) (err error) {
						if story.during != nil {
							story.during(o)
						}
						if len(bytes) < len(story.probes) {
							err = story.probes[len(bytes)]
						}
						bytes = append(bytes, n)
						probed <- struct{}{}
						return err
					}, func() (left uint64, known bool) {
						if len(story.room) == 0 {
							return 0, false
						}
						left = story.room[0]
						story.room = append(story.room[1:], minFreeSpace)
						return left, true
					})
				}()
				if story.do != nil {
					story.do(o)
				}
				if cause, _, _ := o.current(); cause != dbfault.None {
					t.Errorf("%s stands before there was a probe", cause)
				}
				for i, want := range story.stands {
					select {
					case <-probed:
					case <-time.After(time.Hour):
						t.Fatalf("there is no probe %d", i)
					}
					synctest.Wait()
					cause, why, since := o.current()
					if cause != want || (why == "") != (want == "") {
						t.Errorf("after probe %d: %q (%s), want %q", i, cause, why, want)
					}
					if want != "" && (time.Since(since) < 900*time.Millisecond || !slices.Equal(stopped(t, seen), []string{string(want)})) {
						t.Errorf("after probe %d: since %s, the metric has %v", i, since, stopped(t, seen))
					}
				}
				select {
				case <-probed:
					t.Error("it is probed when that is over")
				case <-time.After(time.Hour):
				}
				if by := stopped(t, seen); len(by) > 0 {
					t.Errorf("in the end the metric has %v", by)
				}
				if got := outageLines(log.String()); !slices.Equal(got, story.lines) {
					t.Errorf("the log:\n%q, want\n%q\n%s", got, story.lines, log.String())
				}
				if !slices.Equal(bytes, story.bytes) {
					t.Errorf("probes of %v, want %v", bytes, story.bytes)
				}
				stop()
				<-ended
			})
		})
	}
}

// logInto has a server's log in a buffer.
func logInto(log *lockbuf.Buffer) func(*Config) {
	return func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) }
}

// hasty is logInto of one that notices an outage soon.
func hasty(log *lockbuf.Buffer) func(*Config) {
	return func(c *Config) {
		logInto(log)(c)
		c.probe = probeConfig{interval: 20 * time.Millisecond, timeout: time.Second, slowCommit: 20 * time.Millisecond}
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
	begins := fmt.Sprintf("\"nothing can be committed: not ready until that is over\" cause=%s failed=", cause)
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
