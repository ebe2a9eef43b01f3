// Redemption: a ref and its secret become authority. The proofs of sealed refs are checked here: that the redeemer
// has the ref's key, now, on this connection, and dialled this server.

package authority

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Credential is what a client shows to redeem a ref: its id and secret, a redemption id, and a proof if the ref is
// sealed.
type Credential struct {
	ID         string
	Secret     capability.Secret
	Redemption string
	Proof      capability.Proof
}

// RedeemerConfig configures a Redeemer. All fields are required.
type RedeemerConfig struct {
	Store       RedemptionStore
	Audit       *admission.Auditor
	Now         func() time.Time
	ReadTimeout time.Duration // of one redemption
	Audiences   []string      // HOST:PORTs at which clients reach this server
}

// RedemptionStore is the store of a Redeemer.
type RedemptionStore interface {
	// Redeem calls admit to decide on a ref. If admit returns nil, a redemption id not
	// counted before is counted, and audited with the address of peer.
	Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error
}

// Redeemer redeems the refs of all connections. It is safe for concurrent use.
type Redeemer struct{ cfg RedeemerConfig }

// NewRedeemer returns a Redeemer.
func NewRedeemer(cfg RedeemerConfig) *Redeemer { return &Redeemer{cfg} }

// Redeem checks a ref's secret and counts the redemption. It returns the grant of a dead ref with
// the right secret too, without counting. first reports that the redemption was counted, or could have
// been, and was none that is repeated. The proof of a sealed ref, dead or not, is checked against
// the challenges of the connection, only if the secret is right. A possible ref to a forgotten session,
// whose grants are gone, gives a grant with an id and target alone. Errors: UnknownRef, NotYetKnown, Sealed,
// Exhausted, and the store's.
func (r *Redeemer) Redeem(ctx context.Context, c Credential, peer string, open *Challenges) (grant *capability.Grant, first bool, err error) {
	id, secret, redemption, proven := c.ID, c.Secret, c.Redemption, r.proofVerifier(c, open)
	if redemption == "" {
		redemption = ulid.Make().String() // without an id each redemption counts
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ReadTimeout)
	defer cancel()
	var refused *fault.Error
	var seen *session.Redemption
	err = r.cfg.Store.Redeem(ctx, id, redemption, peer, func(row *session.Redemption) error {
		seen, grant, refused = row, row.Grant, capability.Authenticate(row.Grant, id, secret)
		if grant == nil && row.Row != nil && row.Row.Forgotten && (capability.DerivedFrom(id, secret) || !capability.ClientMade(id)) {
			return errForgotten
		}
		if refused != nil {
			return refused
		}
		if refused = proven(grant); refused != nil {
			return refused
		}
		dead := capability.Check(grant, EpochOf(&row.Access), row.Now, 0, "")
		if dead == nil && row.Row != nil && row.Row.Life == session.Deleted {
			dead = fanout.SessionDeleted()
		}
		if dead != nil {
			refused = dead
			return errDeadRef
		}
		if refused = capability.CheckRedemption(grant, row.LimitedAncestors, row.AlreadyCounted); refused != nil {
			return refused
		}
		return nil
	})
	switch {
	case err == errForgotten: // otherwise anyone who knows the session's id could write to its audit
		return &capability.Grant{ID: id, Target: capability.Target(id)}, false, nil
	case err == errDeadRef:
		r.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditDenial, Ref: id, Actor: grant.Actor, Subject: "restore", Reason: refused.Code, Peer: peer})
		return grant, false, nil
	case err == nil && seen.Uncounted:
		r.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditRedeem, Ref: id, Actor: grant.Actor})
	case refused == nil || err == nil:
	case refused.Code == fault.UnknownRef:
		row := capability.AuditRow{Act: capability.AuditStranger, Reason: refused.Code, Peer: peer}
		if grant != nil { // the id of an existing ref, with a wrong secret
			row.Target, row.Ref = grant.Target, grant.ID
		}
		r.cfg.Audit.AddDenial(row)
	case refused.Code == fault.Exhausted, refused.Code == fault.Sealed:
		r.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditDenial, Ref: id, Actor: grant.Actor, Subject: "restore", Reason: refused.Code, Peer: peer})
	}
	if err != nil {
		return nil, false, err
	}
	return grant, !seen.AlreadyCounted, nil
}

// errDeadRef aborts the transaction of a redemption that is not counted, without refusing it.
var errDeadRef = fault.Canceled.With("a dead ref is not redeemed")

// errForgotten is errDeadRef for a ref without a grant, of a forgotten session.
var errForgotten = fault.Canceled.With("a forgotten session's ref is not redeemed")

// EpochOf returns the epoch of the session, 0 if there is none.
func EpochOf(at *session.Access) uint64 {
	if at.Row == nil {
		return 0
	}
	return at.Row.Epoch
}

// A challenge expires after challengeTTL. Beyond maxOpenChallenges of one connection the
// oldest is dropped.
const (
	challengeTTL      = time.Minute
	maxOpenChallenges = 64
)

// Challenges holds the unused nonces of one connection. It is safe for concurrent use.
type Challenges struct {
	mu   sync.Mutex
	open []challenge // oldest first
}

type challenge struct {
	nonce  [capability.NonceBytes]byte
	issued time.Time
}

// Issue returns a new nonce.
func (cs *Challenges) Issue(now time.Time) []byte {
	c := challenge{issued: now}
	_, _ = rand.Read(c.nonce[:]) // never fails: it ends the process instead
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.open) == maxOpenChallenges {
		cs.open = slices.Delete(cs.open, 0, 1)
	}
	cs.open = append(cs.open, c)
	return c.nonce[:]
}

// consume removes a nonce, and reports whether it was issued and has not expired.
func (cs *Challenges) consume(nonce []byte, now time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.IndexFunc(cs.open, func(c challenge) bool { return string(c.nonce[:]) == string(nonce) })
	if i < 0 {
		return false
	}
	given := cs.open[i].issued
	cs.open = slices.Delete(cs.open, i, i+1)
	return now.Sub(given) < challengeTTL
}

// proofVerifier returns the check of c's proof against the grant of its ref. The nonce is consumed
// at once, whatever the check returns.
func (r *Redeemer) proofVerifier(c Credential, open *Challenges) func(*capability.Grant) *fault.Error {
	fresh := len(c.Proof.Nonce) > 0 && open.consume(c.Proof.Nonce, r.cfg.Now())
	return func(grant *capability.Grant) *fault.Error {
		if len(grant.Seal) == 0 {
			return nil
		}
		if refused := capability.CheckProof(grant.Seal, c.Proof, c.ID, c.Redemption); refused != nil {
			return refused
		}
		switch {
		case !fresh:
			return fault.Sealed.With("the proof is for a challenge that this connection did not get, that was used, or that is more than %v old: ask for a new one", challengeTTL)
		case !r.isOwnAudience(c.Proof.Audience):
			return fault.Sealed.With("the proof was made for a server at another address than this one knows as its own: its operator must add that address (mooring serve --advertise, or server.Config.Hosts)")
		}
		return nil
	}
}

// isOwnAudience reports whether audience is one of RedeemerConfig.Audiences.
func (r *Redeemer) isOwnAudience(audience string) bool {
	return slices.ContainsFunc(r.cfg.Audiences, func(own string) bool { return strings.EqualFold(own, audience) })
}
