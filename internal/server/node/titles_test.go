//go:build unix

package node

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/until"
)

// retitling counts the rounds in which titles were taken.
type retitling struct {
	Store
	rounds atomic.Int64
}

func (s *retitling) RefreshTitles(ctx context.Context, limit int) (bool, error) {
	more, err := s.Store.RefreshTitles(ctx, limit)
	s.rounds.Add(1)
	return more, err
}

// Titles are taken at the start and again and again, whether or not anybody lists by them.
func TestTitlesAreTaken(t *testing.T) {
	t.Parallel()
	st := &retitling{Store: sqliteStore(t)}
	start(t, st, func(c *Config) { c.SweepInterval = 10 * time.Millisecond })
	until.True(t, "titles are taken", func() bool { return st.rounds.Load() >= 3 })
}
