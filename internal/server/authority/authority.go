// Authority: the ref that a live object acts under, checked against rows of the same snapshot as
// the data that it reads.

package authority

import (
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// Authority is the authority of a Session object: a restored ref, or, for an object of
// Space.create, the owner's ref that the create op mints. Anyone with a space ref could name the
// owner's ref of an existing session, so such an object is the owner only if the session was
// made by one of the streams opened through it, and by the same space ref. Its fields are set when
// it is made.
type Authority struct {
	Session string
	Ref     string // id of the ref
	Space   string // Space.create: id of the space ref; else ""
	Manage  bool   // Ref is a space's, and acts by its right manage
	Reach   bool   // Ref is one of a session above, and acts by its rights in children

	FirstRedeemed bool // the ref was redeemed anew, not again after a lost connection

	// Limits of an attenuated object, and with Manage or Reach those of the object that it was opened from; nil if
	// there are none.
	Attenuated, Outer *capability.Grant

	mu      sync.Mutex
	streams []string // Space.create: ids of the streams opened through the object
}

// Refs returns the ids of the grants that Check needs.
func (a *Authority) Refs() []string { return []string{a.Ref} }

// AddStream records that a stream was opened, with its outbox's secret.
func (a *Authority) AddStream(stream string) {
	if a.Space == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.streams, stream) {
		a.streams = append(a.streams, stream)
	}
}

func (a *Authority) hasStream(stream string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.streams, stream)
}

// Stamp sets the authority and peer of a submission.
func (a *Authority) Stamp(sub *decide.Submission, peer string) {
	sub.Ref, sub.Space, sub.Manage, sub.Reach, sub.Attenuated, sub.Outer, sub.Peer = a.Ref, a.Space, a.Manage, a.Reach, a.Attenuated, a.Outer, peer
}

// Direct returns the submission of do, without an outbox. An object of Space.create through which
// no stream was opened has no authority, and is refused here: a commit would make a row for any
// session that its holder names.
func (a *Authority) Direct(do *decide.Direct, peer string) (decide.Submission, *fault.Error) {
	sub := decide.Submission{Batch: ledger.Batch{Session: a.Session}, Direct: do}
	a.Stamp(&sub, peer)
	if a.Space == "" {
		return sub, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.streams) == 0 {
		return sub, fault.UnknownRef.With("session %s is not known to be yours: open a stream first, or restore its own ref", a.Session)
	}
	sub.Batch.Outbox = a.streams[len(a.streams)-1]
	return sub, nil
}

// Check returns the grant that allows need on the session now, or why not. It returns the grant
// of a dead ref too, and of a deleted session (SessionDeleted) unless the ref was removed with
// the session.
func (a *Authority) Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	if a.Reach && at.Row != nil && at.Row.Forgotten { // what was above it is forgotten, too
		return nil, fanout.SessionDeleted()
	}
	var opened *capability.Grant // of a session that was opened through a ref of another
	var notOpen *fault.Error
	switch { // before all else: who does not reach a session, or may not manage its space, learns nothing of it
	case a.Reach:
		if opened, notOpen = decide.CheckReaching(at, a.Session, a.Ref, a.Outer); notOpen != nil {
			return opened, notOpen
		}
	case a.Manage:
		if opened, notOpen = decide.CheckManaging(at, a.Session, a.Ref, a.Outer); opened == nil {
			return nil, notOpen
		}
	}
	if at.Row == nil || at.Row.Life == session.Absent {
		return nil, fault.NotFound.With("session %s does not exist: its create op has not been applied", a.Session)
	}
	if at.Row.Forgotten && (a.Space != "" || a.Manage || at.Grants[a.Ref] == nil) {
		return nil, fanout.SessionDeleted()
	}
	stream := ""
	if a.hasStream(at.Row.Creator) {
		stream = at.Row.Creator
	}
	id, ok := decide.ActingRef(at.Row, a.Ref, a.Space, stream)
	if !ok {
		return nil, fault.UnknownRef.With("session %s was made by another outbox: restore a ref to it", a.Session)
	}
	grant := at.Grants[id]
	switch {
	case notOpen != nil:
		return opened, notOpen
	case opened != nil:
		grant = opened
	case grant != nil && (grant.Target != a.Session || a.Space != "" && !grant.Owner):
		grant = nil // of another session, or named by its creator and not its owner
	}
	acting, refused := capability.CheckLive(grant, a.Attenuated, at.Row.Epoch, at.Now, need, "")
	if refused == nil && at.Row.Life == session.Deleted {
		refused = fanout.SessionDeleted()
	}
	return acting, refused
}

// Reader is an authority as a reader uses it who understands some features. It refuses, with
// Incompatible, what that reader would misread.
type Reader struct {
	*Authority
	Understands session.Features
}

// Check is Authority.Check, for a reader.
func (r Reader) Check(at *session.Access, need capability.Rights) (*capability.Grant, *fault.Error) {
	grant, refused := r.Authority.Check(at, need)
	if refused == nil {
		refused = at.Row.CheckReader(grant, r.Understands)
	}
	return grant, refused
}

// InProcess returns the reader of a handler within the process, which is of this version.
func (a *Authority) InProcess() Reader { return Reader{a, session.AllFeatures} }

// Attenuate returns a's authority with limits, which were made from a grant that Check returned.
// It has that grant's ref, whoever the object is passed on to.
func (a *Authority) Attenuate(limits *capability.Grant) *Authority {
	as := &Authority{Session: a.Session, Ref: limits.ID, Attenuated: limits}
	if a.Manage || a.Reach {
		as.Manage, as.Reach, as.Outer = a.Manage, a.Reach, a.Outer
	}
	return as
}

// Child returns the authority in a session below.
func (a *Authority) Child(id string) (*Authority, *fault.Error) {
	as := &Authority{Session: id, Ref: a.Ref, Reach: true, Outer: a.Attenuated}
	switch {
	case a.Space != "" || a.Manage:
		return nil, fault.MissingRight.With("the sessions below this one are opened by a ref of it that reaches them, or through the space")
	case a.Reach && a.Attenuated != nil:
		return nil, fault.MissingRight.With("a live capability with limits does not reach further down")
	case a.Reach:
		as.Outer = a.Outer
	}
	return as, nil
}
