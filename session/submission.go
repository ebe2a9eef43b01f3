package session

// What comes into a commit and what goes out of it.

import (
	"sync/atomic"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// Submission is one call that wants a session changed, with the authority it
// comes under. Authority is named by ref ids: the caller vouches that the peer
// holds live objects of those refs (their secrets were shown once, by restore or
// by minting). Whether the refs still allow anything is decided here, on their
// rows, in the transaction.
//
// Exactly one of Batch.Ops, Ack and Direct says what is wanted (with Direct.Ops,
// Batch.Ops say the rest).
type Submission struct {
	// Batch is what a stream's apply carries. Its Session and Outbox are those
	// of the live stream object, whose opening has proven the outbox's secret,
	// and not what the peer wrote: Outbox is the stream's id (StreamKey). For an Ack only Session, Outbox, Incarnation
	// and AckedThrough are read; for a Direct only Session, and Outbox if the
	// object has proven one.
	Batch ledger.Batch

	// Ref is the id of the ref the live session object stands for. For an object
	// that came from a space's create it is the owner ref that create was told of.
	Ref string

	// Space is the id of the space's ref if the object came from its create, else
	// "". The space ref's create right authorizes create and fork. What follows
	// is authorized by Ref, which that op mints, and only for the very outbox
	// whose create applied: whoever else names an owner ref does not hold it.
	Space string

	// Attenuated is what the live object was narrowed to, nil if it is all that Ref
	// allows; SpaceAttenuated is the same for Space.
	Attenuated, SpaceAttenuated *capability.Grant

	// PassedRefs are the refs of the other live sessions passed along: fork's source.
	PassedRefs []string

	// Ack says that this is an acknowledge alone: acked_through without ops.
	Ack bool

	// Direct is what needs no outbox: a revocation, a share, a rotation, or ops
	// that may be said again.
	Direct *Direct

	// Opening is the stream's opening that a batch came over; nil is one of its own.
	Opening *Opening

	// Peer is the address that the call came from, for the audit.
	Peer string
}

// Opening is what one opening of a stream has come to, over all its batches.
// The zero value is one that has just been made.
//
// Batches are sent without waiting for answers. What a copied outbox sends right
// behind the batch that gave it away may have the seq that is next, and must not
// get in for that: from outbox_diverged on everything is answered so.
type Opening struct {
	diverged atomic.Pointer[fault.Error]
}

// Note keeps an answer that decides over what comes behind it, in later groups.
// The caller does so before it has the next group of the session decided.
func (o *Opening) Note(answer *Answer) {
	if o != nil && answer.Err != nil && answer.Err.Code == fault.OutboxDiverged {
		o.diverged.Store(answer.Err)
	}
}

// Direct is Session.revoke of the wire: of Ref and its subtree, or of every
// share if Epoch is set. The rules are those of the ops revoke and bumpEpoch. With
// Share it is Session.share instead, by the rules of the op share, but that the
// same again changes nothing; with Rotate it is Session.rotate.
//
// With Ops it is none of these: Batch.Ops are applied, all or none, and recorded
// nowhere. That is for a caller who keeps no outbox and can say everything again
// without harm: puts and removes, without references, or a create alone. What
// follows a create comes by itself, under the ref that it has minted: the space's
// ref is no authority over the session, and no outbox has proven that it made it.
//
// One of them is wanted: of several that are set, the first below counts.
type Direct struct {
	Rotate *Rotation
	Ops    bool
	Share  *capability.MintRequest
	Epoch  bool
	Ref    string

	// SharedExternalID, of a create, says that other living sessions that were made under the
	// same ref may have its external id too.
	SharedExternalID bool
}

// sharesExternalID says whether s makes a session whose external id others may have.
func (s *Submission) sharesExternalID() bool { return s.Direct != nil && s.Direct.SharedExternalID }

// Rotation is the new ref, made by a client, that is to take the place of the one
// that is asked through.
type Rotation struct {
	ID   string
	Hash [32]byte
}

// Answer is what became of one Submission.
type Answer struct {
	// Err answers the call as a whole: nothing was recorded or changed by it, and
	// a batch may come again as it is. For a Direct it is also the refusal.
	Err *fault.Error

	Outcomes  []ledger.Outcome       // one an op, in order; not to be changed
	Duplicate bool                   // they are from before: a batch is recorded and repeated whole
	Cursor    uint64                 // the session's after the submission; 0 for a ref that may do nothing there
	Cut       uint64                 // Direct: the cursor after which nothing under that authority commits
	Epoch     uint64                 // Direct: the session's epoch now
	Denied    []*capability.AuditRow // denials without a row of their own, by reason: to be counted when the transaction has committed
	Uses      []Use                  // what was done now, by ref and method: to be counted when the transaction has committed
}

// Use is how often a ref was used for a method.
type Use struct {
	Ref, Actor, Method string
	Count              uint32
}

// Counts are the ack's sums: of ops applied now, repeated, and recorded now as anything else.
func (a *Answer) Counts() (applied, duplicates, rejected int) {
	for i := range a.Outcomes {
		switch {
		case a.Duplicate:
			duplicates++
		case a.Outcomes[i].Status == ledger.Applied:
			applied++
		default:
			rejected++
		}
	}
	return applied, duplicates, rejected
}

// Published is what a committed group changed, for subscribers: to be told
// after the commit and never before.
type Published struct {
	Sessions []PublishedSession // only those with events, by id
}

// PublishedSession is one session's news. Events follow one another up to
// Row.Cursor. AuthChanged says that authority over it changed: whoever holds
// live objects of it looks at their refs again.
type PublishedSession struct {
	Row         Row
	Events      []*Event
	AuthChanged bool
}
