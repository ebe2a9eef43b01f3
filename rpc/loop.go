// loop: an on-demand delivery goroutine for what belongs to no connection: calls within the vat, and notifications.

package rpc

import "sync"

// loop runs functions one by one, in the order in which they were posted, on a goroutine that exists only while there
// is something to run. The zero loop is ready.
type loop struct {
	mu      sync.Mutex
	queue   []func()
	running bool
	start   func(drain func()) // nil starts a goroutine; tests do without
}

func (l *loop) post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	if !l.running {
		l.running = true
		if l.start != nil {
			l.start(l.drain)
		} else {
			go l.drain()
		}
	}
}

func (l *loop) drain() {
	l.mu.Lock()
	for len(l.queue) > 0 {
		batch := l.queue
		l.queue = nil
		l.mu.Unlock()
		for _, f := range batch {
			f()
		}
		l.mu.Lock()
	}
	l.running = false
	l.mu.Unlock()
}

// strays runs the notifications of promises that never came near an object or a connection.
var strays loop
