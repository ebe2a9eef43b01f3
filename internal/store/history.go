// The id of a database's history, which tells whether commits belong together.

package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/mooring-rpc/mooring/fault"
)

// historyName is the name in meta of the history's id, which a migration has created first.
const historyName = "history"

var saveMeta = statement("", `
	INSERT INTO meta (name, value) VALUES ({1}, {2}) ON CONFLICT (name) DO UPDATE SET value = excluded.value`)

// HistoryID returns the id of the history that commits belong to: the same for all servers of a
// database, and a new one after each BeginHistory.
func (s *Store) HistoryID(ctx context.Context) (id string, err error) {
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readMeta, nil, []any{historyName}, func(row Scanner) error { return row.Scan(&id) })
		return nil
	})
	if err == nil && id == "" {
		err = fault.Internal.With("the database has no history id")
	}
	return id, wrap("read the history id", err)
}

// BeginHistory starts a new history, after the database was restored from a copy.
func (s *Store) BeginHistory(ctx context.Context) (id string, err error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", wrap("begin a history", err)
	}
	id = hex.EncodeToString(b[:])
	err = s.backend.Update(ctx, func(run Runner) error {
		run.Queue(saveMeta, nil, []any{historyName, id}, nil)
		return nil
	})
	if err != nil {
		return "", wrap("begin a history", err)
	}
	return id, nil
}
