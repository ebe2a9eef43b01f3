package refs

// Updates of refs: the answers to batches tell the sender which refs are good, and which are
// dead.

import (
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
)

// Update is one update, to be stored with a ref.
type Update struct {
	ID     string
	Status RefStatus
}

// Updates returns the updates from an answer at a time, for the refs through which its batch was sent.
//
// The ref of a session whose creation was refused is dead: the session's names no longer find
// it. It stays until the batch is swept, because a Retry of the creation mints it.
func (c *Cache) Updates(e *machine.Entry, outs []ledger.Outcome, at time.Time) (news []Update) {
	to, dead := e.Route, deathReason(outs)
	if to.Opens(e.Session) && (dead == fault.SessionDeleted || dead == fault.StaleEpoch) {
		dead = fault.None // it may be about the session alone, and not about the ref
	}
	if to.Confirmed && dead == fault.None && !intent.CreatesSession(e.Body.Ops[0].Method) {
		return nil
	}
	now := RefStatus{Confirmed: at}
	if intent.CreatesSession(e.Body.Ops[0].Method) {
		switch {
		case outs[0].Status == ledger.Applied:
			made := now
			made.Rights = capability.SessionRights
			news = append(news, Update{to.Ref, made})
		case outs[0].Reason != fault.Pruned: // a pruned outcome says nothing
			news = append(news, RefusedOwner(to.Ref, &outs[0]))
		}
	}
	through := to.Ref
	if to.Space != "" {
		through = to.Space
	}
	r := c.ByID(through)
	if r == nil || r.ID != through || to.ForkVia != "" || Fingerprint(r.Ref) != to.Fingerprint {
		return news // the ref has changed since
	}
	switch {
	case dead != fault.None && to.Space != "": // the answer may be about the new session's ref
	case dead != fault.None && r.Dead != dead:
		now.Dead = dead
		news = append(news, Update{through, now})
	case dead == fault.None && (r.Confirmed.IsZero() || r.Dead != fault.None && anyApplied(outs)):
		news = append(news, Update{through, now})
	}
	return news
}

// RefusedOwner returns the update for the owner's ref of a session that was not created.
func RefusedOwner(id string, o *ledger.Outcome) Update {
	dead := o.Reason
	if dead == fault.None {
		dead = fault.Rejected
	}
	return Update{id, RefStatus{Dead: dead}}
}

// OwnerRefused reports that a session was not created.
func OwnerRefused(news []Update) bool {
	return len(news) > 0 && news[0].Status.Confirmed.IsZero()
}

// anyApplied reports whether an op applied.
func anyApplied(outs []ledger.Outcome) bool {
	return slices.ContainsFunc(outs, func(o ledger.Outcome) bool { return o.Status == ledger.Applied })
}

// deathReason returns why the ref that a batch was sent through is dead; None if it is not.
func deathReason(outs []ledger.Outcome) fault.Code {
	for i := range outs {
		if o := &outs[i]; o.Status == ledger.Denied && MeansDead(o.Reason) {
			return o.Reason
		}
	}
	return fault.None
}

// MeansDead reports whether a refusal with this code means that the ref it was made with is
// dead, and no other use of it will be allowed.
func MeansDead(code fault.Code) bool {
	switch code {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.SessionDeleted, fault.Exhausted:
		return true
	}
	return false
}
