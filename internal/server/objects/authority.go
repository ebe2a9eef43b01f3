// Authority: the ref that a live object acts under, checked against rows of the same snapshot as
// the data that it reads.

package objects

import (
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// authority is the authority of a Session object: a restored ref, or, for an object of
// Space.create, the owner's ref that the create op mints. Anyone with a space ref could name the
// owner's ref of an existing session, so such an object is the owner only if the session was
// made by one of the streams opened through it, and by the same space ref.
type authority struct {
	session string
	ref     string // id of the ref
	space   string // Space.create: id of the space ref; else ""
	manage  bool   // ref is a space's, and acts by its right manage
	reach   bool   // ref is one of a session above, and acts by its rights in children

	firstRedeemed bool // the ref was redeemed anew, not again after a lost connection

	// Limits of an attenuated object, and with manage or reach those of the object that it was opened from; nil if
	// there are none.
	attenuated, outer *capability.Grant

	mu      sync.Mutex
	streams []string // Space.create: ids of the streams opened through the object
}

// Refs returns the ids of the grants that check needs.
func (a *authority) Refs() []string { return []string{a.ref} }

// addStream records that a stream was opened, with its outbox's secret.
func (a *authority) addStream(stream string) {
	if a.space == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.streams, stream) {
		a.streams = append(a.streams, stream)
	}
}

func (a *authority) hasStream(stream string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.streams, stream)
}

// stamp sets the authority and peer of a submission.
func (a *authority) stamp(sub *session.Submission, peer string) {
	sub.Ref, sub.Space, sub.Manage, sub.Reach, sub.Attenuated, sub.Outer, sub.Peer = a.ref, a.space, a.manage, a.reach, a.attenuated, a.outer, peer
}

// direct returns the submission of do, without an outbox. An object of Space.create through which
// no stream was opened has no authority, and is refused here: a commit would make a row for any
// session that its holder names.
func (a *authority) direct(do *session.Direct, peer string) (session.Submission, *fault.Error) {
	sub := session.Submission{Batch: ledger.Batch{Session: a.session}, Direct: do}
	a.stamp(&sub, peer)
	if a.space == "" {
		return sub, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) == 0 {
		return sub, fault.UnknownRef.With("session %s is not known to be yours: open a stream first, or restore its own ref", a.session)
	}
	sub.Batch.Outbox = a.streams[len(a.streams)-1]
	return sub, nil
}

// Check returns the grant that allows need on the session now, or why not. It returns the grant
// of a dead ref too, and of a deleted session (SessionDeleted) unless the ref was removed with
// the session.
func (a *authority) Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	if a.reach && at.Row != nil && at.Row.Forgotten { // what was above it is forgotten, too
		return nil, fanout.SessionDeleted()
	}
	var opened *capability.Grant // of a session that was opened through a ref of another
	var notOpen *fault.Error
	switch { // before all else: who does not reach a session, or may not manage its space, learns nothing of it
	case a.reach:
		if opened, notOpen = session.CheckReaching(at, a.session, a.ref, a.outer); notOpen != nil {
			return opened, notOpen
		}
	case a.manage:
		if opened, notOpen = session.CheckManaging(at, a.session, a.ref, a.outer); opened == nil {
			return nil, notOpen
		}
	}
	if at.Row == nil || at.Row.Life == session.Absent {
		return nil, fault.NotFound.With("session %s does not exist: its create op has not been applied", a.session)
	}
	if at.Row.Forgotten && (a.space != "" || a.manage || at.Grants[a.ref] == nil) {
		return nil, fanout.SessionDeleted()
	}
	stream := ""
	if a.hasStream(at.Row.Creator) {
		stream = at.Row.Creator
	}
	id, ok := session.ActingRef(at.Row, a.ref, a.space, stream)
	if !ok {
		return nil, fault.UnknownRef.With("session %s was made by another outbox: restore a ref to it", a.session)
	}
	grant := at.Grants[id]
	switch {
	case notOpen != nil:
		return opened, notOpen
	case opened != nil:
		grant = opened
	case grant != nil && (grant.Target != a.session || a.space != "" && !grant.Owner):
		grant = nil // of another session, or named by its creator and not its owner
	}
	acting, refused := capability.CheckLive(grant, a.attenuated, at.Row.Epoch, at.Now, need, "")
	if refused == nil && at.Row.Life == session.Deleted {
		refused = fanout.SessionDeleted()
	}
	return acting, refused
}

// reader is an authority as a reader uses it who understands some features. It refuses, with
// Incompatible, what that reader would misread.
type reader struct {
	*authority
	understands session.Features
}

// Check is authority.Check, for a reader.
func (r reader) Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	grant, refused := r.authority.Check(at, need)
	if refused == nil {
		refused = at.Row.CheckReader(grant, r.understands)
	}
	return grant, refused
}

// inProcess returns the reader of a handler within the process, which is of this version.
func (a *authority) inProcess() reader { return reader{a, session.AllFeatures} }

// attenuate returns a's authority with limits, which were made from a grant that check returned.
// It has that grant's ref, whoever the object is passed on to.
func (a *authority) attenuate(limits *capability.Grant) *authority {
	as := &authority{session: a.session, ref: limits.ID, attenuated: limits}
	if a.manage || a.reach {
		as.manage, as.reach, as.outer = a.manage, a.reach, a.outer
	}
	return as
}
