// Limits: how often a connection reaches each of them is counted.

package peerconn

import "sync"

// Limit is a limit's name, as in metrics.
type Limit string

// The limits of every connection.
const (
	LimitQueuedBytes      Limit = "queued_bytes"
	LimitWriteTimeout     Limit = "write_timeout"
	LimitPingTimeout      Limit = "ping_timeout"
	LimitHandshakeTimeout Limit = "handshake_timeout"
	LimitIdleTimeout      Limit = "idle_timeout"
)

// LimitHits counts how often each limit was reached. Any number of connections may share one. Its methods may be called
// with a connection's lock held.
type LimitHits struct {
	mu sync.Mutex
	n  map[Limit]uint64
}

// Add counts that l was reached.
func (h *LimitHits) Add(l Limit) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = make(map[Limit]uint64)
	}
	h.n[l]++
}

// Of returns how often l was reached.
func (h *LimitHits) Of(l Limit) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[l]
}

// LimitError is an error caused by a limit.
type LimitError struct {
	Limit Limit
	Err   error
}

func (e LimitError) Error() string { return e.Err.Error() }

func (e LimitError) Unwrap() error { return e.Err }

// OverLimit returns err as one that l caused.
func OverLimit(l Limit, err error) error { return LimitError{l, err} }
