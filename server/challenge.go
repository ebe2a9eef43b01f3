// Gateway.challenge, and the check of what comes back: that whoever redeems a
// sealed ref has its key, now, on this connection, and dialled this server.

package server

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

// A challenge is good for challengeLife; of more than challengesOpen of one
// connection the oldest is forgotten.
const (
	challengeLife  = time.Minute
	challengesOpen = 64
)

// challenges are the nonces given over one connection that nothing has come back for.
type challenges struct {
	mu   sync.Mutex
	open []challenge // oldest first
}

type challenge struct {
	nonce [capability.NonceBytes]byte
	given time.Time
}

// give makes a nonce.
func (cs *challenges) give(now time.Time) []byte {
	c := challenge{given: now}
	_, _ = rand.Read(c.nonce[:]) // never fails: it ends the process instead
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.open) == challengesOpen {
		cs.open = slices.Delete(cs.open, 0, 1)
	}
	cs.open = append(cs.open, c)
	return c.nonce[:]
}

// take uses a nonce up, and says whether it was good.
func (cs *challenges) take(nonce []byte, now time.Time) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	i := slices.IndexFunc(cs.open, func(c challenge) bool { return string(c.nonce[:]) == string(nonce) })
	if i < 0 {
		return false
	}
	given := cs.open[i].given
	cs.open = slices.Delete(cs.open, i, i+1)
	return now.Sub(given) < challengeLife
}

func (g *gateway) challenge(c *rpc.Call) {
	nonce := g.given.give(g.server.now())
	c.Return(words(0, 1), func(s capnp.Struct, _ *rpc.CapTable) error { return s.SetData(0, nonce) })
}

// prover gives the check of a's proof against the ref it turns out to be for. The
// nonce is used up at once, whatever comes of it.
func (g *gateway) prover(a showing) func(*capability.Grant) *fault.Error {
	fresh := len(a.proof.Nonce) > 0 && g.given.take(a.proof.Nonce, g.server.now())
	return func(grant *capability.Grant) *fault.Error {
		if len(grant.Seal) == 0 {
			return nil
		}
		if refused := capability.CheckProof(grant.Seal, a.proof, a.id, a.redemption); refused != nil {
			return refused
		}
		switch {
		case !fresh:
			return fault.Sealed.With("the proof is for no challenge of this connection, for one that was used, or for one of more than %v ago: ask for a new one", challengeLife)
		case !g.server.known(a.proof.Audience):
			return fault.Sealed.With("the proof was made for a server at another address than this one knows as its own: its owner must name that address with mooring serve --advertise")
		}
		return nil
	}
}

// known says whether clients are known to reach this server at HOST:PORT.
func (s *Server) known(audience string) bool {
	return slices.ContainsFunc(s.cfg.Audiences, func(own string) bool { return strings.EqualFold(own, audience) })
}
