// WhenResolved: waiting until it is known where a reference leads.

package rpc

// WhenResolved calls f once it is known where the reference leads: to an object of this vat, which Object then returns,
// to one of a peer, or nowhere. f is called at once, on this goroutine, if that is known, and also for a peer's
// promise, since that leads to the peer; else on a delivery goroutine, where it must not block. The reference must not
// be released before.
func (r *Ref) WhenResolved(f func()) {
	if r == nil || r.released.Load() {
		f()
		return
	}
	whenResolved(r.node, r.via, f, maxHops)
}

func whenResolved(n node, via *Conn, f func(), hops int) {
	for ; hops > 0 && n != nil; hops-- {
		if p, ok := n.(*promiseCap); ok {
			p.onResolve(via, hook{run: func() {
				notify(via, func() { whenResolved(p.resolution(), via, f, hops-1) })
			}})
			return
		}
		n = n.resolution()
	}
	f()
}
