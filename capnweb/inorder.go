// Objects whose calls keep their order even where one waits for promises in its arguments.

package capnweb

import "sync"

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
	defer l.mu.Unlock()
	waits := len(c.args.proms) > 0
	if !waits && len(l.calls)+l.queued == 0 {
		return false
	}
	l.calls = append(l.calls, &lined{c: c, ready: !waits})
	l.advance()
	return true
}

// settled notes what a call's arguments have come to.
func (l *line) settled(c *Call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.calls {
		if one.c == c {
			one.err, one.ready = err, true
		}
	}
	l.advance()
}

// advance hands on what need not wait any more. mu is held: two who come here do not overtake each other.
func (l *line) advance() {
	for len(l.calls) > 0 && l.calls[0].ready {
		next := l.calls[0]
		l.calls = l.calls[1:]
		l.queued++
		via{c: next.c.via}.run(task{f: func() {
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
}
