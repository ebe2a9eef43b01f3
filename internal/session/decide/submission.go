package decide

// The input and output of a commit, and its configuration.

import (
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// Submission is one call that changes a session, with the authority it is made under. The authority
// is named by ref ids: the caller guarantees that the peer holds live objects of those refs (it has
// shown their secrets once, to restore or when minting). Whether the refs still allow anything is
// decided in the transaction, on their rows.
//
// Exactly one of Batch.Ops, Ack and Direct is set; Direct.Ops goes with Batch.Ops.
type Submission struct {
	// Batch is the batch of a stream's apply. Its Session and Outbox are the live stream object's,
	// whose opening has proven the outbox's secret, and not the peer's: Outbox is the stream's id
	// (StreamKey). An Ack uses only Session, Outbox, Incarnation and AckedThrough; a Direct only
	// Session, and Outbox if the object has proven one.
	Batch ledger.Batch

	// Ref is the id of the live session object's ref. For an object from a space's create it is the
	// owner ref that create mints.
	Ref string

	// Space is the id of the space's ref if the object came from its create, else "". The space
	// ref's create right authorizes create and fork. Later ops are authorized by Ref, which that op
	// mints, and only for the outbox whose create applied: naming an owner ref is not holding it.
	Space string

	// Manage says that Ref is the id of a space's ref, which acts in the session by its right manage.
	Manage bool

	// Reach says that Ref is the id of a ref of a session above, which acts in the session by its rights in children.
	Reach bool

	// Attenuated has the limits of the live object, nil if it has all of Ref's authority. Outer is the same for the
	// live object that it came from: that of Space, with Manage of the space, with Reach of the session above.
	Attenuated, Outer *capability.Grant

	// PassedRefs are the refs of the other live sessions passed in the call: fork's source, create's
	// parent.
	PassedRefs []string

	// Ack marks an acknowledgement alone: AckedThrough without ops.
	Ack bool

	// Direct is a call without an outbox: a revocation, a share, a rotation, or repeatable ops.
	Direct *Direct

	// Opening is the stream's opening that the batch came over; nil is a new one.
	Opening *Opening

	// Peer is the address that the call came from, for the audit.
	Peer string
}

// Opening is the state of one opening of a stream, across its batches. The zero value is a new
// opening.
//
// Batches are sent without waiting for answers. A batch from a copied outbox, sent right behind the
// one that revealed the copy, may have the next seq by chance and must not be applied: after
// outbox_diverged every batch gets the same answer.
type Opening struct {
	diverged atomic.Pointer[fault.Error]
}

// Note stores an answer that also applies to later batches of the opening. The caller calls it
// before it commits the session's next group.
func (o *Opening) Note(answer *Answer) {
	if o != nil && answer.Err != nil && answer.Err.Code == fault.OutboxDiverged {
		o.diverged.Store(answer.Err)
	}
}

// divergences are the openings of copied outboxes that a group has found, with the answer to everything over each.
type divergences map[*Opening]*fault.Error

// of returns the answer to everything over a diverged opening; nil for other openings.
func (d divergences) of(o *Opening) *fault.Error {
	if o == nil {
		return nil
	}
	if err := o.diverged.Load(); err != nil {
		return err
	}
	return d[o]
}

// note records that answer for later submissions of the group.
func (d *divergences) note(o *Opening, err *fault.Error) {
	if o == nil || err.Code != fault.OutboxDiverged {
		return
	}
	if *d == nil {
		*d = divergences{}
	}
	(*d)[o] = err
}

// Direct is Session.revoke of the wire: of Ref and its subtree, or of every share if Epoch is set,
// by the rules of the ops revoke and bumpEpoch. With Share it is Session.share, by the rules of the
// op share, except that a repetition changes nothing; with Rotate it is Session.rotate.
//
// With TakeOver, a submission under Manage may revoke the session's owner's ref, and Rotate replaces it.
//
// With Ops, Batch.Ops are applied, all or none, and not recorded. This is for a caller without an
// outbox that can repeat everything without harm: puts and removes, without references, or a create
// alone. Ops after the create come in other calls, under the ref that it minted: the space's ref
// has no authority over the session, and no outbox has proven that it created it.
//
// With Older, the session is deleted or a key of it purged, if it is old: a repetition finds nothing to do.
//
// If several fields are set, the first below that is set counts.
type Direct struct {
	Rotate *Rotation
	Older  *session.OlderRemoval
	Ops    bool
	Share  *capability.MintRequest
	Epoch  bool
	Ref    string

	TakeOver bool

	// SharedExternalID, for a create, permits other living sessions that were created under the
	// same ref to have the same external id.
	SharedExternalID bool
}

// sharesExternalID reports whether s creates a session whose external id others may have.
func (s *Submission) sharesExternalID() bool { return s.Direct != nil && s.Direct.SharedExternalID }

// Rotation is the new ref, made by a client, that replaces the ref of the call.
type Rotation struct {
	ID   string
	Hash [32]byte
	Old  string // under the right manage: the owner's ref that is replaced
}

// Answer is the result of one Submission.
type Answer struct {
	// Err refuses the call as a whole: nothing was recorded or changed, and the same batch may be
	// sent again. For a Direct it is also the refusal of its op.
	Err *fault.Error

	// Fork is a fork for which Err is the answer as long as it is copied: BeginFork, after the commit.
	Fork *session.ForkRequest

	Outcomes      []ledger.Outcome       // one for each op, in order; not to be changed
	Duplicate     bool                   // Outcomes are recorded ones: the batch was sent before
	Cursor        uint64                 // the session's, after the submission; 0 if the ref may not see it
	At            uint64                 // Direct: the cursor of the last op's event, of the one it repeats, or the session's if it changed nothing
	Cut           uint64                 // Direct: the cursor after which nothing under the revoked authority commits; of Older that of its event, 0 if there was nothing to purge
	Epoch         uint64                 // Direct: the session's epoch now
	Children      []ChildCut             // Direct: as Cut, in children that what was revoked reached: the first 1,000, by id
	ChildrenCount int                    // Direct: how many such children there are
	Denied        []*capability.AuditRow // denials without an audit row, by reason: to be counted after the commit
	Uses          []Use                  // uses in this submission, by ref and method: to be counted after the commit
}

// Use is how often a ref was used for a method.
type Use struct {
	Ref, Actor, Method string
	Session            string // the child that it was used in, if it is a ref of a session above; "" for its own
	Count              uint32
}

// Counts returns the numbers for the ack: of ops applied now, repeated, and recorded now with any
// other outcome.
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

// Config configures Commit and Lapse.
type Config struct {
	Limits session.Limits
	Lease  time.Duration // how long a streaming turn stays so without an op of its stream

	// Features returns the features that every replica knows. An op that needs another is answered
	// Unsupported: it is not recorded, and is sent again. nil: all.
	Features func() session.Features

	// DenialRows returns how many audit rows the denials of a ref's batch may have, of the want
	// that they need; the caller counts the others (Answer.Denied). It may be called again for the
	// same batch. nil: no bound.
	DenialRows func(ref string, want int) int

	// CheckQuota returns the reason that nothing more may be written to a session, or no more
	// sessions created under a ref of a space; it is called when all other checks have passed. nil:
	// no check.
	CheckQuota func(id string) *fault.Error
}

// DefaultConfig returns DefaultLimits with a lease of 30 s.
func DefaultConfig() Config { return Config{Limits: session.DefaultLimits(), Lease: 30 * time.Second} }

// readBytes is how many bytes of payloads one submission may read beyond its own: enough for any
// event of EventBytes, and for a log with some history.
func (c *Config) readBytes() int { return 4 * c.Limits.EventBytes }

// checkFeatures returns the reason that an op cannot be decided yet: some replica does not know a
// feature that it needs.
func (c *Config) checkFeatures(op *ledger.Intent) *fault.Error {
	if c.Features == nil {
		return nil
	}
	need := opargs.Features(op)
	if need == 0 {
		return nil
	}
	return session.CheckFeatures(need, c.Features())
}

// inUse reports whether every replica knows a feature.
func (c *Config) inUse(f session.Features) bool { return c.Features == nil || c.Features()&f == f }
