package session

// Old sessions of a space: those in which nothing has changed since a time are listed, deleted, or a key of
// each is purged, by a ref with the right manage. A page is read without locks; each session is looked at
// again under its lock, in the transaction that removes (decide.Direct.Older): what has changed meanwhile is left.

import (
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

// RefuseRunning returns the refusal for an old session, nil if it may be removed.
func (s *OldSession) RefuseRunning() *fault.Error {
	if s.Running {
		return fault.TurnOpen.With("a turn is running in it: it is not old")
	}
	return nil
}
