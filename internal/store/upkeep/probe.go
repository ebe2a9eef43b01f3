// Probe: whether commits succeed now, tested by one.

package upkeep

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// probeName is the name in meta of the row that probes write.
const probeName = "probe"

var (
	limitLocks = dialect.PostgresOnly("", `SELECT set_config('lock_timeout', {1}, true)`)

	// writtenTables are the tables that every commit writes, each with a statement that takes the
	// table's lock, needs the privilege to write to it, and matches no row.
	writtenTables = []*dialect.Statement{
		dialect.PostgresOnly("", `UPDATE sessions SET cursor = cursor WHERE id = {1}`),
		dialect.PostgresOnly("", `UPDATE events SET payload = payload WHERE session = {1} AND cursor = 0`),
		dialect.PostgresOnly("", `UPDATE streams SET incarnation = incarnation WHERE session = {1} AND outbox = {1}`),
	}
)

// Probe returns nil if commits succeed, tested by committing a row and, if bytes is not 0, one
// larger by that many bytes, which is then made small again. It waits for locks at most half of the
// time until ctx's deadline. The row is the same for all probes, and stays.
func (s *Upkeep) Probe(ctx context.Context, bytes int) error {
	err := s.probe(ctx, 0)
	if err == nil && bytes > 0 {
		// Only after the small row: a large one that does not fit may use up the free space.
		if err = s.probe(ctx, bytes); err == nil {
			err = s.probe(ctx, 0)
		}
	}
	return txn.Wrap("probe", err)
}

func (s *Upkeep) probe(ctx context.Context, bytes int) error {
	value := make([]byte, 16+bytes*3/4) // incompressible
	if _, err := rand.Read(value); err != nil {
		return err
	}
	return s.db.Backend.Update(ctx, func(run dialect.Runner) error {
		// Postgres keeps waiting for a lock on a connection that is cut off meanwhile.
		if end, bounded := ctx.Deadline(); bounded {
			run.Queue(limitLocks, nil, []any{fmt.Sprintf("%dms", max(time.Until(end).Milliseconds()/2, 1))}, nil)
		}
		if err := run.Flush(ctx); err != nil { // before any statement uses a table
			return err
		}
		for _, table := range writtenTables {
			run.Queue(table, nil, []any{""}, nil)
		}
		run.Queue(saveMeta, nil, []any{probeName, base64.StdEncoding.EncodeToString(value)}, nil)
		return nil
	})
}
