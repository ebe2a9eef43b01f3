// Objects whose calls keep their order even where one waits for promises in its arguments.

package capnweb

import (
	"slices"
	"sync"
)

// Orderer is an Object to which calls are delivered in the order of their arrival also where one of them waits for
// promises in its arguments: those behind it wait too. Any other object gets what is complete at once. KeepsOrder is
// called for each call and always says the same.
type Orderer interface{ KeepsOrder() bool }

func keepsOrder(obj Object) bool {
	o, ok := obj.(Orderer)
	return ok && o.KeepsOrder()
}

// line is the calls of an object that wait for one before them, or for their own arguments.
type line struct {
	mu     sync.Mutex
	calls  []*lined
	queued int // handed on, and not delivered yet
}

// lined is a call in a line.
type lined struct {
	c     *Call
	err   error // what an argument came to instead
	ready bool
}

// join puts a call behind those that wait. It is false for one that need not wait, and is to be delivered as any other.
func (l *line) join(c *Call) bool {
	l.mu.Lock()
	waits := len(c.args.proms) > 0
	if !waits && len(l.calls)+l.queued == 0 {
		l.mu.Unlock()
		return false
	}
	c.inLine.Store(true)
	l.calls = append(l.calls, &lined{c: c, ready: !waits})
	enlisted := l.advance()
	l.mu.Unlock()
	rouse(enlisted)
	return true
}

// leave takes a call out that was answered before its turn: its connection has ended.
func (l *line) leave(c *Call) {
	l.mu.Lock()
	l.calls = slices.DeleteFunc(l.calls, func(one *lined) bool { return one.c == c })
	enlisted := l.advance()
	l.mu.Unlock()
	rouse(enlisted)
}

// settled notes what a call's arguments have come to.
func (l *line) settled(c *Call, err error) {
	l.mu.Lock()
	for _, one := range l.calls {
		if one.c == c {
			one.err, one.ready = err, true
		}
	}
	enlisted := l.advance()
	l.mu.Unlock()
	rouse(enlisted)
}

// advance enlists what need not wait any more, and says where. mu is held: two who come here do not overtake each other.
func (l *line) advance() (enlisted []*Conn) {
	for len(l.calls) > 0 && l.calls[0].ready {
		next := l.calls[0]
		l.calls = l.calls[1:]
		l.queued++
		next.c.inLine.Store(false)
		enlisted = append(enlisted, next.c.via)
		via{c: next.c.via}.enlist(task{f: func() {
			if next.err != nil {
				next.c.answer(nil, next.err)
			} else {
				next.c.deliver()
			}
			l.mu.Lock()
			l.queued--
			l.mu.Unlock()
		}})
	}
	return enlisted
}

// rouse starts delivery over the connections where something was enlisted.
func rouse(conns []*Conn) {
	for _, c := range conns {
		c.rouse()
	}
}
