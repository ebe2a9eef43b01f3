// Outages: what keeps commits from succeeding for more than a moment, a full disk, say, or a
// database that is away, takes no writes or is locked. /readyz, the log and a metric say so
// from when it is known until it is over. What concerns one batch, or one session's quota, is
// none: others commit.

package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

const (
	// Bytes of a probe after a disk was full: a small one may still find room.
	probeLeast = 1 << 20
	probeMost  = 16 << 20

	// Where there is less than roomLeast, the disk may be full. It is looked at every roomInterval: while nobody commits
	// anything nothing else tells.
	roomLeast    = 4 << 20
	roomInterval = 5 * time.Second
)

// probing says when commits are looked into.
type probing struct {
	interval time.Duration // from a failure to the first probe, and to the next
	timeout  time.Duration // for one: then it has failed
	slow     time.Duration // a transaction that takes longer may be one that never ends
}

// outage is about the commits of a server. It is suspected when one fails, or takes long, and
// looked into with commits of its own, probes: it stands from the first that fails until one
// succeeds. Safe for concurrent use.
type outage struct {
	probing
	log  *slog.Logger
	seen *observed
	wake chan struct{} // it has become suspected

	mu        sync.Mutex
	suspect   dbfault.Cause          // what a commit failed for, None if no probe is due
	cause     dbfault.Cause          // what the last probe failed for, None unless it stands
	why       string                 // the cause in words
	said      map[dbfault.Cause]bool // which are in the log
	since     time.Time              // of the first failure
	failed    int                    // transactions
	committed int                    // transactions that wrote something, since the last probe
	bytes     int                    // that a disk had no room for
}

func newOutage(cfg Config, seen *observed) *outage {
	return &outage{probing: cfg.probing, log: cfg.Log, seen: seen, wake: make(chan struct{}, 1)}
}

// suspected says that commits may not succeed, for a reason; None is no reason.
func (o *outage) suspected(cause dbfault.Cause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectNow(cause)
}

// suspectNow is suspected with mu held.
func (o *outage) suspectNow(cause dbfault.Cause) {
	if cause == dbfault.None || o.suspect != dbfault.None {
		return
	}
	o.suspect, o.since, o.committed = cause, time.Now(), 0
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// failedWith counts a transaction that was not committed, if the database kept it from that.
// bytes is how large it was, 0 if that is not known.
func (o *outage) failedWith(err error, bytes int) {
	cause := dbfault.Of(err)
	if cause == dbfault.None {
		return
	}
	o.seen.failures.WithLabelValues(string(cause)).Inc()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectNow(cause)
	o.failed++
	if cause == dbfault.DiskFull {
		o.bytes = max(o.bytes, min(max(bytes, probeLeast), probeMost))
	}
}

// succeeded counts a transaction that was committed and wrote something.
func (o *outage) succeeded() {
	o.mu.Lock()
	o.committed++
	o.mu.Unlock()
}

// standing says what keeps commits from succeeding, if something is known to.
func (o *outage) standing() (cause dbfault.Cause, why string, since time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause, o.why, o.since
}

// due says whether a probe is, and how large.
func (o *outage) due() (due bool, bytes int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.suspect != dbfault.None, o.bytes
}

// probed takes what a probe has come to.
func (o *outage) probed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	others := o.committed
	o.committed = 0
	if err == nil || others > 0 && o.bytes == 0 { // where a disk is nearly full, small ones may succeed
		o.end()
		return
	}
	cause := dbfault.Of(err)
	if cause == dbfault.None { // something else may be wrong with the probe
		cause = o.suspect
	}
	if o.cause != dbfault.None {
		o.seen.stopped.WithLabelValues(string(o.cause)).Set(0)
	}
	o.cause, o.why = cause, toFault(o.log, err, "commit").Message
	o.seen.stopped.WithLabelValues(string(cause)).Set(1)
	if o.said == nil {
		o.said = map[dbfault.Cause]bool{}
	}
	if !o.said[cause] {
		o.said[cause] = true
		o.log.Error("nothing can be committed: not ready until that is over", "cause", string(cause), "failed", o.failed, "error", err)
	}
}

// end says that commits succeed. mu is held.
func (o *outage) end() {
	if o.cause != dbfault.None {
		o.seen.stopped.WithLabelValues(string(o.cause)).Set(0)
		o.log.Info("commits succeed again", "cause", string(o.cause), "after", time.Since(o.since).Round(time.Millisecond), "failed", o.failed)
	}
	o.suspect, o.cause, o.why, o.said, o.failed, o.bytes = dbfault.None, dbfault.None, "", nil, 0, 0
}

// cramped says that there is little room on the database's disk.
func (o *outage) cramped() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspectNow(dbfault.DiskFull)
	o.bytes = max(o.bytes, probeLeast)
}

// watch probes while there is reason to, until ctx ends.
func (o *outage) watch(ctx context.Context, probe func(ctx context.Context, bytes int) error, room func() (bytes uint64, known bool)) {
	for {
		due, bytes := o.due()
		pause := roomInterval
		if due {
			pause = o.interval
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
			continue
		case <-time.After(spread(pause)):
		}
		if !due {
			if left, known := room(); known && left < roomLeast {
				o.cramped()
			}
			continue
		}
		once, cancel := context.WithTimeout(ctx, o.timeout)
		err := probe(once, bytes)
		cancel()
		if ctx.Err() != nil {
			return
		}
		o.probed(err)
	}
}

// watchCommits is the loop that looks into what keeps commits from succeeding.
func (s *Server) watchCommits(ctx context.Context) {
	s.outage.watch(ctx, s.cfg.Store.Probe, s.cfg.Store.Room)
}

// warn says that something was not done, but in detail for what an outage says.
func (s *Server) warn(what string, err error) {
	level := slog.LevelWarn
	if cause, _, _ := s.outage.standing(); cause != dbfault.None && dbfault.Of(err) != dbfault.None {
		level = slog.LevelDebug
	}
	s.log.Log(context.Background(), level, what, "error", err)
}

// watched is a store of whose failures to write an outage learns. Those of Guess it learns
// from the committer, who knows how much was to be written.
type watched struct {
	Store
	outage *outage
}

func (w watched) wrote(err error) error {
	w.outage.failedWith(err, 0)
	return err
}

// Update implements Store.
func (w watched) Update(ctx context.Context, fn func(session.Tx) error) error {
	return w.wrote(w.Store.Update(ctx, fn))
}

// OpenStream implements Store.
func (w watched) OpenStream(ctx context.Context, o session.StreamOpening) (*ledger.Stream, error) {
	st, err := w.Store.OpenStream(ctx, o)
	return st, w.wrote(err)
}

// Redeem implements Store.
func (w watched) Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error {
	return w.wrote(w.Store.Redeem(ctx, ref, redemption, peer, admit))
}

// Audit implements Store.
func (w watched) Audit(ctx context.Context, page capability.Page, rows []*capability.AuditRow) error {
	return w.wrote(w.Store.Audit(ctx, page, rows))
}

// Used implements Store.
func (w watched) Used(ctx context.Context, page capability.Page, uses []capability.Uses) error {
	return w.wrote(w.Store.Used(ctx, page, uses))
}

// Expire implements Store.
func (w watched) Expire(ctx context.Context, limit int) (more bool, err error) {
	more, err = w.Store.Expire(ctx, limit)
	return more, w.wrote(err)
}

// Trim implements Store.
func (w watched) Trim(ctx context.Context, id string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error) {
	more, err = w.Store.Trim(ctx, id, keep, maxEvents, maxBytes)
	return more, w.wrote(err)
}
