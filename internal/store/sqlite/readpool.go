// The reading connections, and which of them a read gets.

package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// readPool is the reading connections. The one that was used last is taken first: its cache has most
// of what the next read wants, and each that is used has to drop its cache after a commit and read
// the pages again.
type readPool struct {
	free chan struct{} // an element for each connection that is free; closed with the pool

	mu    sync.Mutex
	conns []*conn // those that are free, the one used last at the end
}

// newReadPool returns a pool of n connections, each of which is opened by its first use.
func newReadPool(n int, now func() time.Time) *readPool {
	p := &readPool{free: make(chan struct{}, n)}
	for range n {
		p.release(&conn{now: now})
	}
	return p
}

// acquire waits for a connection.
func (p *readPool) acquire(ctx context.Context) (*conn, error) {
	select {
	case _, open := <-p.free:
		if !open {
			return nil, dialect.ErrClosed
		}
		return p.pop(), nil
	case <-ctx.Done():
		return nil, translate(ctx, ctx.Err())
	}
}

// pop takes a connection after an element of free was taken.
func (p *readPool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.conns) - 1
	c := p.conns[last]
	p.conns = p.conns[:last]
	return c
}

// release returns a connection.
func (p *readPool) release(c *conn) {
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	p.free <- struct{}{}
}

// close waits until every connection is free, and closes it. No read gets one afterwards.
func (p *readPool) close() error {
	var errs []error
	for range cap(p.free) {
		<-p.free
		errs = append(errs, p.pop().close())
	}
	close(p.free)
	return errors.Join(errs...)
}
