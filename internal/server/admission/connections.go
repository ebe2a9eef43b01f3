// Connections: how many are served, from which addresses, and when all have ended.

package admission

import (
	"log/slog"
	"sync"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
)

// Connections bounds the connections that are served. It is safe for concurrent use.
type Connections struct {
	limiter   *connlimit.Limiter
	limitHits *LimitHits
	log       *slog.Logger
	running   sync.WaitGroup

	mu         sync.Mutex
	drained    bool
	drainBegun chan struct{} // closed with drained set
}

// NewConnections returns a bound on connections, in all and from one address.
func NewConnections(total, perAddress int, hit *LimitHits, log *slog.Logger) *Connections {
	return &Connections{limiter: connlimit.New(total, perAddress), limitHits: hit, log: log, drainBegun: make(chan struct{})}
}

// admissionRefusal is the fault for a connection that is not admitted.
func admissionRefusal(hit Limit) *fault.Error {
	if hit == limitPerAddress {
		return fault.Overloaded.With("no more connections from this address now: close some, or try again later")
	}
	return fault.Overloaded.With("no more connections now: try again later")
}

// Admit counts a connection from remote. If refused is nil, the caller calls done at its end.
func (c *Connections) Admit(remote string) (done func(), refused *fault.Error) {
	address := AddressOf(remote)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained {
		return nil, fault.Draining.With("the server is stopping")
	}
	if hit := limitOf(c.limiter.Acquire(address), limitConnections); hit != limitNone {
		c.limitHits.Add(hit)
		c.log.Debug("connection refused", "peer", remote, "limit", hit.String())
		return nil, admissionRefusal(hit)
	}
	c.running.Add(1)
	return func() {
		c.limiter.Release(address)
		c.running.Done()
	}, nil
}

// AdmitForeign counts a request that another http.Server has received, and that no limit of this
// server bounds. If refused is nil, the caller calls done at its end.
func (c *Connections) AdmitForeign() (done func(), refused *fault.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drained {
		return nil, fault.Draining.With("the server is stopping")
	}
	c.running.Add(1)
	return c.running.Done, nil
}

// SetLimits changes the limits for further connections.
func (c *Connections) SetLimits(total, perAddress int) { c.limiter.SetLimits(total, perAddress) }

// Count returns the number of connections.
func (c *Connections) Count() int { return c.limiter.Count() }

// Drain refuses all further connections.
func (c *Connections) Drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained {
		c.drained = true
		close(c.drainBegun)
	}
}

// IsDraining reports whether Drain was called.
func (c *Connections) IsDraining() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drained
}

// Draining returns a channel that Drain closes.
func (c *Connections) Draining() <-chan struct{} { return c.drainBegun }

// Wait waits until all connections have ended. It is called after Drain.
func (c *Connections) Wait() { c.running.Wait() }
