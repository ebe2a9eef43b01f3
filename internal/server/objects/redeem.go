// Redemption: a ref and its secret become authority. Gateway.challenge and the verification of proofs:
// that the redeemer of a sealed ref has its key, now, on this connection, and dialled this server.

package objects

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// redeem checks a ref's secret and counts the redemption. It returns the grant of a dead ref with
// the right secret too, without counting. first reports that the redemption was counted, or could have
// been, and was none that is repeated. proven checks the proof of a sealed ref, dead or not; it
// is called only if the secret is right. A possible ref to a forgotten session, whose grants are
// gone, gives a grant with an id and target alone. Errors: UnknownRef, NotYetKnown, Sealed,
// Exhausted, and the store's.
func (s *Service) redeem(ctx context.Context, id string, secret capability.Secret, redemption, peer string,
	proven func(*capability.Grant) *fault.Error) (grant *capability.Grant, first bool, err error) {
	if redemption == "" {
		redemption = ulid.Make().String() // without an id each redemption counts
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ReadTimeout)
	defer cancel()
	var refused *fault.Error
	var seen *session.Redemption
	err = s.cfg.Store.Redeem(ctx, id, redemption, peer, func(r *session.Redemption) error {
		seen, grant, refused = r, r.Grant, capability.Authenticate(r.Grant, id, secret)
		if grant == nil && r.Row != nil && r.Row.Forgotten && (capability.DerivedFrom(id, secret) || !capability.ClientMade(id)) {
			return errForgotten
		}
		if refused != nil {
			return refused
		}
		if refused = proven(grant); refused != nil {
			return refused
		}
		dead := capability.Check(grant, epochOf(&r.Access), r.Now, 0, "")
		if dead == nil && r.Row != nil && r.Row.Life == session.Deleted {
			dead = fanout.SessionDeleted()
		}
		if dead != nil {
			refused = dead
			return errDeadRef
		}
		if refused = capability.CheckRedemption(grant, r.LimitedAncestors, r.AlreadyCounted); refused != nil {
			return refused
		}
		return nil
	})
	switch {
	case err == errForgotten: // otherwise anyone who knows the session's id could write to its audit
		return &capability.Grant{ID: id, Target: capability.Target(id)}, false, nil
	case err == errDeadRef:
		s.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditDenial, Ref: id, Actor: grant.Actor, Subject: "restore", Reason: refused.Code, Peer: peer})
		return grant, false, nil
	case err == nil && seen.Uncounted:
		s.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditRedeem, Ref: id, Actor: grant.Actor})
	case refused == nil || err == nil:
	case refused.Code == fault.UnknownRef:
		row := capability.AuditRow{Act: capability.AuditStranger, Reason: refused.Code, Peer: peer}
		if grant != nil { // the id of an existing ref, with a wrong secret
			row.Target, row.Ref = grant.Target, grant.ID
		}
		s.cfg.Audit.AddDenial(row)
	case refused.Code == fault.Exhausted, refused.Code == fault.Sealed:
		s.cfg.Audit.AddDenial(capability.AuditRow{Target: grant.Target, Act: capability.AuditDenial, Ref: id, Actor: grant.Actor, Subject: "restore", Reason: refused.Code, Peer: peer})
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

func cursorOf(at *session.Access) uint64 {
	if at.Row == nil {
		return 0
	}
	return at.Row.Cursor
}

func epochOf(at *session.Access) uint64 {
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

// challenges holds the unused nonces of one connection. It is safe for concurrent use.
type challenges struct {
	mu   sync.Mutex
	open []challenge // oldest first
}

type challenge struct {
	nonce  [capability.NonceBytes]byte
	issued time.Time
}

// issue returns a new nonce.
func (cs *challenges) issue(now time.Time) []byte {
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
func (cs *challenges) consume(nonce []byte, now time.Time) bool {
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

func (g *gateway) challenge(c *rpc.Call) {
	nonce := g.challenges.issue(g.service.cfg.Now())
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error { return s.SetData(0, nonce) })
}

// proofVerifier returns the check of a's proof against the grant of its ref. The nonce is consumed
// at once, whatever the check returns.
func (g *gateway) proofVerifier(a credential) func(*capability.Grant) *fault.Error {
	fresh := len(a.proof.Nonce) > 0 && g.challenges.consume(a.proof.Nonce, g.service.cfg.Now())
	return func(grant *capability.Grant) *fault.Error {
		if len(grant.Seal) == 0 {
			return nil
		}
		if refused := capability.CheckProof(grant.Seal, a.proof, a.id, a.redemption); refused != nil {
			return refused
		}
		switch {
		case !fresh:
			return fault.Sealed.With("the proof is for a challenge that this connection did not get, that was used, or that is more than %v old: ask for a new one", challengeTTL)
		case !g.service.isOwnAudience(a.proof.Audience):
			return fault.Sealed.With("the proof was made for a server at another address than this one knows as its own: its operator must add that address (mooring serve --advertise, or server.Config.Hosts)")
		}
		return nil
	}
}

// isOwnAudience reports whether audience is one of Config.Audiences.
func (s *Service) isOwnAudience(audience string) bool {
	return slices.ContainsFunc(s.cfg.Audiences, func(own string) bool { return strings.EqualFold(own, audience) })
}
