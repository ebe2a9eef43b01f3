// Gateway.challenge, and the verification of proofs: that the redeemer of a sealed ref has its
// key, now, on this connection, and dialled this server.

package objects

import (
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

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
	c.Return(structSize(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error { return s.SetData(0, nonce) })
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
			return fault.Sealed.With("the proof is for no challenge of this connection, for one that was used, or for one of more than %v ago: ask for a new one", challengeTTL)
		case !g.service.isOwnAudience(a.proof.Audience):
			return fault.Sealed.With("the proof was made for a server at another address than this one knows as its own: its owner must name that address with mooring serve --advertise")
		}
		return nil
	}
}

// isOwnAudience reports whether audience is one of Config.Audiences.
func (s *Service) isOwnAudience(audience string) bool {
	return slices.ContainsFunc(s.cfg.Audiences, func(own string) bool { return strings.EqualFold(own, audience) })
}
