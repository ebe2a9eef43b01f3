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
	conn    *rpc.Conn
	gateway *rpc.Ref
	at      string             // HOST:PORT as it was dialled
	key     ed25519.PrivateKey // for sealed refs; nil if there is none
	proofs  proofs

	ended chan error // gets the error that the connection ended with

	greeted chan struct{}         // closed when hello has come to something
	up      atomic.Bool           // it was answered
	bad     atomic.Pointer[error] // why this server is of no use

	// sending is held while a batch is sent, so that one that found room has it.
	sending sync.Mutex
	byHand  atomic.Uint64 // acks that were read so

	mu    sync.Mutex
	live  map[string]*restored // by liveKey, or as creating says
	older map[string]*restored // likewise: those not used since live was begun
	gone  bool                 // all was given back: the connection has ended
}

// liveAtOnce is how many capabilities are used before those are let go of that were
// not used meanwhile: a program that lasts may come to know any number of sessions,
// and a server lets a connection hold only so many.
const liveAtOnce = 1024

// restored is a sturdy ref's live capability, perhaps a promise of it still.
type restored struct {
	cap    *rpc.Ref
	answer *rpc.Promise  // what it is of; for a sealed ref nil before its proof is under way
	known  chan struct{} // closed when the answer is there
}

func newPeer(conn *rpc.Conn, gateway *rpc.Ref, at string, key ed25519.PrivateKey) *peer {
	return &peer{conn: conn, gateway: gateway, at: at, key: key, live: map[string]*restored{},
		ended: make(chan error, 1), greeted: make(chan struct{})}
}

// greet sends hello and looks at the answer when it comes: limits is told what
// the server takes. A server that speaks no version we do, or does not answer,
// is of no use.
func (p *peer) greet(ctx context.Context, agent string, limits func(ledger.Limits)) {
	late := time.AfterFunc(answerIn, func() {
		p.refuse(fault.Unavailable.With("the server at %s takes connections and does not answer", p.at))
	})
	answer := callHello(ctx, p.gateway, agent)
	answer.Notify(func() {
		late.Stop()
		defer close(p.greeted)
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
			p.refuse(faultOf(err))
			return
		}
		p.up.Store(true)
	})
}

// refuse ends a connection that is of no use, and says why.
func (p *peer) refuse(why error) {
	p.bad.CompareAndSwap(nil, &why)
	p.conn.Close("of no use")
}

// wait waits for the answer to hello: nil if the server is of use.
func (p *peer) wait(ctx context.Context) error {
	select {
	case <-p.greeted:
		return p.useless()
	case <-ctx.Done():
		return fault.Canceled.Because(ctx.Err(), "another host was faster")
	}
}

// useless is why the server was of no use; nil if it was.
func (p *peer) useless() error {
	if bad := p.bad.Load(); bad != nil {
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
	if bad := p.useless(); bad != nil {
		return bad
	}
	return faultOf(err)
}

// room takes sending if that is free and a call would leave at once.
func (p *peer) room() bool {
	if !p.sending.TryLock() {
		return false
	}
	if p.conn.Roomy() {
		return true
	}
	p.sending.Unlock()
	return false
}

// over says whether the connection has ended.
func (p *peer) over() bool {
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
		return p.unseal(ref, redemption)
	}
	return p.reuse(liveKey(ref), func() *rpc.Promise {
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

// settled is restore that waits for the answer. What is proof of an authority
// beside a batch must be settled when the batch arrives: its outcome is recorded.
func (p *peer) settled(ctx context.Context, ref capability.Ref, redemption string) *rpc.Ref {
	live := p.restore(ctx, ref, redemption)
	key := liveKey(ref)
	p.mu.Lock()
	r := p.live[key]
	if r == nil {
		r = p.older[key]
	}
	p.mu.Unlock()
	if r != nil {
		select {
		case <-r.known:
		case <-ctx.Done():
		}
	}
	return live
}

// creating gives the object of a session that a space's ref, whose live capability
// space is, is about to create.
func (p *peer) creating(ctx context.Context, through capability.Ref, space *rpc.Ref, session, owner string) *rpc.Ref {
	return p.reuse("create "+owner+" in "+session+" through "+liveKey(through), func() *rpc.Promise {
		return callCreate(ctx, space, session, owner)
	})
}

// reuse gives what is known under a key, or asks for it.
func (p *peer) reuse(key string, ask func() *rpc.Promise) *rpc.Ref {
	return p.find(key, func(r *restored) (after func()) {
		answer := ask()
		r.cap, r.answer = answer.Cap(0), answer
		return func() { p.watch(key, r) }
	})
}

// find gives what is known under a key, or has begin make it, and runs what that
// leaves to do without locks.
func (p *peer) find(key string, begin func(r *restored) (after func())) *rpc.Ref {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return rpc.NewBroken(errLost)
	}
	if r := p.live[key]; r != nil {
		defer p.mu.Unlock()
		return r.cap.AddRef()
	}
	r, after := p.older[key], func() {}
	if r == nil {
		r = &restored{known: make(chan struct{})}
		after = begin(r)
	}
	delete(p.older, key)
	var unused map[string]*restored
	if len(p.live) == liveAtOnce {
		unused, p.older, p.live = p.older, p.live, map[string]*restored{}
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

// holds says whether r is what is known under a key. mu is held.
func (p *peer) holds(key string, r *restored) bool {
	return p.live[key] == r || p.older[key] == r
}

// watch says what has become of r when its answer is there.
func (p *peer) watch(key string, r *restored) {
	r.answer.Notify(func() {
		_, _, err := r.answer.Wait(context.Background())
		p.settle(key, r, err)
	})
}

// settle lets those go on who wait for r, and forgets a capability that could
// not be got, so that the next use asks for it anew.
func (p *peer) settle(key string, r *restored, err error) {
	close(r.known)
	if err == nil {
		return
	}
	p.mu.Lock()
	held := p.holds(key, r)
	if held {
		delete(p.live, key)
		delete(p.older, key)
	}
	p.mu.Unlock()
	if held {
		r.release()
	}
}

func (r *restored) release() {
	r.cap.Release()
	if r.answer != nil {
		r.answer.Release()
	}
}

// errLost is what those are told who come with a peer that was still there when they got it.
var errLost = rpc.Disconnectedf("the connection was lost")

// bootstrap gives the server's bootstrap object, for the caller to release.
func (p *peer) bootstrap() *rpc.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return rpc.NewBroken(errLost)
	}
	return p.gateway.AddRef()
}

// release gives everything back, after the connection has ended.
func (p *peer) release() {
	p.mu.Lock()
	p.gone = true
	live, older := p.live, p.older
	p.live, p.older = nil, nil
	p.mu.Unlock()
	for _, known := range []map[string]*restored{live, older} {
		for _, r := range known {
			r.release()
		}
	}
	p.gateway.Release()
}
