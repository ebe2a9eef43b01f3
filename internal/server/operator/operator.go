// Operator: the work of a server that no call asks for, each kind in a loop of its own.

package operator

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Config configures an operator. What is not said to be optional is required.
type Config struct {
	Context context.Context // of transactions, which outlive the loops
	Log     *slog.Logger
	Now     func() time.Time

	KeepLog     time.Duration // retention of events; 0 keeps everything
	KeepDeleted time.Duration // retention of the rows of deleted sessions; 0 keeps them
	SoleServer  bool          // no other server uses the database

	CommitTimeout   time.Duration // of one transaction
	ReadTimeout     time.Duration // of one read
	SweepInterval   time.Duration // between rounds of sweeping
	MeasureInterval time.Duration // between measurements of one session that meets its quota
	CountInterval   time.Duration // between counts of all sessions
	AuditWindow     time.Duration
	ReplicaInterval time.Duration // between records that this server is alive, at most the constant

	ForkBytes    int // of one piece of a fork
	SessionBytes int // quota of a session; 0 for none
	AccountBytes int // quota of an account; 0 for none

	Store  Store
	Hub    commit.Publisher
	Outage *Outage
	Audit  *admission.Auditor
	Usage  *admission.UsageCounter
}

// Store is the store of an operator. A method that writes is one transaction.
type Store interface {
	// Update runs fn in one read-write transaction and commits if fn returns nil; otherwise
	// it returns fn's error unchanged.
	Update(ctx context.Context, fn func(session.Tx) error) error

	// AuditExpired audits refs that have expired, at most limit; more reports that others may be
	// left. CollectPageTokens removes expired tokens of pages in the same way.
	AuditExpired(ctx context.Context, limit int) (more bool, err error)
	CollectPageTokens(ctx context.Context, limit int) (more bool, err error)
	// RemoveReverted removes rows that settled reverts hid, in the same way.
	RemoveReverted(ctx context.Context, limit int) (more bool, err error)

	// Forks returns the forks that are being copied, those with greater ids than after.
	Forks(ctx context.Context, after string, limit int) ([]session.ForkDue, error)

	// Lapsed returns at most limit ids, greater than after, of sessions with a streaming
	// turn whose lease ran out before a time (0: the database's now).
	Lapsed(ctx context.Context, before int64, after string, limit int) ([]string, error)

	// Trimmable returns, of the next sessions by id, those whose logs begin with events older
	// than keep, and the id to continue after ("" at the end). Trim removes a part of one log,
	// and reports whether more of it is due.
	Trimmable(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	Trim(ctx context.Context, session string, keep time.Duration, maxEvents, maxBytes int) (more bool, err error)
	// TrimmableDeleted is Trimmable for sessions deleted longer ago than keep. Forget is Trim
	// for their remaining rows, at most rows of each kind.
	TrimmableDeleted(ctx context.Context, keep time.Duration, after string, limit int) (ids []string, next string, err error)
	Forget(ctx context.Context, session string, keep time.Duration, rows int) (more bool, err error)

	// RefreshTitles updates the sort keys of lists from changed titles, at most limit of them.
	RefreshTitles(ctx context.Context, limit int) (more bool, err error)
	// Unmeasured returns sessions whose size is not known; Measure measures one, in bytes.
	Unmeasured(ctx context.Context, limit int) (ids []string, err error)
	Measure(ctx context.Context, id string) (bytes int64, err error)

	// RecordReplica records that a server is alive and knows some features, and returns those that
	// every server knows that was alive within a time. ForgetReplica removes its record.
	RecordReplica(ctx context.Context, id string, knows session.Features, within time.Duration) (inUse session.Features, err error)
	// AuditManage adds to the audit of an older space, once, that its root ref has the right manage.
	AuditManage(ctx context.Context) error
	ForgetReplica(ctx context.Context, id string) error

	// Totals sums up the next sessions by id, and returns the id to continue after (""
	// if there were none).
	Totals(ctx context.Context, after string, limit int) (t session.Totals, next string, err error)

	// AccountRef returns the ref of a space to whose account a session, or another ref of the
	// space, counts. AccountUsage returns the bytes of an account and the bytes exempt from its
	// quota; spared is -1 while that is not known.
	AccountRef(ctx context.Context, id string) (ref string, err error)
	AccountUsage(ctx context.Context, ref string) (bytes, spared int64, err error)

	// FreeSpace returns the free bytes on the database's disk; known is false if it cannot tell.
	FreeSpace() (bytes uint64, known bool)
	// Probe returns nil if the database commits a row of that many bytes.
	Probe(ctx context.Context, bytes int) error
}

// Operator runs the loops. It is safe for concurrent use.
type Operator struct {
	cfg           Config
	sessionBytes  atomic.Int64 // Config.SessionBytes as it is now
	accountQuotas *accountQuotas
	measureQueue  *measureQueue
	forkRequests  chan *session.ForkRequest
	totals        atomic.Pointer[session.Totals] // nil until the first count
	copying       atomic.Pointer[Copying]
	id            string        // of this server among those of its database
	features      atomic.Uint32 // in use, when last looked up
}

// New returns an operator; its Loops have to run.
func New(cfg Config) *Operator {
	o := &Operator{cfg: cfg, accountQuotas: newAccountQuotas(cfg.AccountBytes), measureQueue: newMeasureQueue(), forkRequests: make(chan *session.ForkRequest, maxForkAsked), id: ulid.Make().String()}
	o.sessionBytes.Store(int64(cfg.SessionBytes))
	return o
}

// SetQuotas changes the quotas of a session and of an account.
func (o *Operator) SetQuotas(session, account int) {
	o.sessionBytes.Store(int64(session))
	o.accountQuotas.setQuota(account)
}

// Quotas returns the quotas of a session and of an account as they are now, in bytes.
func (o *Operator) Quotas() (session, account int64) {
	return o.sessionBytes.Load(), o.accountQuotas.limit()
}

// Loops returns the loops; each runs until its context ends.
func (o *Operator) Loops() []func(context.Context) {
	return []func(context.Context){o.sweep, o.trim, o.trimDeleted, o.copyForks, o.measure, o.refreshTitles, o.auditLoop, o.countSessions, o.recordReplicas, o.watchCommits}
}

// CheckQuota returns why nothing more may be written to a session, or made under a ref of a space.
func (o *Operator) CheckQuota(id string) *fault.Error { return o.accountQuotas.check(id) }

// QuotaMet has a session measured soon that has met its quota, or whose ref has.
func (o *Operator) QuotaMet(session string) { o.measureQueue.add(session) }

// Counted returns what was counted last of all sessions; nil before the first count.
func (o *Operator) Counted() *session.Totals { return o.totals.Load() }

// watchCommits probes whether commits succeed, while an outage is suspected.
func (o *Operator) watchCommits(ctx context.Context) {
	o.cfg.Outage.watch(ctx, o.cfg.Store.Probe, o.cfg.Store.FreeSpace)
}

// commitContext returns the context of a transaction that outlives its caller.
func (o *Operator) commitContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(o.cfg.Context, o.cfg.CommitTimeout)
}
