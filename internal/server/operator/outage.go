// Outages: causes that keep commits from succeeding for more than a moment, such as a full disk,
// or a database that is unavailable, read-only or locked. /readyz, the log and a metric report
// one from its detection until it is over. A failure of one batch, or of one session's quota, is
// not an outage: others commit.

package operator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/server/admission"
)

const (
	// Bytes of a probe after a disk was full: a small one may still find room.
	minProbeBytes = 1 << 20
	maxProbeBytes = 16 << 20

	// Below minFreeSpace bytes the disk may be full. That is checked every freeSpaceInterval:
	// while nobody commits, nothing else reveals it.
	minFreeSpace      = 4 << 20
	freeSpaceInterval = 5 * time.Second
)

// ProbeConfig configures the probes.
type ProbeConfig struct {
	Interval   time.Duration // from a failure to the first probe, and to the next
	Timeout    time.Duration // of one probe; then it has failed
	SlowCommit time.Duration // a transaction that takes longer makes an outage suspected
}

// Outage tracks whether the server's commits succeed. An outage is suspected when a commit fails,
// or takes long. It is then probed with commits of its own, and lasts from the first probe that
// fails until one succeeds. It is safe for concurrent use.
type Outage struct {
	probe       ProbeConfig
	log         *slog.Logger
	instruments *admission.Instruments
	wake        chan struct{} // an outage has become suspected

	mu           sync.Mutex
	suspectCause dbfault.Cause          // why a commit failed; None if no probe is due
	cause        dbfault.Cause          // why the last probe failed; None unless there is an outage
	reason       string                 // the cause in words
	logged       map[dbfault.Cause]bool // causes logged already
	since        time.Time              // of the first failure
	failed       int                    // transactions
	committed    int                    // transactions that wrote something, since the last probe
	repeated     bool                   // the next probe follows one that failed while others committed
	bytes        int                    // of the largest transaction that a disk had no room for
}

// NewOutage returns an outage that has not begun.
func NewOutage(probe ProbeConfig, log *slog.Logger, seen *admission.Instruments) *Outage {
	return &Outage{probe: probe, log: log, instruments: seen, wake: make(chan struct{}, 1)}
}

// Suspect records that commits may be failing for cause; None is ignored.
func (o *Outage) Suspect(cause dbfault.Cause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectLocked(cause)
}

// suspectLocked is Suspect with mu held.
func (o *Outage) suspectLocked(cause dbfault.Cause) {
	if cause == dbfault.None || o.suspectCause != dbfault.None {
		return
	}
	o.suspectCause, o.since, o.committed = cause, time.Now(), 0
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// RecordFailure counts a transaction that failed, if the database was the cause. bytes is its
// size, 0 if that is not known.
func (o *Outage) RecordFailure(err error, bytes int) {
	cause := dbfault.Of(err)
	if cause == dbfault.None {
		return
	}
	o.instruments.Failures.WithLabelValues(string(cause)).Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectLocked(cause)
	o.failed++
	if cause == dbfault.DiskFull {
		o.bytes = max(o.bytes, min(max(bytes, minProbeBytes), maxProbeBytes))
	}
}

// RecordSuccess counts a transaction that was committed and wrote something.
func (o *Outage) RecordSuccess() {
	o.mu.Lock()
	o.committed++
	o.mu.Unlock()
}

// Current returns the cause of the outage, dbfault.None if there is none.
func (o *Outage) Current() (cause dbfault.Cause, why string, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause, o.reason, o.since
}

// Warn logs that something was not done; at debug level if the current outage explains it.
func (o *Outage) Warn(label string, err error) {
	level := slog.LevelWarn
	if cause, _, _ := o.Current(); cause != dbfault.None && dbfault.Of(err) != dbfault.None {
		level = slog.LevelDebug
	}
	o.log.Log(context.Background(), level, label, "error", err)
}

// probeDue reports whether a probe is due, and its size in bytes.
func (o *Outage) probeDue() (due bool, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.suspectCause != dbfault.None, o.bytes
}

// recordProbe handles the result of a probe.
func (o *Outage) recordProbe(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	others := o.committed
	o.committed = 0
	if err == nil {
		o.end()
		return
	}
	if others > 0 && o.bytes == 0 { // on a nearly full disk, small commits may succeed
		if o.cause != dbfault.None || o.repeated {
			o.end()
		}
		o.repeated = o.suspectCause != dbfault.None // they may have been committed before what the probe met began
		return
	}
	cause := dbfault.Of(err)
	if cause == dbfault.None { // the probe itself may have failed for another reason
		cause = o.suspectCause
	}
	if o.cause != dbfault.None {
		o.instruments.Stopped.WithLabelValues(string(o.cause)).Set(0)
	}
	o.cause, o.reason = cause, fault.From(o.log, err, "commit").Message
	o.instruments.Stopped.WithLabelValues(string(cause)).Set(1)
	if o.logged == nil {
		o.logged = map[dbfault.Cause]bool{}
	}
	if !o.logged[cause] {
		o.logged[cause] = true
		o.log.Error("nothing can be committed: not ready until it can", "cause", string(cause), "failed", o.failed, "error", err)
	}
}

// end ends the outage, or the suspicion. mu is held.
func (o *Outage) end() {
	if o.cause != dbfault.None {
		o.instruments.Stopped.WithLabelValues(string(o.cause)).Set(0)
		o.log.Info("commits succeed again", "cause", string(o.cause), "after", time.Since(o.since).Round(time.Millisecond), "failed", o.failed)
	}
	o.suspectCause, o.cause, o.reason, o.logged, o.failed, o.bytes, o.repeated = dbfault.None, dbfault.None, "", nil, 0, 0, false
}

// lowOnSpace suspects a full disk.
func (o *Outage) lowOnSpace() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectLocked(dbfault.DiskFull)
	o.bytes = max(o.bytes, minProbeBytes)
}

// watch probes while an outage is suspected, until ctx ends; room returns the disk's free space.
func (o *Outage) watch(ctx context.Context, probe func(ctx context.Context, bytes int) error, free func() (bytes uint64, known bool)) {
	for {
		due, bytes := o.probeDue()
		pause := freeSpaceInterval
		if due {
			pause = o.probe.Interval
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			continue
		case <-time.After(periodic.Jitter(pause)):
		}
		if !due {
			if left, known := free(); known && left < minFreeSpace {
				o.lowOnSpace()
			}
			continue
		}
		once, cancel := context.WithTimeout(ctx, o.probe.Timeout)
		err := probe(once, bytes)
		cancel()
		if ctx.Err() != nil {
			return
		}
		o.recordProbe(err)
	}
}
