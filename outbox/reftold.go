package outbox

// News of refs: the sender learns by the answers to batches which refs are good, and
// which are dead.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// refNews is one piece of news, to be kept with a ref.
type refNews struct {
	id   string
	told Told
}

// news gives the news that an answer has of the refs that its batch went through.
//
// The ref of a session whose creation was refused is dead: nothing finds it by the
// session's names any more. It stays until the batch is swept, because a Retry of the
// creation mints it.
func (b *Box) news(e *entry, outs []ledger.Outcome) (news []refNews) {
	to, dead := e.route, deadBy(outs)
	if to.sure && dead == fault.None && !creates(e.body.ops[0].method) {
		return nil
	}
	now := Told{Confirmed: b.cfg.Now()}
	if creates(e.body.ops[0].method) {
		switch {
		case outs[0].Status == ledger.Applied:
			made := now
			made.Rights = capability.SessionRights
			news = append(news, refNews{to.ref, made})
		case outs[0].Reason != fault.Pruned: // then nobody knows
			news = append(news, refusedRef(to.ref, &outs[0]))
		}
	}
	through := to.ref
	if to.space != "" {
		through = to.space
	}
	r := b.refs.remembered(through)
	if r == nil || r.ID != through || to.with != "" || proof(r.Ref) != to.proof {
		return news // it is another one now
	}
	switch {
	case dead != fault.None && to.space != "": // it may be the new session's that is meant
	case dead != fault.None && r.Dead != dead:
		now.Dead = dead
		news = append(news, refNews{through, now})
	case dead == fault.None && (r.Confirmed.IsZero() || r.Dead != fault.None && appliedOne(outs)):
		news = append(news, refNews{through, now})
	}
	return news
}

// refusedRef is the news of the owner's ref of a session that was not made.
func refusedRef(id string, o *ledger.Outcome) refNews {
	dead := o.Reason
	if dead == fault.None {
		dead = fault.Rejected
	}
	return refNews{id, Told{Dead: dead}}
}

// refused says that a session was not made.
func refused(news []refNews) bool {
	return len(news) > 0 && news[0].told.Confirmed.IsZero()
}

// appliedOne says whether an op applied.
func appliedOne(outs []ledger.Outcome) bool {
	return slices.ContainsFunc(outs, func(o ledger.Outcome) bool { return o.Status == ledger.Applied })
}

// deadBy is why the ref that a batch went through is dead; None if it is not.
func deadBy(outs []ledger.Outcome) fault.Code {
	for i := range outs {
		if o := &outs[i]; o.Status == ledger.Denied && Deadly(o.Reason) {
			return o.Reason
		}
	}
	return fault.None
}

// Deadly says whether a refusal with this code means that the ref it was made with
// is dead, and no other use of it will be allowed.
func Deadly(code fault.Code) bool {
	switch code {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted, fault.Exhausted:
		return true
	}
	return false
}

// tellRefs writes news, with whatever else the transaction writes.
func (t *tables) tellRefs(q querier, news []refNews) {
	for _, n := range news {
		at := int64(0)
		if !n.told.Confirmed.IsZero() {
			at = n.told.Confirmed.UnixMilli()
		}
		q.later(t.db.refs().told, []any{t.box, n.id, at, int64(n.told.Rights), int64(n.told.Dead)}, nil)
	}
}

// told remembers news that were written.
func (c *refCache) told(news []refNews) {
	if len(news) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range news {
		r := c.rows[n.id]
		if r == nil || r.live == nil {
			continue
		}
		row := r.row
		told := row.told()
		told.Dead = n.told.Dead
		if !n.told.Confirmed.IsZero() {
			told.Confirmed = n.told.Confirmed
		}
		if n.told.Rights != 0 {
			told.Rights = n.told.Rights
		}
		row.tell(told)
		c.putLocked(row)
	}
}

// remembered gives a ref that is known here without asking the database; nil if none is.
func (c *refCache) remembered(id string) *SavedRef {
	for _, r := range c.get(id) {
		if !r.named(id) {
			return r
		}
	}
	return nil
}
