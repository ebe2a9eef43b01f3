package pgtune

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

const (
	// connectTimeout is how long a new connection is waited for while there are others: a
	// pooler that has none left refuses nothing, and lets one wait.
	connectTimeout = 3 * time.Second
	// Then fewer are used; one more is tried after a while, and later and later.
	minProbeInterval = 30 * time.Second
	maxProbeInterval = 10 * time.Minute
)

// AdaptivePool has as many connections of a pool in use as the database, a role or a pooler before
// it has for us. Where a pool wants another one it fails, or waits, though it has some that
// will soon be free; here those are waited for.
type AdaptivePool struct {
	pool           *pgxpool.Pool
	slots          *semaphore.Weighted
	changed        func(Size)
	connectTimeout time.Duration // connectTimeout
	firstProbe     time.Duration // minProbeInterval

	mu               sync.Mutex    // guards what follows
	unusedSlots      int           // slots that are not used
	short            bool          // there are fewer than the pool may have
	probing          bool          // whether there is one more than
	connsBeforeProbe int           // connections there were
	probeInterval    time.Duration // until the next probe, for which
	timer            *time.Timer   // is there while it is short
	ended            bool
}

// Size is how many connections there are, of how many at most. Short says that there were no
// more to be had.
type Size struct {
	Have, Max int
	Short     bool
}

// NewAdaptivePool is for all that use pool. changed is called when Size.Short changes.
func NewAdaptivePool(pool *pgxpool.Pool, changed func(Size)) *AdaptivePool {
	return &AdaptivePool{pool: pool, slots: semaphore.NewWeighted(int64(pool.Config().MaxConns)), changed: changed, connectTimeout: connectTimeout, firstProbe: minProbeInterval}
}

// Size is the size now.
func (s *AdaptivePool) Size() Size {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size()
}

func (s *AdaptivePool) size() Size {
	return Size{Have: s.have(), Max: int(s.pool.Config().MaxConns), Short: s.short}
}

// have counts the connections that there are, without those being made.
func (s *AdaptivePool) have() int {
	stat := s.pool.Stat()
	return int(stat.TotalConns() - stat.ConstructingConns())
}

// Acquire gives a connection, until release.
func (s *AdaptivePool) Acquire(ctx context.Context) (conn *pgxpool.Conn, release func(), err error) {
	for {
		if err := s.slots.Acquire(ctx, 1); err != nil {
			return nil, nil, err
		}
		conn, hung, err := s.try(ctx)
		if ctx.Err() == nil && (hung || dbfault.OfPostgres(err) == dbfault.NoConnection) {
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

// try asks the pool; hung says that it was still making a connection when that had taken long.
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

// retireSlot takes the caller's slot out of use. It reports false where no other connection is to be
// waited for; then nothing is known of how many there may be.
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

// probe has one more slot be used again.
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

// connected says that a connection was to be had. If that is one more than before all slots are
// used again.
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

// Close ends what is planned; the pool is its owner's.
func (s *AdaptivePool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
