// Whether a commit would succeed now, found out by one.

package store

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"
)

// probeName is the name in meta of the row that probes write.
const probeName = "probe"

var (
	limitLocks = postgresStatement("", `SELECT set_config('lock_timeout', {1}, true)`)

	// writtenTables are the tables that every commit writes, each by a statement that takes the
	// table's lock and the right to write to it, and finds no row.
	writtenTables = []*Statement{
		postgresStatement("", `UPDATE sessions SET cursor = cursor WHERE id = {1}`),
		postgresStatement("", `UPDATE events SET payload = payload WHERE session = {1} AND cursor = 0`),
		postgresStatement("", `UPDATE streams SET incarnation = incarnation WHERE session = {1} AND outbox = {1}`),
	}
)

// Probe is nil if commits succeed, as far as one can tell by committing a row and, where bytes
// are not 0, one that has so many more and is made small again then. It waits for what
// is locked for half of the time that there is. The row is the same for all who probe, and stays.
func (s *Store) Probe(ctx context.Context, bytes int) error {
	err := s.probe(ctx, 0)
	if err == nil && bytes > 0 {
		// Only now: what a database could not take all of may use up what space there is.
		if err = s.probe(ctx, bytes); err == nil {
			err = s.probe(ctx, 0)
		}
	}
	return wrap("probe", err)
}

func (s *Store) probe(ctx context.Context, bytes int) error {
	value := make([]byte, 16+bytes*3/4) // no value can be made smaller
	if _, err := rand.Read(value); err != nil {
		return err
	}
	return s.backend.Update(ctx, func(run Runner) error {
		// A connection that is cut off while it waits for a lock keeps waiting in Postgres.
		if end, bounded := ctx.Deadline(); bounded {
			run.Queue(limitLocks, nil, []any{fmt.Sprintf("%dms", max(time.Until(end).Milliseconds()/2, 1))}, nil)
		}
		if err := run.Flush(ctx); err != nil { // before anything looks at a table
			return err
		}
		for _, table := range writtenTables {
			run.Queue(table, nil, []any{""}, nil)
		}
		run.Queue(saveMeta, nil, []any{probeName, base64.StdEncoding.EncodeToString(value)}, nil)
		return nil
	})
}
