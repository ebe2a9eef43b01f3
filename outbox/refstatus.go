package outbox

// Updates of refs: the answers to batches tell the sender which refs are good, and which are
// dead.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// refUpdate is one update, to be stored with a ref.
type refUpdate struct {
	id     string
	status RefStatus
}

// refUpdates returns the updates from an answer, for the refs through which its batch was sent.
//
// The ref of a session whose creation was refused is dead: the session's names no longer find
// it. It stays until the batch is swept, because a Retry of the creation mints it.
func (b *Box) refUpdates(e *machine.Entry, outs []ledger.Outcome) (news []refUpdate) {
	to, dead := e.Route, deathReason(outs)
	if to.Confirmed && dead == fault.None && !intent.CreatesSession(e.Body.Ops[0].Method) {
		return nil
	}
	now := RefStatus{Confirmed: b.cfg.Now()}
	if intent.CreatesSession(e.Body.Ops[0].Method) {
		switch {
		case outs[0].Status == ledger.Applied:
			made := now
			made.Rights = capability.SessionRights
			news = append(news, refUpdate{to.Ref, made})
		case outs[0].Reason != fault.Pruned: // a pruned outcome says nothing
			news = append(news, refusedOwner(to.Ref, &outs[0]))
		}
	}
	through := to.Ref
	if to.Space != "" {
		through = to.Space
	}
	r := b.refs.byID(through)
	if r == nil || r.ID != through || to.ForkVia != "" || fingerprint(r.Ref) != to.Fingerprint {
		return news // the ref has changed since
	}
	switch {
	case dead != fault.None && to.Space != "": // the answer may be about the new session's ref
	case dead != fault.None && r.Dead != dead:
		now.Dead = dead
		news = append(news, refUpdate{through, now})
	case dead == fault.None && (r.Confirmed.IsZero() || r.Dead != fault.None && anyApplied(outs)):
		news = append(news, refUpdate{through, now})
	}
	return news
}

// refusedOwner returns the update for the owner's ref of a session that was not created.
func refusedOwner(id string, o *ledger.Outcome) refUpdate {
	dead := o.Reason
	if dead == fault.None {
		dead = fault.Rejected
	}
	return refUpdate{id, RefStatus{Dead: dead}}
}

// ownerRefused reports that a session was not created.
func ownerRefused(news []refUpdate) bool {
	return len(news) > 0 && news[0].status.Confirmed.IsZero()
}

// anyApplied reports whether an op applied.
func anyApplied(outs []ledger.Outcome) bool {
	return slices.ContainsFunc(outs, func(o ledger.Outcome) bool { return o.Status == ledger.Applied })
}

// deathReason returns why the ref that a batch was sent through is dead; None if it is not.
func deathReason(outs []ledger.Outcome) fault.Code {
	for i := range outs {
		if o := &outs[i]; o.Status == ledger.Denied && MeansDeadRef(o.Reason) {
			return o.Reason
		}
	}
	return fault.None
}

// MeansDeadRef reports whether a refusal with this code means that the ref it was made with is
// dead, and no other use of it will be allowed.
func MeansDeadRef(code fault.Code) bool {
	switch code {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted, fault.Exhausted:
		return true
	}
	return false
}

// writeRefStatus writes updates, along with the transaction's other statements.
func (t *tables) writeRefStatus(q querier, news []refUpdate) {
	for _, n := range news {
		at := int64(0)
		if !n.status.Confirmed.IsZero() {
			at = n.status.Confirmed.UnixMilli()
		}
		q.enqueue(t.db.refs().setStatus, []any{t.box, n.id, at, int64(n.status.Rights), int64(n.status.Dead)}, nil)
	}
}

// applyUpdates caches updates that were written.
func (c *refCache) applyUpdates(news []refUpdate) {
	if len(news) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range news {
		r := c.rows[n.id]
		if r == nil || r.saved == nil {
			continue
		}
		row := r.row
		status := row.status()
		status.Dead = n.status.Dead
		if !n.status.Confirmed.IsZero() {
			status.Confirmed = n.status.Confirmed
		}
		if n.status.Rights != 0 {
			status.Rights = n.status.Rights
		}
		row.setStatus(status)
		c.putLocked(row)
	}
}

// byID returns a cached ref without asking the database; nil if there is none.
func (c *refCache) byID(id string) *SavedRef {
	for _, r := range c.get(id) {
		if !r.foundByTarget(id) {
			return r
		}
	}
	return nil
}
