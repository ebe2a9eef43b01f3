// Sweeping: interrupting turns whose lease lapsed, and auditing expired refs. Old events are
// trimmed in trim.go, the audit is written in usage_counter.go, and other replicas' commits are
// noticed in replicas.go.

package operator

import (
	"context"
	"math"
	"time"

	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
)

// sweep interrupts turns whose leases lapsed. The sole server of a database interrupts all
// streaming turns when it starts, since nobody can hold their streams; of several servers, each
// takes lapsed ones. It also audits expired refs, and removes expired page tokens and what settled reverts
// hid.
func (o *Operator) sweep(ctx context.Context) {
	o.interruptLapsed(ctx, o.cfg.SoleServer)
	o.auditExpired(ctx)
	periodic.Do(ctx, o.cfg.SweepInterval, func() {
		o.interruptLapsed(ctx, false)
		o.auditExpired(ctx)
		o.collectTokens(ctx)
		o.inChunks(ctx, o.cfg.Store.RemoveReverted, "what was reverted was not removed")
	})
}

// expiryChunk is how many refs are audited, or tokens or reverted rows removed, at once.
const expiryChunk = 100

func (o *Operator) auditExpired(ctx context.Context) {
	o.inChunks(ctx, o.cfg.Store.AuditExpired, "expired refs were not noted")
}

// collectTokens removes expired page tokens.
func (o *Operator) collectTokens(ctx context.Context) {
	o.inChunks(ctx, o.cfg.Store.CollectPageTokens, "tokens of pages were not collected")
}

// refreshTitles updates the sort keys of titles: a few at a time, so that no list has to, but all
// of them after an upgrade, for which it is a loop of its own.
func (o *Operator) refreshTitles(ctx context.Context) {
	take := func() { o.inChunks(ctx, o.cfg.Store.RefreshTitles, "titles of sessions were not taken") }
	take()
	periodic.Do(ctx, o.cfg.SweepInterval, take)
}

// inChunks calls do until no more is due; failed is the log message for an error, which ends it.
func (o *Operator) inChunks(ctx context.Context, do func(context.Context, int) (more bool, err error), failed string) {
	for more := true; more && ctx.Err() == nil; {
		once, cancel := o.commitContext()
		var err error
		if more, err = do(once, expiryChunk); err != nil {
			o.cfg.Outage.Warn(failed, err)
			more = false
		}
		cancel()
	}
}

// lapseChunk is how many sessions one transaction locks.
const lapseChunk = 100

func (o *Operator) interruptLapsed(ctx context.Context, all bool) {
	before, after := int64(0), ""
	if all {
		before = math.MaxInt64
	}
	for ctx.Err() == nil {
		ids, err := o.cfg.Store.Lapsed(ctx, before, after, lapseChunk)
		if err == nil && len(ids) > 0 {
			err = o.interrupt(ids, all)
		}
		if err != nil {
			if ctx.Err() == nil {
				o.cfg.Outage.Warn("lapsed turns were not swept", err)
			}
			return
		}
		if len(ids) < lapseChunk {
			return
		}
		after = ids[len(ids)-1]
	}
}

func (o *Operator) interrupt(ids []string, all bool) error {
	ctx, cancel := o.commitContext()
	defer cancel()
	var published *session.Published
	o.cfg.Hub.BeginCommit(ids)
	defer func() { o.cfg.Hub.EndCommit(ids, published) }()
	var lapsed *session.Published
	err := o.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		lapsed, err = maintain.Lapse(ctx, tx, ids, all)
		return err
	})
	if err == nil {
		published = lapsed
	}
	return err
}

// auditLoop writes uses and refusals at intervals, until ctx ends. A write that has begun is
// finished.
func (o *Operator) auditLoop(ctx context.Context) {
	pause := min(o.cfg.SweepInterval, o.cfg.AuditWindow)
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.cfg.Usage.WindowFull:
		case <-time.After(periodic.Jitter(pause)):
		}
		o.FlushAudit(false)
	}
}

// FlushAudit writes the gathered uses and refusals that are due, or all of them.
func (o *Operator) FlushAudit(all bool) {
	ctx, cancel := o.commitContext()
	defer cancel()
	o.cfg.Audit.Flush(ctx, all)
	o.cfg.Usage.Flush(ctx, all)
}
