// Sealed refs: the proof that redeeming one takes, and the round trip it costs.
// Whoever asks for such a ref gets a promise at once and goes on; what is called
// on it meanwhile leaves together with the restore, and nothing else waits.

package client

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// maxChallenges bounds the challenges of one connection that are under way: a
// server forgets the oldest of 64.
const maxChallenges = 32

// challengeQueue are the turns of those who want a challenge. Safe for concurrent use.
type challengeQueue struct {
	mu      sync.Mutex
	running int // under way
	waiting []func()
}

// start runs f when it is its turn. Whoever was let on has to call finish.
func (q *challengeQueue) start(f func()) {
	q.mu.Lock()
	if q.running == maxChallenges {
		q.waiting = append(q.waiting, f)
		q.mu.Unlock()
		return
	}
	q.running++
	q.mu.Unlock()
	f()
}

func (q *challengeQueue) finish() {
	q.mu.Lock()
	if len(q.waiting) == 0 {
		q.running--
		q.mu.Unlock()
		return
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.mu.Unlock()
	next()
}

// noWait is the context of calls made where an answer arrives: they cannot wait
// for room on the connection, and are overloaded without.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// restoreSealed is restore for a sealed ref.
func (p *peer) restoreSealed(ref capability.Ref, redemption string) *rpc.Ref {
	if p.key == nil {
		return rpc.NewBroken(brokenBy(fault.Sealed.With("the ref is bound to a key, and there is none here: redeem it where its key is, or give its sharer the public key of this place (mooring key prints it; in Go, client.Config.SealKey has the private one) and ask for a new ref")))
	}
	return p.getOrStart(liveKey(ref), func(r *restoredRef) func() {
		var resolve func(*rpc.Ref, error)
		r.cap, resolve = rpc.NewPromise()
		return func() {
			p.challenges.start(func() { p.challenge(ref, redemption, r, resolve) })
		}
	})
}

// challenge asks for a nonce, and with the answer for the capability.
func (p *peer) challenge(ref capability.Ref, redemption string, r *restoredRef, resolve func(*rpc.Ref, error)) {
	key := liveKey(ref)
	gateway := p.bootstrap()
	challenge := callChallenge(noWait, gateway)
	challenge.Notify(func() {
		defer gateway.Release()
		defer challenge.Release()
		nonce, err := nonceOf(challenge)
		if err != nil {
			resolve(nil, err)
			p.resolve(key, r, err)
			p.challenges.finish()
			return
		}
		answer := callRestore(noWait, gateway, ref, redemption, capability.Prove(p.key, nonce, p.hostPort, ref.ID, redemption))
		live := answer.Cap(0)
		p.mu.Lock()
		held := p.isCurrent(key, r) // else r was released: the connection has ended, say
		if held {
			r.answer = answer
		}
		p.mu.Unlock()
		resolve(live, nil)
		live.Release()
		answer.Notify(func() {
			_, _, err := answer.Wait(context.Background())
			p.resolve(key, r, err)
			if !held {
				answer.Release()
			}
			p.challenges.finish()
		})
	})
}

func nonceOf(challenge *rpc.Promise) ([]byte, error) {
	results, _, err := challenge.Wait(context.Background())
	if err != nil {
		return nil, err
	}
	nonce, err := wire.Gateway_challenge_Results(results).Nonce()
	if err != nil || len(nonce) != capability.NonceBytes {
		return nil, brokenBy(fault.Incompatible.With("the server's challenge cannot be read"))
	}
	return nonce, nil
}

// brokenBy is a fault as faultOf reads it back out of a call.
func brokenBy(f *fault.Error) error { return rpc.Failedf("%s", f.Reason()) }
