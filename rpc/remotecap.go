// remoteCap: an object or promise of the peer, known by its export number or as a pipelined result of a question of ours;
// and the embargo that keeps calls in order when it turns out to be an object of this vat.

package rpc

import (
	"slices"
	"sync/atomic"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// remoteCap is an import (p is nil) or a pipelined capability. All but refs is guarded by conn.mu.
//
// Calls go to the peer while it is open. When it resolves to something of the peer's, or nothing was called on it, it
// is resolved at once. When it resolves to something of ours and calls are under way to the peer, which will send them
// back, it is embargoed: new calls wait in queue until a Disembargo has followed the old ones all the way round, and
// until the calls that wait before them have been handed over.
type remoteCap struct {
	conn *Conn
	refs atomic.Int64

	id       uint32 // import:
	wireRefs uint32 // references the peer has counted
	promise  bool

	p    *Promise // pipelined capability:
	path []uint16
	live bool // counted in p.q.livePipelined

	called  bool // a call was sent to it, or went through it to its target
	state   capState
	target  *Ref // the resolution, counted
	queue   []embargoed
	dropped bool
}

type capState uint8

const (
	capOpen capState = iota
	capEmbargoed
	capResolved
)

func (r *remoteCap) tryRef() bool { return tryInc(&r.refs) }

func (r *remoteCap) unref(*Conn) {
	if r.refs.Add(-1) != 0 {
		return
	}
	r.conn.mu.Lock()
	r.conn.dropRemote(r)
	r.conn.unlockAndRun()
}

func (r *remoteCap) resolution() node {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.state != capResolved {
		return nil
	}
	return r.target.node
}

// resolutionOrEmbargoed is resolution, also while calls wait for an embargo.
func (r *remoteCap) resolutionOrEmbargoed() node {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.target == nil {
		return nil
	}
	return r.target.node
}

// writeTarget writes r as the target of a message.
func (r *remoteCap) writeTarget(t rpccp.MessageTarget) error {
	if r.p == nil {
		t.SetImportedCap(r.id)
		return nil
	}
	pa, err := t.NewPromisedAnswer()
	if err != nil {
		return err
	}
	return r.writePromisedAnswer(pa)
}

func (r *remoteCap) writePromisedAnswer(pa rpccp.PromisedAnswer) error {
	pa.SetQuestionId(r.p.q.id)
	if len(r.path) == 0 {
		return nil
	}
	ops, err := pa.NewTransform(int32(len(r.path)))
	if err != nil {
		return err
	}
	for i, f := range r.path {
		ops.At(i).SetGetPointerField(f)
	}
	return nil
}

// pipelineCap returns a reference to the capability at a path of the results of p, which is not returned.
func (co *core) pipelineCap(p *Promise, path []uint16) *Ref {
	i := slices.IndexFunc(p.q.pipelined, func(r *remoteCap) bool { return slices.Equal(r.path, path) })
	var r *remoteCap
	if i >= 0 {
		r = p.q.pipelined[i]
	} else {
		r = &remoteCap{conn: co.conn, p: p, path: slices.Clone(path)}
		p.q.pipelined = append(p.q.pipelined, r)
	}
	r.refs.Add(1)
	if !r.live {
		r.live = true
		p.q.livePipelined++
	}
	return &Ref{node: r, via: co.conn}
}

// pipelineRef is Promise.Cap for a call that went to the peer.
func (c *Conn) pipelineRef(p *Promise, path []uint16) *Ref {
	c.mu.Lock()
	defer c.unlockAndRun()
	q := &p.q
	if len(path) > maxHops {
		return NewBroken(Failedf("a pipelined path of %d steps, the limit is %d", len(path), maxHops))
	}
	if q.returned {
		for _, r := range q.pipelined {
			if !r.dropped && slices.Equal(r.path, path) {
				r.refs.Add(1)
				return &Ref{node: r, via: c}
			}
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.resultCap(path)
	}
	if q.finished || q.released && q.livePipelined == 0 {
		return NewBroken(errReleased)
	}
	return c.pipelineCap(p, path)
}

// dropRemote drops a remoteCap to which no reference is left, then its target, and so on as long as that is of the same
// peer: iteratively, since a peer can make such chains as long as it likes.
func (co *core) dropRemote(r *remoteCap) {
	for r.refs.Load() == 0 { // else it was received again in the meantime
		to := co.dropOne(r)
		if to == nil {
			return
		}
		next, ok := to.node.(*remoteCap)
		if !ok || next.conn != co.conn {
			co.drops = append(co.drops, to.node)
			return
		}
		next.refs.Add(-1)
		r = next
	}
}

// dropOne is dropRemote of one, and returns its target, if that is to be released now.
func (co *core) dropOne(r *remoteCap) *Ref {
	if r.dropped || r.state == capEmbargoed {
		return nil // calls that wait for an embargo to be lifted must be delivered first
	}
	if r.p == nil && r.state == capOpen {
		r.dropped = true
		if co.ended == nil {
			co.sendRelease(r)
		}
		return nil
	}
	if r.p != nil && !r.p.q.returned {
		// It stays in the question's pipelined if it was called, to be embargoed if it is referenced again.
		if r.live { // else it was referenced and released once more before this ran
			r.live = false
			r.p.q.livePipelined--
			co.cancelQuestion(r.p)
		}
		return nil
	}
	r.dropped = true
	if r.p == nil {
		co.resolvedImports--
	} else {
		r.p.q.pipelined = slices.DeleteFunc(r.p.q.pipelined, func(o *remoteCap) bool { return o == r })
	}
	return r.target
}

// resolveRemote sets r's target, taking over the reference.
func (co *core) resolveRemote(r *remoteCap, to *Ref) {
	if co.leadsBack(to.node, r) {
		co.drops = append(co.drops, to.node)
		to = brokenRef(Failedf("the promise was resolved to itself"))
	}
	r.target = to
	r.state = capResolved
	held := r.refs.Load() > 0
	if r.called && (held || r.p != nil && !r.p.q.released) { // else nobody can call it again
		co.keepOrder(r)
	}
	switch {
	case !held && r.state == capResolved:
		r.dropped = true
		co.drops = append(co.drops, to.node)
	case r.p == nil:
		co.resolvedImports++
	}
}

// keepOrder ensures that further calls on r, which has just resolved, arrive after those that were made before.
func (co *core) keepOrder(r *remoteCap) {
	switch t := r.target.node.(type) {
	case *brokenCap: // there is no order among errors
	case *remoteCap:
		if t.conn == co.conn && r.target.peerHosted { // the calls take the path they always took
			t.called = true
			return
		}
		co.embargo(r) // also where it is the peer's, but named as ours: earlier calls go round through this vat
	default:
		co.embargo(r)
	}
}

// leadsBack reports whether n is r, or resolved promises lead from it to r.
func (co *core) leadsBack(n node, r *remoteCap) bool {
	for range maxHops {
		if n == node(r) {
			return true
		}
		if t, ok := n.(*remoteCap); ok && t.conn == co.conn && t.state == capEmbargoed { // another connection's state has a lock of its own
			n = t.target.node
		} else if n = co.followPromise(n); n == nil {
			return false
		}
	}
	return true
}

// embargo holds calls on r back until those sent before have come round, which a Disembargo sent after them will show.
func (co *core) embargo(r *remoteCap) {
	if co.disembargoesOut.Len() >= co.limits.Imports {
		co.countHit(LimitImports)
		co.endOnUnlock(abortEnding(violation("%d disembargoes have not come back, the limit is %d", co.disembargoesOut.Len(), co.limits.Imports)))
		return
	}
	r.state = capEmbargoed
	id := co.disembargoesOut.Add(r)
	co.send(func(m rpccp.Message) error {
		d, err := newDisembargo(m, r)
		if err == nil {
			d.Context().SetSenderLoopback(id)
		}
		return err
	})
}
