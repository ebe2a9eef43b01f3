// Links between nodes: a promise may resolve to another promise, but never, however indirectly, to itself.

package capnweb

import "sync"

// linkMu is held while a future is resolved to something that leads or refers to others, so that no two of them close a
// cycle together. Resolutions never change, so nothing else needs it.
var linkMu sync.Mutex

var errCycle = &Error{Name: "TypeError", Message: "a promise would be resolved with itself"}

// linkOf returns the node that a future leads to if it is resolved this way; nil for a value or an error.
func linkOf(p *payload, next node) node {
	if next != nil {
		return next
	}
	if p != nil {
		if s, ok := p.value.(*Stub); ok {
			return s.node
		}
	}
	return nil
}

// futureOf returns the future that a node is; nil if it is none.
func futureOf(n node) *future {
	switch t := n.(type) {
	case *future:
		return t
	case *importNode:
		return &t.future
	}
	return nil
}

// parentOf returns the node whose path or method a node is; nil if it is neither.
func parentOf(n node) node {
	switch t := n.(type) {
	case *pathNode:
		return t.on
	case *methodNode:
		return t.on
	}
	return nil
}

// nextLink returns the node that a node leads to next, or waits for; nil at the end.
func nextLink(n node) node {
	f := futureOf(n)
	switch {
	case f == nil:
		return parentOf(n)
	case !f.reached(stateBound):
		if on := f.waitsOn.Load(); on != nil {
			return on
		}
		return nil
	case f.err != nil:
		return nil
	}
	return linkOf(&f.val, f.next)
}

// leadsTo reports whether n leads to f, or waits for it. It reports true if the chain is too long to check. linkMu is held.
func leadsTo(n node, f *future) bool {
	for far := 0; n != nil; n = nextLink(n) {
		if far++; far > maxLinkedNodes {
			return true
		}
		if futureOf(n) == f {
			return true
		}
	}
	return false
}

const (
	// maxLinkedNodes is how many nodes are checked for a cycle.
	maxLinkedNodes = 10_000
	// maxLinkedReferences is how many references among them are: linkMu is held meanwhile, and blocks all other resolutions.
	maxLinkedReferences = 50_000
)

// refersBackTo reports whether the references of p, or next, lead by references in resolved values to f: then none of it
// would ever be released. It reports true if there are too many to check.
func refersBackTo(p *payload, next node, f *future) bool {
	seen := map[node]bool{}
	var todo []node
	if next != nil {
		todo = append(todo, next)
	}
	left := maxLinkedReferences
	if p != nil {
		todo = p.appendNodes(todo, &left)
	}
	for len(todo) > 0 && left > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		if seen[n] = true; len(seen) > maxLinkedNodes {
			return true
		}
		g := futureOf(n)
		switch {
		case g == f:
			return true
		case g == nil:
			if on := parentOf(n); on != nil {
				todo = append(todo, on)
			}
		case !g.reached(stateBound) || g.err != nil:
		case g.next != nil:
			todo = append(todo, g.next)
		default:
			todo = g.val.appendNodes(todo, &left)
		}
	}
	return left <= 0
}

// appendNodes appends the nodes of a payload's references, and counts them down from left. It appends nothing when they are
// too many.
func (p *payload) appendNodes(to []node, left *int) []node {
	p.mu.Lock()
	defer p.mu.Unlock()
	if *left -= len(p.refs); *left <= 0 {
		return to
	}
	for _, r := range p.refs {
		if n := r.refersTo(); n != nil {
			to = append(to, n)
		}
	}
	return to
}

// markCaptured records that a value refers to n while it is pending.
func markCaptured(n node) {
	for n = followTo(n, stateBound); ; {
		f := futureOf(n)
		if f == nil {
			return
		}
		if f.captured.Store(true); !f.reached(stateBound) {
			return
		}
		// It was bound meanwhile, and the goroutine that did may not have seen it.
		if m := followTo(n, stateBound); m != n {
			n = m
		} else {
			return
		}
	}
}
