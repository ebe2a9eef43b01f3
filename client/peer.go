// One connection: the bootstrap object and what was restored through it.
// Nothing here waits for an answer before it goes on: restore, open, apply and
// subscribe are pipelined on one another, so all of them leave at once.

package client

import (
	"context"
	"crypto/ed25519"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// peer is one live connection to a server. When it ends, everything got
// through it is dead and one starts over from sturdy refs at another peer.
type peer struct {
	conn       *rpc.Conn
	gateway    *rpc.Ref
	hostPort   string             // HOST:PORT as it was dialled
	key        ed25519.PrivateKey // for sealed refs; nil if there is none
	challenges challengeQueue

	ended chan error // gets the error that the connection ended with

	helloDone chan struct{}         // closed when hello has come to something
	ready     atomic.Bool           // it was answered
	rejected  atomic.Pointer[error] // why this server is of no use

	// sending is held while a batch is sent, so that one that found room has it.
	sending      sync.Mutex
	fastPathAcks atomic.Uint64 // acks that were read so

	mu       sync.Mutex
	live     map[string]*restoredRef // by liveKey, or as creating says
	previous map[string]*restoredRef // likewise: those not used since live was begun
	released bool                    // all was given back: the connection has ended
}

// maxLive is how many capabilities are used before those are let go of that were
// not used meanwhile: a program that lasts may come to know any number of sessions,
// and a server lets a connection hold only so many.
const maxLive = 1024

// restoredRef is a sturdy ref's live capability, perhaps a promise of it still.
type restoredRef struct {
	cap      *rpc.Ref
	answer   *rpc.Promise  // what it is of; for a sealed ref nil before its proof is under way
	resolved chan struct{} // closed when the answer is there
}

func newPeer(conn *rpc.Conn, gateway *rpc.Ref, at string, key ed25519.PrivateKey) *peer {
	return &peer{conn: conn, gateway: gateway, hostPort: at, key: key, live: map[string]*restoredRef{},
		ended: make(chan error, 1), helloDone: make(chan struct{})}
}

// hello sends hello and looks at the answer when it comes: limits is told what
// the server takes. A server that speaks no version we do, or does not answer,
// is of no use.
func (p *peer) hello(ctx context.Context, agent string, limits func(ledger.Limits)) {
	late := time.AfterFunc(helloTimeout, func() {
		p.reject(fault.Unavailable.With("the server at %s takes connections and does not answer", p.hostPort))
	})
	answer := callHello(ctx, p.gateway, agent)
	answer.Notify(func() {
		late.Stop()
		defer close(p.helloDone)
		defer answer.Release()
		results, _, err := answer.Wait(ctx)
		if err == nil {
			hello := wire.Gateway_hello_Results(results)
			if v := hello.Version(); v == 0 || v > protocolVersion {
				err = fault.Incompatible.With("the server speaks version %d of the protocol and this client %d: update the older one", v, protocolVersion)
			} else if l, e := hello.Limits(); e == nil {
				limits(ledger.Limits{BatchOps: int(l.BatchOps()), BatchBytes: int(l.BatchBytes()), PayloadBytes: int(l.PayloadBytes())})
			}
		}
		if err != nil {
			p.reject(faultOf(err))
			return
		}
		p.ready.Store(true)
	})
}

// reject ends a connection that is of no use, and says why.
func (p *peer) reject(why error) {
	p.rejected.CompareAndSwap(nil, &why)
	p.conn.Close("of no use")
}

// awaitHello waits for the answer to hello: nil if the server is of use.
func (p *peer) awaitHello(ctx context.Context) error {
	select {
	case <-p.helloDone:
		return p.rejection()
	case <-ctx.Done():
		return fault.Canceled.Because(ctx.Err(), "another host was faster")
	}
}

// rejection is why the server was of no use; nil if it was.
func (p *peer) rejection() error {
	if bad := p.rejected.Load(); bad != nil {
		return *bad
	}
	return nil
}

// discard ends a connection that nobody has got. p may be nil.
func (p *peer) discard() {
	if p == nil {
		return
	}
	p.conn.Close("not needed")
	<-p.ended
	p.release()
}

// fail says what a call's error means: if this server turned out to be of no
// use, that, else the error as a fault.
func (p *peer) fail(err error) error {
	if bad := p.rejection(); bad != nil {
		return bad
	}
	return faultOf(err)
}

// tryReserve takes sending if that is free and a call would leave at once.
func (p *peer) tryReserve() bool {
	if !p.sending.TryLock() {
		return false
	}
	if p.conn.HasRoom() {
		return true
	}
	p.sending.Unlock()
	return false
}

// closed says whether the connection has ended.
func (p *peer) closed() bool {
	select {
	case <-p.conn.Done():
		return true
	default:
		return false
	}
}

// restore gives the live capability of a ref, for the caller to release. The
// same one is used for as long as the connection lasts, unless many others are
// meanwhile, so that calls through one ref keep their order. redemption is the id
// the outbox keeps for the ref.
func (p *peer) restore(ctx context.Context, ref capability.Ref, redemption string) *rpc.Ref {
	if capability.Sealed(ref.ID) {
		return p.restoreSealed(ref, redemption)
	}
	return p.cached(liveKey(ref), func() *rpc.Promise {
		return callRestore(ctx, p.gateway, ref, redemption, capability.Proof{})
	})
}

// liveKey is the key that a ref's live capability is found by. The secret is in it: a
// caller that knows the id alone must not be given the capability that another has
// restored.
func liveKey(ref capability.Ref) string {
	hash := ref.Secret.Hash()
	return ref.ID + "#" + string(hash[:])
}

// restoreAndWait is restore that waits for the answer. What is proof of an authority
// beside a batch must be settled when the batch arrives: its outcome is recorded.
func (p *peer) restoreAndWait(ctx context.Context, ref capability.Ref, redemption string) *rpc.Ref {
	live := p.restore(ctx, ref, redemption)
	key := liveKey(ref)
	p.mu.Lock()
	r := p.live[key]
	if r == nil {
		r = p.previous[key]
	}
	p.mu.Unlock()
	if r != nil {
		select {
		case <-r.resolved:
		case <-ctx.Done():
		}
	}
	return live
}

// createSession gives the object of a session that a space's ref, whose live capability
// space is, is about to create.
func (p *peer) createSession(ctx context.Context, through capability.Ref, space *rpc.Ref, session, owner string) *rpc.Ref {
	return p.cached("create "+owner+" in "+session+" through "+liveKey(through), func() *rpc.Promise {
		return callCreate(ctx, space, session, owner)
	})
}

// cached gives what is known under a key, or asks for it.
func (p *peer) cached(key string, ask func() *rpc.Promise) *rpc.Ref {
	return p.getOrStart(key, func(r *restoredRef) (after func()) {
		answer := ask()
		r.cap, r.answer = answer.Cap(0), answer
		return func() { p.resolveOnAnswer(key, r) }
	})
}

// getOrStart gives what is known under a key, or has begin make it, and runs what that
// leaves to do without locks.
func (p *peer) getOrStart(key string, begin func(r *restoredRef) (after func())) *rpc.Ref {
	p.mu.Lock()
	if p.released {
		p.mu.Unlock()
		return rpc.NewBroken(errConnLost)
	}
	if r := p.live[key]; r != nil {
		defer p.mu.Unlock()
		return r.cap.AddRef()
	}
	r, after := p.previous[key], func() {}
	if r == nil {
		r = &restoredRef{resolved: make(chan struct{})}
		after = begin(r)
	}
	delete(p.previous, key)
	var unused map[string]*restoredRef
	if len(p.live) == maxLive {
		unused, p.previous, p.live = p.previous, p.live, map[string]*restoredRef{}
	}
	p.live[key] = r
	out := r.cap.AddRef()
	p.mu.Unlock()
	after()
	for _, r := range unused {
		r.release()
	}
	return out
}

// isCurrent says whether r is what is known under a key. mu is held.
func (p *peer) isCurrent(key string, r *restoredRef) bool {
	return p.live[key] == r || p.previous[key] == r
}

// resolveOnAnswer says what has become of r when its answer is there.
func (p *peer) resolveOnAnswer(key string, r *restoredRef) {
	r.answer.Notify(func() {
		_, _, err := r.answer.Wait(context.Background())
		p.resolve(key, r, err)
	})
}

// resolve lets those go on who wait for r, and forgets a capability that could
// not be got, so that the next use asks for it anew.
func (p *peer) resolve(key string, r *restoredRef, err error) {
	close(r.resolved)
	if err == nil {
		return
	}
	p.mu.Lock()
	held := p.isCurrent(key, r)
	if held {
		delete(p.live, key)
		delete(p.previous, key)
	}
	p.mu.Unlock()
	if held {
		r.release()
	}
}

func (r *restoredRef) release() {
	r.cap.Release()
	if r.answer != nil {
		r.answer.Release()
	}
}

// errConnLost is what those are told who come with a peer that was still there when they got it.
var errConnLost = rpc.Disconnectedf("the connection was lost")

// bootstrap gives the server's bootstrap object, for the caller to release.
func (p *peer) bootstrap() *rpc.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return rpc.NewBroken(errConnLost)
	}
	return p.gateway.AddRef()
}

// release gives everything back, after the connection has ended.
func (p *peer) release() {
	p.mu.Lock()
	p.released = true
	live, older := p.live, p.previous
	p.live, p.previous = nil, nil
	p.mu.Unlock()
	for _, known := range []map[string]*restoredRef{live, older} {
		for _, r := range known {
			r.release()
		}
	}
	p.gateway.Release()
}
