package client

import "github.com/mooring-rpc/mooring/rpc"

// ConnStats are the table sizes of the present connections.
func (c *Client) ConnStats() []rpc.Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []rpc.Stats
	for _, s := range c.servers {
		s.mu.Lock()
		if s.current != nil {
			all = append(all, s.current.conn.Stats())
		}
		s.mu.Unlock()
	}
	return all
}
