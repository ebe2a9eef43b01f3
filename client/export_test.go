package client

import (
	"context"

	"github.com/mooring-rpc/mooring/internal/rpctrace"
	"github.com/mooring-rpc/mooring/rpc"
)

// SetDial replaces the WebSocket.
func (c *Config) SetDial(dial func(ctx context.Context, url string) (rpc.Transport, error)) {
	c.dial = dial
}

// SetTrace has trace see every message of every connection.
func (c *Config) SetTrace(trace rpctrace.Func) { c.trace = trace }

// LiveSession returns a session received as a capability, which it owns.
func LiveSession(cap *rpc.Ref) *Live { return &Live{cap: cap} }

// Cap returns the capability, which l still owns.
func (l *Live) Cap() *rpc.Ref { return l.cap }

// ConnStats are the table sizes of the present connections.
func (c *Client) ConnStats() []rpc.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []rpc.Stats
	for _, s := range c.servers {
		if state, connected := s.State(); connected {
			all = append(all, state.Tables)
		}
	}
	return all
}

// ReleaseCached has the present connections let go of what they keep to be used again, but
// for the bootstrap object.
func (c *Client) ReleaseCached() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		s.ReleaseCached()
	}
}

// FastPathAcks is how many acks of the present connections were read by hand.
func (c *Client) FastPathAcks() (n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		state, _ := s.State()
		n += state.FastPathAcks
	}
	return n
}

// RequestRotation asks once for the rotation of a ref that was begun, as is done in
// the background.
func (c *Client) RequestRotation(ctx context.Context, old string) error {
	_, err := c.resumeRotation(ctx, old)
	return err
}
