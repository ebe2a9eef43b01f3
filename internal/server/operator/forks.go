// Forks in pieces: what is too large for one event is copied here, before its session is made.

package operator

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
)

const (
	forkPage     = 100  // forks that are looked up at once
	forkKeys     = 2000 // copied in one transaction
	maxForkAsked = 64   // requests that wait; others come again
)

// AskFork has a fork begun, or notes that it is asked for. It does not block.
func (o *Operator) AskFork(r *session.ForkRequest) {
	select {
	case o.forkRequests <- r:
	default:
	}
}

// copyForks copies a piece of each fork after the other. Any number of replicas may do so: a piece is copied under the
// locks of both sessions, and says itself where the next begins.
func (o *Operator) copyForks(ctx context.Context) {
	for ctx.Err() == nil {
		var idle <-chan time.Time
		if more := o.copyPieces(ctx); !more {
			idle = time.After(periodic.Jitter(o.cfg.SweepInterval))
		} else {
			closed := make(chan time.Time)
			close(closed)
			idle = closed
		}
		select {
		case <-ctx.Done():
		case <-idle:
		case r := <-o.forkRequests:
			if err := o.inTransaction(func(ctx context.Context, tx session.Tx) error { return maintain.BeginFork(ctx, tx, r) }); err != nil {
				o.cfg.Outage.Warn("a fork was not begun", err)
			}
		}
	}
}

// Copying says how many forks there are, and their bytes that are copied.
type Copying struct {
	Going, Ready, Failed int // those that are copied, wait to be asked for, and are removed
	Bytes                int64
	bySpace              map[string]int64 // Bytes, by the space's ref
}

// Copying returns that as it was last looked up; nil before that.
func (o *Operator) Copying() *Copying { return o.copying.Load() }

func (c *Copying) add(f *session.ForkDue) {
	switch {
	case f.State < session.ForkReady:
		c.Going++
	case f.State == session.ForkReady:
		c.Ready++
	default:
		c.Failed++
	}
	c.Bytes += f.Bytes
	c.bySpace[f.Space] += f.Bytes
}

// copyPieces copies a piece of each fork whose account has room. more reports that there are others to be copied now.
func (o *Operator) copyPieces(ctx context.Context) (more bool) {
	all := &Copying{bySpace: map[string]int64{}}
	for after := ""; ctx.Err() == nil; {
		list, err := o.cfg.Store.Forks(ctx, after, forkPage)
		if err != nil {
			if ctx.Err() == nil {
				o.cfg.Outage.Warn("forks were not looked up", err)
			}
			return false
		}
		for _, work := range list {
			var f *session.Forking
			var again bool
			keys := forkKeys
			if work.State < session.ForkReady && o.accountQuotas.check(work.Space) != nil {
				keys = 0
			}
			err := o.inTransaction(func(ctx context.Context, tx session.Tx) (err error) {
				f, again, err = maintain.CopyFork(ctx, tx, work.ForkWork, o.cfg.ForkBytes, keys)
				return err
			})
			if err == nil && f != nil {
				had := work.Bytes
				if work = f.Due(work.Session); work.State == session.ForkDropped {
					work.Bytes = 0
				}
				o.accountQuotas.grow(work.Space, work.Bytes-had)
			}
			if work.State != session.ForkDropped {
				all.add(&work)
			}
			switch {
			case err != nil:
				o.cfg.Outage.Warn("a piece of a fork was not copied", err)
				return false
			case f != nil && f.State == session.ForkReady:
				o.cfg.Log.Info("a fork is copied", "session", work.Session, "source", work.Source, "at", f.At, "keys", f.Keys, "bytes", f.Bytes)
			case f != nil && f.State == session.ForkFailed && f.After == "":
				o.cfg.Log.Info("a fork has failed", "session", work.Session, "source", work.Source, "code", f.Code)
			}
			more = more || again
		}
		if len(list) < forkPage {
			o.copying.Store(all)
			return more
		}
		after = list[len(list)-1].Session
	}
	return false
}

// inTransaction runs do in a transaction.
func (o *Operator) inTransaction(do func(context.Context, session.Tx) error) error {
	ctx, cancel := o.commitContext()
	defer cancel()
	return o.cfg.Store.Update(ctx, func(tx session.Tx) (err error) {
		defer admission.RecoverPanic(&err)
		return do(ctx, tx)
	})
}
