// The id of a database's history, which tells whether commits belong together.

package upkeep

import (
	"context"
	"crypto/rand"
	"encoding/hex"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// historyName is the name in meta of the history's id, which a migration has created first.
const historyName = "history"

var saveMeta = dialect.Both("", `
	INSERT INTO meta (name, value) VALUES ({1}, {2}) ON CONFLICT (name) DO UPDATE SET value = excluded.value`)

// Upkeep is the care of a store's database, by its servers and its operator. Its methods are safe for concurrent use.
type Upkeep struct{ db *txn.DB }

// New returns the upkeep of a database.
func New(db *txn.DB) *Upkeep { return &Upkeep{db: db} }

// HistoryID returns the id of the history that commits belong to: the same for all servers of a
// database, and a new one after each BeginHistory.
func (s *Upkeep) HistoryID(ctx context.Context) (id string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(txn.ReadMeta, nil, []any{historyName}, func(row dialect.Scanner) error { return row.Scan(&id) })
		return nil
	})
	if err == nil && id == "" {
		err = fault.Internal.With("the database has no history id")
	}
	return id, txn.Wrap("read the history id", err)
}

// BeginHistory starts a new history, after the database was restored from a copy.
func (s *Upkeep) BeginHistory(ctx context.Context) (id string, err error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", txn.Wrap("begin a history", err)
	}
	id = hex.EncodeToString(b[:])
	err = s.db.Backend.Update(ctx, func(run dialect.Runner) error {
		run.Queue(saveMeta, nil, []any{historyName, id}, nil)
		return nil
	})
	if err != nil {
		return "", txn.Wrap("begin a history", err)
	}
	return id, nil
}
