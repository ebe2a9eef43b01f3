// Package serialqueue runs functions one by one, in the order in which they were posted, on a goroutine that exists only
// while there are any. It is for deliveries that belong to no connection: calls within a process, and notifications.
package serialqueue

import "sync"

// Queue runs functions in order. The zero Queue is ready; its methods may be called from any goroutine. It is not bounded;
// functions run without its lock.
type Queue struct {
	// Start, if set before the first Post, is called instead of starting a goroutine, with the function to run in it: tests
	// decide when it runs.
	Start func(drain func())

	mu      sync.Mutex
	pending []func()
	running bool
}

// Post runs f after all functions posted before.
func (l *Queue) Post(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, f)
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

func (l *Queue) drain() {
	l.mu.Lock()
	for len(l.pending) > 0 {
		batch := l.pending
		l.pending = nil
		l.mu.Unlock()
		for _, f := range batch {
			f()
		}
		l.mu.Lock()
	}
	l.running = false
	l.mu.Unlock()
}
