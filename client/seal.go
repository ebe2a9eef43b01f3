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

// proofsAtOnce bounds the challenges of one connection that are under way: a
// server forgets the oldest of 64.
const proofsAtOnce = 32

// proofs are the turns of those who want a challenge. Safe for concurrent use.
type proofs struct {
	mu      sync.Mutex
	n       int // under way
	waiting []func()
}

// take runs f when it is its turn. Who was let on has to call over.
func (q *proofs) take(f func()) {
	q.mu.Lock()
	if q.n == proofsAtOnce {
		q.waiting = append(q.waiting, f)
		q.mu.Unlock()
		return
	}
	q.n++
	q.mu.Unlock()
	f()
}

func (q *proofs) over() {
	q.mu.Lock()
	if len(q.waiting) == 0 {
		q.n--
		q.mu.Unlock()
		return
	}
	next := q.waiting[0]
	q.waiting = q.waiting[1:]
	q.mu.Unlock()
	next()
}

// atOnce is the context of calls made where an answer arrives: they cannot wait
// for room on the connection, and are overloaded without.
var atOnce = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// unseal is restore for a sealed ref.
func (p *peer) unseal(ref capability.Ref, redemption string) *rpc.Ref {
	if p.key == nil {
		return rpc.NewBroken(broken(fault.Sealed.With("the ref is bound to a key, and there is none here: redeem it where its key is, or give its sharer the public key of this place (mooring key prints it; in Go, client.Config.SealKey has the private one) and ask for a new ref")))
	}
	return p.find(liveKey(ref), func(r *restored) func() {
		var resolve func(*rpc.Ref, error)
		r.cap, resolve = rpc.NewPromise()
		return func() {
			p.proofs.take(func() { p.challenge(ref, redemption, r, resolve) })
		}
	})
}

// challenge asks for a nonce, and with the answer for the capability.
func (p *peer) challenge(ref capability.Ref, redemption string, r *restored, resolve func(*rpc.Ref, error)) {
	key := liveKey(ref)
	gateway := p.bootstrap()
	challenge := callChallenge(atOnce, gateway)
	challenge.Notify(func() {
		defer gateway.Release()
		defer challenge.Release()
		nonce, err := nonceOf(challenge)
		if err != nil {
			resolve(nil, err)
			p.settle(key, r, err)
			p.proofs.over()
			return
		}
		answer := callRestore(atOnce, gateway, ref, redemption, capability.Prove(p.key, nonce, p.at, ref.ID, redemption))
		live := answer.Cap(0)
		p.mu.Lock()
		held := p.holds(key, r) // else r was released: the connection has ended, say
		if held {
			r.answer = answer
		}
		p.mu.Unlock()
		resolve(live, nil)
		live.Release()
		answer.Notify(func() {
			_, _, err := answer.Wait(context.Background())
			p.settle(key, r, err)
			if !held {
				answer.Release()
			}
			p.proofs.over()
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
		return nil, broken(fault.Incompatible.With("the server's challenge cannot be read"))
	}
	return nonce, nil
}

// broken is a fault as faultOf reads it back out of a call.
func broken(f *fault.Error) error { return rpc.Failedf("%s", f.Reason()) }
