// Package inturn runs functions one by one, in the order in which they came, on a goroutine that exists only while there
// is something to run. It is for deliveries that belong to no connection: calls within a process, and notifications.
package inturn

import "sync"

// Loop runs functions in turn. The zero Loop is ready; its methods may be called from any goroutine.
type Loop struct {
	// Start, if set before the first Post, is called instead of starting a goroutine with what that would run: tests
	// decide when it does.
	Start func(drain func())

	mu      sync.Mutex
	queue   []func()
	running bool
}

// Post has f run behind all that was posted before.
func (l *Loop) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, f)
	if l.running {
		return
	}
	l.running = true
	if l.Start != nil {
		l.Start(l.drain)
	} else {
		go l.drain()
	}
}

func (l *Loop) drain() {
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
