// One connection: the bootstrap object and the capabilities restored through it. Nothing here
// waits for an answer before the next call: restore, open, apply and subscribe are pipelined on
// one another, so all of them are sent at once.

package serverconn

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// Peer is one live connection to a server. When it ends, every capability from it is dead, and
// callers start over from sturdy refs at another peer.
type Peer struct {
	conn       *rpc.Conn
	gateway    *rpc.Ref
	hostPort   string             // HOST:PORT as it was dialled
	key        ed25519.PrivateKey // for sealed refs; nil if there is none
	challenges challengeQueue

	ended chan error // receives the error that the connection ended with

	helloDone chan struct{}         // closed when hello is answered or has failed
	ready     atomic.Bool           // hello was answered
	features  atomic.Uint32         // session.Features in use at the server, by its last answer to hello
	rejected  atomic.Pointer[error] // why this server cannot be used

	// sending is held while a batch is sent, so that room found on the connection stays free for
	// it.
	sending      sync.Mutex
	fastPathAcks atomic.Uint64 // acks read by decodeReplyFast

	mu       sync.Mutex
	live     map[string]*restoredRef // by liveKey, or createSession's key
	previous map[string]*restoredRef // likewise: entries not used since live was begun
	released bool                    // everything was released: the connection has ended
}

// maxLive is how many capabilities may be used before those not used meanwhile are released: a
// long-running program may use any number of sessions, and a server bounds the capabilities of a
// connection.
const maxLive = 1024

// restoredRef is a sturdy ref's live capability, possibly still a promise.
type restoredRef struct {
	cap      *rpc.Ref
	answer   *rpc.Promise  // of the call that cap comes from; for a sealed ref nil until its proof is sent
	resolved chan struct{} // closed when the answer has arrived
	err      error         // of the answer; set before resolved is closed
}

func newPeer(conn *rpc.Conn, gateway *rpc.Ref, at string, key ed25519.PrivateKey) *Peer {
	return &Peer{conn: conn, gateway: gateway, hostPort: at, key: key, live: map[string]*restoredRef{},
		ended: make(chan error, 1), helloDone: make(chan struct{})}
}

// hello sends hello and reads the answer when it arrives: limits is called with the server's
// limits. A server that speaks no common version, or does not answer, is rejected.
func (p *Peer) hello(ctx context.Context, agent string, limits func(ledger.Limits)) {
	late := time.AfterFunc(helloTimeout, func() {
		p.reject(fault.Unavailable.With("the server at %s accepts connections but does not answer", p.hostPort))
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
				p.readFeatures(hello)
			}
		}
		if err != nil {
			p.reject(calls.FaultOf(err))
			return
		}
		p.ready.Store(true)
	})
}

// readFeatures records the features that an answer to hello names.
func (p *Peer) readFeatures(hello wire.Gateway_hello_Results) {
	var t calls.Texts
	p.features.Store(uint32(session.FeaturesNamed(t.List(hello.Features()))))
}

// missing returns the features among needs that are not in use at the server, as far as is known.
func (p *Peer) missing(needs session.Features) session.Features {
	return needs &^ session.Features(p.features.Load())
}

// AwaitFeatures returns the reason that an op that needs features cannot be sent now; it asks the
// server again, since features come into use while it runs.
func (p *Peer) AwaitFeatures(ctx context.Context, needs session.Features) error {
	if err := p.awaitHello(ctx); err != nil {
		return err
	}
	if p.missing(needs) == 0 {
		return nil
	}
	gateway := p.bootstrap()
	defer gateway.Release()
	answer := callHello(ctx, gateway, "")
	defer answer.Release()
	results, _, err := answer.Wait(ctx)
	if err != nil {
		return p.Fail(err)
	}
	p.readFeatures(wire.Gateway_hello_Results(results))
	if missing := p.missing(needs); missing != 0 {
		return fault.Unsupported.With("the server at %s does not have %s in use (it, or another replica, is of an earlier version): the op is kept, and sent once it has", p.hostPort, strings.Join(missing.Names(), ", "))
	}
	return nil
}

// reject closes the connection to a server that cannot be used, and records why.
func (p *Peer) reject(why error) {
	p.rejected.CompareAndSwap(nil, &why)
	p.conn.Close("of no use")
}

// awaitHello waits for the answer to hello: nil if the server can be used.
func (p *Peer) awaitHello(ctx context.Context) error {
	select {
	case <-p.helloDone:
		return p.rejection()
	case <-ctx.Done():
		return fault.Canceled.Because(ctx.Err(), "another host was faster")
	}
}

// rejection returns why the server cannot be used; nil if it was not rejected.
func (p *Peer) rejection() error {
	if bad := p.rejected.Load(); bad != nil {
		return *bad
	}
	return nil
}

// discard closes a connection that no caller has been given. p may be nil.
func (p *Peer) discard() {
	if p == nil {
		return
	}
	p.conn.Close("not needed")
	<-p.ended
	p.release()
}

// Fail maps a call's error: the rejection if this server was rejected, else the error as a fault.
func (p *Peer) Fail(err error) error {
	if bad := p.rejection(); bad != nil {
		return bad
	}
	return calls.FaultOf(err)
}

// tryReserve locks sending if that is free and a call would be sent at once.
func (p *Peer) tryReserve() bool {
	if !p.sending.TryLock() {
		return false
	}
	if p.conn.HasRoom() {
		return true
	}
	p.sending.Unlock()
	return false
}

// Done returns a channel that is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { return p.conn.Done() }

// closed reports whether the connection has ended.
func (p *Peer) closed() bool {
	select {
	case <-p.conn.Done():
		return true
	default:
		return false
	}
}

// restore returns the live capability of a ref, for the caller to release. The same one is
// returned for as long as the connection lasts, unless maxLive others are used meanwhile, so that
// calls through one ref keep their order. redemption is the id that the outbox saves for the ref.
func (p *Peer) restore(ctx context.Context, ref capability.Ref, redemption string) *rpc.Ref {
	if capability.Sealed(ref.ID) {
		return p.restoreSealed(ref, redemption)
	}
	return p.cached(liveKey(ref), func() *rpc.Promise {
		return callRestore(ctx, p.gateway, ref, redemption, capability.Proof{})
	})
}

// liveKey returns the key of a ref's live capability. It includes the secret: a caller that knows
// only the id must not be given a capability that another caller has restored.
func liveKey(ref capability.Ref) string {
	hash := ref.Secret.Hash()
	return ref.ID + "#" + string(hash[:])
}

// restoreAndWait is restore, but waits for the answer. A ref that proves an authority for a batch
// must be resolved when the batch arrives, because the batch's outcome is recorded. The error is NotYetKnown
// for a ref that is still to be minted, as that of a session whose creation is on its way: other failures
// are for the server to report, by the batch.
func (p *Peer) restoreAndWait(ctx context.Context, ref capability.Ref, redemption string) (*rpc.Ref, error) {
	live := p.restore(ctx, ref, redemption)
	key := liveKey(ref)
	p.mu.Lock()
	r := p.live[key]
	if r == nil {
		r = p.previous[key]
	}
	p.mu.Unlock()
	if r == nil { // it has failed already, or the connection has
		live.Release()
		return nil, fault.Unavailable.With("ref %s could not be restored: it is tried again", ref.ID)
	}
	select {
	case <-r.resolved:
		if err := calls.FaultOf(r.err); fault.CodeOf(err) == fault.NotYetKnown {
			live.Release()
			return nil, err
		}
	case <-ctx.Done():
	}
	return live, nil
}

// Reach returns the live capability of a ref's object or, if opens is the id of a session, of that session as it is opened through
// the ref, for the caller to release. The error is for such a session, if that is not in use at the server.
func (p *Peer) Reach(ctx context.Context, ref capability.Ref, redemption, opens string) (*rpc.Ref, error) {
	live := p.restore(ctx, ref, redemption)
	if opens == "" {
		return live, nil
	}
	defer live.Release()
	return p.openSession(ctx, ref, live, opens)
}

// openSession returns the object of a session that is opened through a ref, whose live capability is outer: one
// of its space, by the right manage, or of a session above, which reaches it.
func (p *Peer) openSession(ctx context.Context, through capability.Ref, outer *rpc.Ref, id string) (*rpc.Ref, error) {
	need, method := session.FeatureReach, methods.SessionOpen
	if capability.IsSpace(through.Target()) {
		need, method = session.FeatureManage, methods.SpaceOpen
	}
	if p.missing(need) != 0 {
		if err := p.AwaitFeatures(ctx, need); err != nil {
			return nil, err
		}
	}
	return p.cached("open "+id+" through "+liveKey(through), func() *rpc.Promise {
		return calls.Make(ctx, outer, method, func(s capnp.Struct, _ *rpc.CapTable) error {
			return wire.Space_open_Params(s).SetSession(id) // Session.open's are laid out alike
		})
	}), nil
}

// createSession returns the object of a session that is about to be created under a space's ref,
// whose live capability is space.
func (p *Peer) createSession(ctx context.Context, through capability.Ref, space *rpc.Ref, session, owner string) *rpc.Ref {
	return p.cached("create "+owner+" in "+session+" through "+liveKey(through), func() *rpc.Promise {
		return callCreate(ctx, space, session, owner)
	})
}

// cached returns the capability of a key, or calls ask for it.
func (p *Peer) cached(key string, ask func() *rpc.Promise) *rpc.Ref {
	return p.getOrStart(key, func(r *restoredRef) (after func()) {
		answer := ask()
		r.cap, r.answer = answer.Cap(0), answer
		return func() { p.resolveOnAnswer(key, r) }
	})
}

// getOrStart returns the capability of a key, or has begin start one, and runs the after that
// begin returns without locks held.
func (p *Peer) getOrStart(key string, begin func(r *restoredRef) (after func())) *rpc.Ref {
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

// isCurrent reports whether r is the entry of a key. mu is held.
func (p *Peer) isCurrent(key string, r *restoredRef) bool {
	return p.live[key] == r || p.previous[key] == r
}

// resolveOnAnswer resolves r when its answer arrives.
func (p *Peer) resolveOnAnswer(key string, r *restoredRef) {
	r.answer.Notify(func() {
		_, _, err := r.answer.Wait(context.Background())
		p.resolve(key, r, err)
	})
}

// resolve wakes those waiting for r, and drops a capability that failed, so that the next use
// asks for it again.
func (p *Peer) resolve(key string, r *restoredRef, err error) {
	r.err = err
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

// errConnLost is the error of calls on a peer that ended after the caller was given it.
var errConnLost = rpc.Disconnectedf("the connection was lost")

// bootstrap returns the server's bootstrap object, for the caller to release.
func (p *Peer) bootstrap() *rpc.Ref {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		return rpc.NewBroken(errConnLost)
	}
	return p.gateway.AddRef()
}

// release releases every capability, after the connection has ended.
func (p *Peer) release() {
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
