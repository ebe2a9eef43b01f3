// AdaptivePool: a connection pool that follows how many connections the database allows.

package pgtune

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/pgfault"
)

const (
	// connectTimeout is how long a new connection is waited for while there are others: a
	// pooler that has none left refuses nothing, but makes the client wait.
	connectTimeout = 3 * time.Second
	// minProbeInterval and maxProbeInterval are the first and the longest interval after which one
	// more connection is probed.
	minProbeInterval = 30 * time.Second
	maxProbeInterval = 10 * time.Minute
)

// AdaptivePool uses as many connections of a pool as the database, a role or a pooler in front
// of it allows. A plain pool that wants another one fails, or waits, though it has some that
// will soon be free; here those are waited for. It is safe for concurrent use.
type AdaptivePool struct {
	pool           *pgxpool.Pool
	slots          *semaphore.Weighted
	changed        func(Size)
	connectTimeout time.Duration // connectTimeout, or a test's
	firstProbe     time.Duration // minProbeInterval, or a test's

	mu               sync.Mutex    // guards the fields below
	unusedSlots      int           // slots that are not used
	short            bool          // there are fewer connections than the pool's maximum
	probing          bool          // one more connection than
	connsBeforeProbe int           // this many is being tried
	probeInterval    time.Duration // until the next probe
	timer            *time.Timer   // runs the next probe; nil unless short
	ended            bool
}

// Size is how many connections there are, and the maximum. Short says that the database
// allowed fewer than that.
type Size struct {
	Have, Max int
	Short     bool
}

// NewAdaptivePool wraps pool, which must be used through it only. changed is called when
// Size.Short changes.
func NewAdaptivePool(pool *pgxpool.Pool, changed func(Size)) *AdaptivePool {
	return &AdaptivePool{pool: pool, slots: semaphore.NewWeighted(int64(pool.Config().MaxConns)), changed: changed, connectTimeout: connectTimeout, firstProbe: minProbeInterval}
}

// Size returns the present size.
func (s *AdaptivePool) Size() Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size()
}

func (s *AdaptivePool) size() Size {
	return Size{Have: s.have(), Max: int(s.pool.Config().MaxConns), Short: s.short}
}

// have returns how many connections are established.
func (s *AdaptivePool) have() int {
	stat := s.pool.Stat()
	return int(stat.TotalConns() - stat.ConstructingConns())
}

// Acquire returns a connection, in use until release is called.
func (s *AdaptivePool) Acquire(ctx context.Context) (conn *pgxpool.Conn, release func(), err error) {
	for {
		if err := s.slots.Acquire(ctx, 1); err != nil {
			return nil, nil, err
		}
		conn, hung, err := s.try(ctx)
		if ctx.Err() == nil && (hung || pgfault.Of(err) == dbfault.NoConnection) {
			if s.retireSlot() {
				continue
			}
			if hung { // there is nothing else to wait for
				conn, err = s.pool.Acquire(ctx)
			}
		}
		if err != nil {
			s.slots.Release(1)
			return nil, nil, err
		}
		s.connected()
		return conn, func() { conn.Release(); s.slots.Release(1) }, nil
	}
}

// try acquires from the pool; hung says that a new connection was not made within connectTimeout.
func (s *AdaptivePool) try(ctx context.Context) (conn *pgxpool.Conn, hung bool, err error) {
	if s.have() == 0 {
		conn, err = s.pool.Acquire(ctx)
		return conn, false, err
	}
	bounded, cancel := context.WithTimeout(ctx, s.connectTimeout)
	defer cancel()
	conn, err = s.pool.Acquire(bounded)
	return conn, err != nil && bounded.Err() != nil && ctx.Err() == nil, err
}

// retireSlot takes the caller's slot out of use. It reports false where there is no other
// connection to wait for; without any, all slots are usable again.
func (s *AdaptivePool) retireSlot() bool {
	s.mu.Lock()
	switch {
	case s.pool.Stat().TotalConns() == 0:
		s.slots.Release(int64(s.unusedSlots))
		s.unusedSlots = 0
		fallthrough
	case s.ended, s.unusedSlots+1 >= int(s.pool.Config().MaxConns):
		s.mu.Unlock()
		return false
	}
	s.unusedSlots++
	s.probing = false
	first := !s.short
	s.short = true
	if s.timer == nil {
		s.probeInterval = s.firstProbe
		s.timer = time.AfterFunc(s.probeInterval, s.probe)
	}
	size := s.size()
	s.mu.Unlock()
	if first {
		s.changed(size)
	}
	return true
}

// probe puts one more slot into use.
func (s *AdaptivePool) probe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !s.short {
		return
	}
	s.probing, s.connsBeforeProbe = true, s.have()
	if s.unusedSlots > 0 {
		s.unusedSlots--
		s.slots.Release(1)
	}
	s.probeInterval = min(2*s.probeInterval, maxProbeInterval)
	s.timer.Reset(s.probeInterval)
}

// connected records that a connection was acquired. If there is one more than before the probe,
// all slots are used again.
func (s *AdaptivePool) connected() {
	s.mu.Lock()
	if !s.probing || s.have() <= s.connsBeforeProbe {
		s.mu.Unlock()
		return
	}
	s.slots.Release(int64(s.unusedSlots))
	s.timer.Stop()
	s.short, s.probing, s.unusedSlots, s.timer = false, false, 0, nil
	size := s.size()
	s.mu.Unlock()
	s.changed(size)
}

// Close stops probing; the pool's owner closes the pool.
func (s *AdaptivePool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
