package outbox

// News of refs: the sender learns by the answers to batches which refs are good, and
// which are dead.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// refUpdate is one piece of news, to be kept with a ref.
type refUpdate struct {
	id     string
	status RefStatus
}

// refUpdates gives the news that an answer has of the refs that its batch went through.
//
// The ref of a session whose creation was refused is dead: nothing finds it by the
// session's names any more. It stays until the batch is swept, because a Retry of the
// creation mints it.
func (b *Box) refUpdates(e *entry, outs []ledger.Outcome) (news []refUpdate) {
	to, dead := e.route, deathReason(outs)
	if to.confirmed && dead == fault.None && !createsSession(e.body.ops[0].method) {
		return nil
	}
	now := RefStatus{Confirmed: b.cfg.Now()}
	if createsSession(e.body.ops[0].method) {
		switch {
		case outs[0].Status == ledger.Applied:
			made := now
			made.Rights = capability.SessionRights
			news = append(news, refUpdate{to.ref, made})
		case outs[0].Reason != fault.Pruned: // then nobody knows
			news = append(news, refusedOwner(to.ref, &outs[0]))
		}
	}
	through := to.ref
	if to.space != "" {
		through = to.space
	}
	r := b.refs.byID(through)
	if r == nil || r.ID != through || to.forkVia != "" || fingerprint(r.Ref) != to.fingerprint {
		return news // it is another one now
	}
	switch {
	case dead != fault.None && to.space != "": // it may be the new session's that is meant
	case dead != fault.None && r.Dead != dead:
		now.Dead = dead
		news = append(news, refUpdate{through, now})
	case dead == fault.None && (r.Confirmed.IsZero() || r.Dead != fault.None && anyApplied(outs)):
		news = append(news, refUpdate{through, now})
	}
	return news
}

// refusedOwner is the news of the owner's ref of a session that was not made.
func refusedOwner(id string, o *ledger.Outcome) refUpdate {
	dead := o.Reason
	if dead == fault.None {
		dead = fault.Rejected
	}
	return refUpdate{id, RefStatus{Dead: dead}}
}

// ownerRefused says that a session was not made.
func ownerRefused(news []refUpdate) bool {
	return len(news) > 0 && news[0].status.Confirmed.IsZero()
}

// anyApplied says whether an op applied.
func anyApplied(outs []ledger.Outcome) bool {
	return slices.ContainsFunc(outs, func(o ledger.Outcome) bool { return o.Status == ledger.Applied })
}

// deathReason is why the ref that a batch went through is dead; None if it is not.
func deathReason(outs []ledger.Outcome) fault.Code {
	for i := range outs {
		if o := &outs[i]; o.Status == ledger.Denied && MeansDeadRef(o.Reason) {
			return o.Reason
		}
	}
	return fault.None
}

// MeansDeadRef says whether a refusal with this code means that the ref it was made with
// is dead, and no other use of it will be allowed.
func MeansDeadRef(code fault.Code) bool {
	switch code {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted, fault.Exhausted:
		return true
	}
	return false
}

// writeRefStatus writes news, with whatever else the transaction writes.
func (t *tables) writeRefStatus(q querier, news []refUpdate) {
	for _, n := range news {
		at := int64(0)
		if !n.status.Confirmed.IsZero() {
			at = n.status.Confirmed.UnixMilli()
		}
		q.enqueue(t.db.refs().setStatus, []any{t.box, n.id, at, int64(n.status.Rights), int64(n.status.Dead)}, nil)
	}
}

// applyUpdates remembers news that were written.
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
		told := row.status()
		told.Dead = n.status.Dead
		if !n.status.Confirmed.IsZero() {
			told.Confirmed = n.status.Confirmed
		}
		if n.status.Rights != 0 {
			told.Rights = n.status.Rights
		}
		row.setStatus(told)
		c.putLocked(row)
	}
}

// byID gives a ref that is known here without asking the database; nil if none is.
func (c *refCache) byID(id string) *SavedRef {
	for _, r := range c.get(id) {
		if !r.foundByTarget(id) {
			return r
		}
	}
	return nil
}
