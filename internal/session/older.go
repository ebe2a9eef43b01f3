package session

// Old sessions of a space: those in which nothing has changed since a time are listed, deleted, or a key of
// each is purged, by a ref with the right manage. A page is read without locks; each session is looked at
// again under its lock, in the transaction that removes (Direct.Older): what has changed meanwhile is left.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// OlderQuery is a request for a page of a space's old sessions.
type OlderQuery struct {
	Remove OlderRemoval // Before is set by the store from Age, if it is 0
	Age    int64        // ms since the last event, by the database's clock
	After  string       // the previous page's OldPage.Next; "": from the start
	Limit  int          // the maximum number of sessions
}

// OlderRemoval is what is done to each of them.
type OlderRemoval struct {
	Method string // MethodDelete or MethodPurge; "": nothing
	Key    string // that is purged
	Before int64  // a session is old if its last event is from before, Unix ms
}

// OldSession is an old session.
type OldSession struct {
	ID      string
	Updated int64  // time of its last event, Unix ms
	Events  uint64 // in its log
	Bytes   int64  // that it holds
	Running bool   // a turn is streaming, and its lease is not over
}

// OldPage is a page of old sessions, by id.
type OldPage struct {
	Access
	Before   int64 // as in OlderRemoval
	Sessions []OldSession
	Next     string // the After of the next page; "": there is none
}

// Check returns the reason that a query is refused.
func (q *OlderQuery) Check() *fault.Error {
	r := &q.Remove
	switch {
	case r.Method != "" && r.Method != MethodDelete && r.Method != MethodPurge:
		return fault.BadArgument.With("old sessions are deleted (delete), or a key of them is purged (purge); without a method they are listed")
	case (r.Method == MethodPurge) != (r.Key != ""):
		return fault.BadArgument.With("a key goes with purge, which removes every payload of that key from each session")
	case r.Before == 0 && q.Age < MinOlderAge:
		return fault.BadArgument.With("name an age of at least a second: how long nothing has changed in a session")
	case r.Before < 0 || q.Age < 0 || q.Age > 1<<53:
		return fault.BadArgument.With("an age is in milliseconds, and a time in Unix milliseconds")
	case q.After != "" && !capability.IsSession(q.After):
		return fault.BadArgument.With("after is the next of an earlier page")
	}
	if r.Key != "" {
		if _, err := ParseKey(r.Key); err != nil {
			return err
		}
	}
	return nil
}

// MinOlderAge is the least age of a session that counts as old, in ms.
const MinOlderAge = 1000

// SetBefore sets the query's Before by the database's time.
func (q *OlderQuery) SetBefore(now int64) *fault.Error {
	switch {
	case q.Remove.Before == 0:
		q.Remove.Before = max(now-q.Age, 1)
	case q.Remove.Before > now:
		return fault.BadArgument.With("before is a time to come: name an age")
	}
	return nil
}

// errRunning is why a session with a turn that is written now is left.
func errRunning(message string) *fault.Error {
	return fault.TurnOpen.With("a turn is running in it (message/%s): it is not old", message)
}

// RefuseRunning returns the refusal for an old session, nil if it may be removed.
func (s *OldSession) RefuseRunning() *fault.Error {
	if s.Running {
		return fault.TurnOpen.With("a turn is running in it: it is not old")
	}
	return nil
}

// removeOlder does what r says to the submission's session, if that is old. Conflict is the error where it
// has changed, TurnOpen where a turn is running. The denial of a ref has no audit row here: one call would make one
// for each of its sessions.
func (a *applier) removeOlder(out *Answer, r *OlderRemoval) *fault.Error {
	do := op(&opDelete{})
	if r.Method == MethodPurge {
		key, err := ParseKey(r.Key)
		if err != nil {
			return err
		}
		do = &opPurge{key: key}
	}
	if err := a.authorizeRef(methods[r.Method], r.Method, 0); err != nil {
		return err
	}
	a.outbox = "" // it belongs to no stream
	if err := a.requireOld(r.Before); err != nil {
		return err
	}
	before := a.v.savepoint()
	err := a.inScope(do)
	var done result
	if err == nil {
		done, err = do.apply(a)
	}
	if err != nil {
		a.v.rollback(before)
		return err
	}
	if done, ok := done.(purgeResult); !ok || !done.Unchanged {
		out.Cut = a.s.row.Cursor
	}
	return nil
}

// requireOld returns an error unless nothing has changed in the session since before.
func (a *applier) requireOld(before int64) *fault.Error {
	if err := a.requireLive(); err != nil {
		return err
	}
	if a.s.row.Updated >= before {
		return fault.Conflict.With("it has changed since")
	}
	turns := a.v.loadedTurns(a.s, "")
	if i := slices.IndexFunc(turns, func(t *Turn) bool { return t.Status == Streaming && t.Lease > a.v.now }); i >= 0 {
		return errRunning(turns[i].Message)
	}
	return nil
}
