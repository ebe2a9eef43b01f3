// Sealed refs: the proof that redeeming one takes, and the round trip it costs. The caller gets a
// promise at once; calls on it are sent together with the restore, and no other call waits.

package serverconn

import (
	"context"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// maxChallenges bounds the challenges of one connection that are in flight: a server drops the
// oldest of 64.
const maxChallenges = 32

// challengeQueue bounds concurrent challenges. It is safe for concurrent use.
type challengeQueue struct {
	mu      sync.Mutex
	running int // in flight
	waiting []func()
}

// start runs f, now or when another challenge finishes. After f has run, finish must be called.
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

// noWait is the context of calls made where an answer arrives: they must not wait for room on the
// connection, and fail as overloaded without room.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// restoreSealed is restore for a sealed ref.
func (p *Peer) restoreSealed(ref capability.Ref, redemption string) *rpc.Ref {
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

// challenge requests a nonce, and then the capability with the proof.
func (p *Peer) challenge(ref capability.Ref, redemption string, r *restoredRef, resolve func(*rpc.Ref, error)) {
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
		held := p.isCurrent(key, r) // else r was released, as when the connection has ended
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

// brokenBy returns an exception that FaultOf decodes as f.
func brokenBy(f *fault.Error) error { return rpc.Failedf("%s", f.Reason()) }
