// What is said while nothing can be committed.

package operator

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/admission"
)

// linesOf are what a log says of an outage, without times.
func linesOf(log string) (lines []string) {
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

// stopped says by what the metric has commits stopped.
func stopped(t *testing.T, seen *admission.Instruments) (by []string) {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(seen.Stopped)
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
		do     func(o *Outage) // at the start
		during func(o *Outage) // within each probe
		room   []uint64        // on the disk, as it is looked at one time after the other; then enough
		stands []dbfault.Cause // half a second after each probe
		bytes  []int           // of the probes
		lines  []string        // of the log in the end
	}{
		"a hiccup": {
			do: func(o *Outage) { o.RecordFailure(fails(away), 10) }, stands: []dbfault.Cause{""}, bytes: []int{0},
		},
		"a database away": {
			probes: []error{fails(away), fails(away)}, stands: []dbfault.Cause{away, away, ""}, bytes: []int{0, 0, 0},
			do:    func(o *Outage) { o.RecordFailure(fails(away), 10); o.RecordFailure(fails(late), 10) },
			lines: []string{"begins away 2", "ends away 2"},
		},
		"a full disk, that others' small commits do not end": {
			probes: []error{fails(full)}, stands: []dbfault.Cause{full, ""}, bytes: []int{1 << 20, 1 << 20},
			do:     func(o *Outage) { o.RecordFailure(fails(full), 10) },
			during: func(o *Outage) { o.RecordSuccess() },
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
			do:    func(o *Outage) { o.RecordFailure(fails(full), 3<<20); o.RecordFailure(fails(full), 10) },
			lines: []string{"begins disk_full 2", "ends disk_full 2"},
		},
		"larger than a probe may be": {
			bytes: []int{16 << 20}, stands: []dbfault.Cause{""}, do: func(o *Outage) { o.RecordFailure(fails(full), 1<<30) },
		},
		"a full disk and then no database": {
			probes: []error{fails(full), fails(away), fails(full), fails(away)}, stands: []dbfault.Cause{full, away, full, away, ""},
			bytes: []int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, do: func(o *Outage) { o.RecordFailure(fails(full), 10) },
			lines: []string{"begins disk_full 1", "begins away 1", "ends away 1"},
		},
		"a slow transaction, while others commit": {
			probes: []error{fails(late), fails(late)}, stands: []dbfault.Cause{"", ""}, bytes: []int{0, 0},
			do:     func(o *Outage) { o.Suspect(late) },
			during: func(o *Outage) { o.RecordSuccess() },
		},
		"a slow transaction that commits, and then nothing": {
			probes: []error{fails(locked), fails(locked)}, stands: []dbfault.Cause{"", locked, ""}, bytes: []int{0, 0, 0},
			do:    func(o *Outage) { o.Suspect(late); o.RecordSuccess() },
			lines: []string{"begins locked 0", "ends locked 0"},
		},
		"a slow transaction, and nothing commits": {
			probes: []error{fails(locked)}, stands: []dbfault.Cause{locked, ""}, bytes: []int{0, 0},
			do:    func(o *Outage) { o.RecordSuccess(); o.Suspect(late) },
			lines: []string{"begins locked 0", "ends locked 0"},
		},
		"a probe that fails in a way of its own": {
			probes: []error{errors.New("a defect")}, stands: []dbfault.Cause{readOnly, ""}, bytes: []int{0, 0},
			do:    func(o *Outage) { o.RecordFailure(fails(readOnly), 0) },
			lines: []string{"begins read_only 1", "ends read_only 1"},
		},
		"what is no fault of the database's": {
			do: func(o *Outage) {
				o.RecordFailure(fault.QuotaExceeded.With("full"), 10)
				o.RecordFailure(fault.ContextError(context.Canceled, nil), 10)
				o.RecordFailure(errors.New("a defect"), 10)
				o.RecordFailure(nil, 10)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log lockbuf.Buffer
				seen := admission.NewInstruments()
				o := NewOutage(ProbeConfig{Interval: time.Second, Timeout: 5 * time.Second, SlowCommit: 2 * time.Second},
					slog.New(slog.NewTextHandler(&log, nil)), seen)
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
				if cause, _, _ := o.Current(); cause != dbfault.None {
					t.Errorf("%s stands before there was a probe", cause)
				}
				for i, want := range story.stands {
					select {
					case <-probed:
					case <-time.After(time.Hour):
						t.Fatalf("there is no probe %d", i)
					}
					synctest.Wait()
					cause, why, since := o.Current()
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
				if got := linesOf(log.String()); !slices.Equal(got, story.lines) {
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
