// Reads. Each is one snapshot, in which the rows and the authority to see them belong together.

package reads

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
	"github.com/mooring-rpc/mooring/ledger"
)

// Reads are the reads of a store. Its methods are safe for concurrent use.
type Reads struct {
	db           *txn.DB
	hashKeyCache atomic.Pointer[session.HashKey]
	searches     chan struct{} // holds those that run
}

var (
	// lapsedClaims reads only claimed entries, by their index.
	lapsedClaims = dialect.Both("", `
		SELECT DISTINCT e.session FROM entries e {by entries_claimed}
		WHERE e.claim_until > 0 AND e.claim_until <= {1} AND e.session > {2}
		ORDER BY e.session LIMIT {3}`)

	// lapsedTurns reads only streaming turns, which are few at any time.
	lapsedTurns = dialect.Both("", `
		SELECT DISTINCT t.session FROM turns t
		WHERE t.status = 1 AND t.lease < {1} AND t.session > {2}
		ORDER BY t.session LIMIT {3}`)

	// readTurnRange reads the turns of the messages from {2} on and below {3}.
	readTurnRange = dialect.Both("", `
		SELECT `+txn.TurnColumns+` FROM turns t WHERE t.session = {1} AND t.message >= {2} AND t.message < {3} ORDER BY t.message`)
)

// New returns the reads of a database.
func New(db *txn.DB) *Reads { return &Reads{db: db, searches: make(chan struct{}, searchesAtOnce)} }

// ReadAccess returns a session's row (nil if there is none, and for a space or "") and the rows of
// the known refs among refIDs.
func (s *Reads) ReadAccess(ctx context.Context, id string, refIDs []string) (*session.Access, error) {
	sight := &session.Access{}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, sight, id, refIDs)
		return nil
	})
	return sight, txn.Wrap("look", err)
}

// ReadLog returns a session's events after cursor after, in order and without a gap: at most
// maxEvents and, except for the first, at most about maxBytes. If after is below Row.Base, the page
// starts where the log does and has the checkpoint before it; the caller compares. The page also
// has the hashes of the events at hashesAt.
func (s *Reads) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refIDs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	page, err := s.readLog(ctx, id, after, maxBytes, maxEvents, refIDs, hashesAt...)
	if err != nil {
		return nil, err
	}
	return session.NewUnscoped(page), nil
}

// readLog is ReadLog, for the store itself.
func (s *Reads) readLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refIDs []string, hashesAt ...uint64) (*session.LogPage, error) {
	page := &session.LogPage{}
	size := 0
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, txn.Wrap("read log", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		if len(hashesAt) > 0 {
			page.Hashes = make(map[uint64]session.Hash, len(hashesAt))
			run.Queue(txn.ReadHashes, eventRows(id, hashesAt), nil, func(row dialect.Scanner) error {
				var cursor int64
				var hash []byte
				err := row.Scan(&cursor, &hash)
				var h session.Hash
				copy(h[:], hash)
				page.Hashes[uint64(cursor)] = h
				return err
			})
		}
		run.Queue(txn.ReadEvents, nil, []any{id, txn.Clamp(after), int64(max(maxEvents, 1)) + 2, int64(max(maxBytes, txn.EventOverhead))}, func(row dialect.Scanner) error {
			e, err := txn.ScanEvent(row)
			if err != nil {
				return err
			}
			if page.Row != nil && e.Cursor <= page.Row.Base {
				page.Checkpoint = e
				return nil
			}
			size += txn.EventSize(e)
			if len(page.Events) > 0 && (size > maxBytes || len(page.Events) >= maxEvents) {
				page.More = true
				return dialect.ErrStopRows
			}
			page.Events = append(page.Events, e)
			return nil
		})
		return nil
	})
	return page, txn.Wrap("read log", err)
}

// eventRows returns a list of a session's events, as rows of a statement's list.
func eventRows(id string, cursors []uint64) [][]any {
	list := make([][]any, len(cursors))
	for i, cursor := range cursors {
		list[i] = []any{id, txn.Clamp(cursor)}
	}
	return list
}

// hashKeyName is the name in meta of the key of masked hashes.
const hashKeyName = "hash_key"

// hashKey returns the database's session.HashKey, which a migration has created.
func (s *Reads) hashKey(ctx context.Context) (key session.HashKey, err error) {
	if known := s.hashKeyCache.Load(); known != nil {
		return *known, nil
	}
	var text string
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(txn.ReadMeta, nil, []any{hashKeyName}, func(row dialect.Scanner) error { return row.Scan(&text) })
		return nil
	})
	if err != nil {
		return key, err
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(key) {
		return key, fmt.Errorf("the database's %s is not %d bytes in hexadecimal", hashKeyName, len(key))
	}
	key = session.HashKey(b)
	s.hashKeyCache.Store(&key)
	return key, nil
}

// statePageBytes is how many bytes of a state are read at once.
const statePageBytes = 1 << 20

// ReadState calls piece with the folded state in chunks, turns before entries, each of at most
// about pieceBytes or one row, the last one marked; there is at least one. If portion is not nil, only
// what it returns is read: the entries in its ranges, which are disjoint and in order, and the turns of
// the messages in them. portion and piece run inside the snapshot, so they must not wait for a peer without
// a time limit. An error of piece ends the read and is returned unchanged.
func (s *Reads) ReadState(ctx context.Context, id string, refIDs []string, pieceBytes int, portion func(*session.Access) session.Portion,
	piece func(*session.Unscoped[*session.StateChunk]) error) error {
	if err := s.EnsureOrds(ctx, id); err != nil {
		return err
	}
	var own error
	key, err := s.hashKey(ctx)
	if err != nil {
		return txn.Wrap("read state", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		access := session.Access{Key: key}
		chunks := session.Chunker{Access: &access, PieceBytes: pieceBytes, Give: func(c *session.Unscoped[*session.StateChunk]) error {
			own = piece(c)
			return own
		}}
		txn.QueueAccess(run, &access, id, refIDs)
		ranges := []session.KeyRange{{Below: session.PrefixEnd("")}}
		var left []string // messages that are left out
		if portion != nil {
			if err := run.Flush(ctx); err != nil {
				return err
			}
			want := portion(&access)
			if ranges, chunks.Compacted = want.Ranges, want.Compacted; want.Compacted.InForce() {
				if left, err = leftOut(ctx, run, newHiding(run, access.Row), &want.Compacted); err != nil {
					return err
				}
			}
		}
		for _, message := range left {
			if err := chunks.LeftOut(message); err != nil {
				return err
			}
		}
		var turns []*session.Turn // of a session with reverts, or of the compacted view
		for _, r := range ranges {
			if from, below, some := r.Messages(); some {
				run.Queue(readTurnRange, nil, []any{id, from, below}, func(row dialect.Scanner) error {
					t, err := txn.ScanTurn(row)
					if err != nil {
						return err
					}
					if access.Row != nil && len(access.Row.Hiding())+len(left) > 0 {
						turns = append(turns, t)
						return nil
					}
					return chunks.Turn(t)
				})
			}
		}
		if len(left) > 0 {
			if err := run.Flush(ctx); err != nil {
				return err
			}
			gone := make(map[string]bool, len(left))
			for _, message := range left {
				gone[message] = true
			}
			turns = slices.DeleteFunc(turns, func(t *session.Turn) bool { return gone[t.Message] })
			if ranges, err = withoutMessages(ctx, run, id, ranges, left); err != nil {
				return err
			}
		}
		var hide *hiding
		for _, r := range ranges {
			for from, more := r.From, true; more; {
				entries, others, err := txn.EntryPage(ctx, run, id, from, r.Below, statePageBytes, statePageBytes/txn.EntryOverhead)
				if err != nil {
					return err
				}
				if hide == nil { // the session's row is read
					hide = newHiding(run, access.Row)
					if turns, err = hide.shownTurns(ctx, turns); err != nil {
						return err
					}
					for _, t := range turns {
						if err := chunks.Turn(t); err != nil {
							return err
						}
					}
				}
				if more = others; len(entries) > 0 {
					from = txn.KeyAfter(entries[len(entries)-1].Key)
				}
				if entries, err = hide.shown(ctx, entries); err != nil {
					return err
				}
				for _, e := range entries {
					if err := chunks.Entry(e); err != nil {
						return err
					}
				}
			}
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		return chunks.Flush(true)
	})
	if own != nil {
		return own
	}
	return txn.Wrap("read state", err)
}

// ReadRange returns the folded state of the keys above after and below below, in order: at most
// maxEntries and, except for the first, at most about maxBytes, with the turns of the messages
// among them.
func (s *Reads) ReadRange(ctx context.Context, id, after, below string, maxBytes, maxEntries int, refIDs []string) (*session.Unscoped[*session.StateRange], error) {
	if err := txn.CheckText(after, below); err != nil {
		return nil, err
	}
	page := &session.StateRange{}
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, txn.Wrap("read range", err)
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) (err error) {
		txn.QueueAccess(run, &page.Access, id, refIDs)
		page.Entries, page.More, err = txn.EntryPage(ctx, run, id, txn.KeyAfter(after), below, maxBytes, maxEntries)
		if err != nil {
			return err
		}
		var messages [][]any
		for _, e := range page.Entries {
			if k, err := session.ParseKey(e.Key); err == nil && k.Kind == session.KeyMessage {
				messages = append(messages, []any{id, k.Message})
			}
		}
		if len(messages) > 0 {
			run.Queue(txn.ReadTurns, messages, nil, dialect.Collect(&page.Turns, txn.ScanTurn))
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, txn.Wrap("read range", err)
	}
	slices.SortFunc(page.Turns, func(a, b *session.Turn) int { return strings.Compare(a.Message, b.Message) })
	return session.NewUnscoped(page), nil
}

// FindStreams returns the existing streams among keys, all of one session. sight has the rows of
// the session and the refs.
func (s *Reads) FindStreams(ctx context.Context, keys []session.StreamKey, refIDs []string) (sight *session.Access, streams map[session.StreamKey]*ledger.Stream, err error) {
	for _, key := range keys {
		if err := txn.CheckText(key.Session, key.Outbox); err != nil {
			return nil, nil, err
		}
	}
	sight, streams = &session.Access{}, make(map[session.StreamKey]*ledger.Stream, len(keys))
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, sight, keys[0].Session, refIDs)
		run.Queue(txn.ReadStreams, txn.StreamRows(keys), nil, txn.StreamsByKey(streams))
		return nil
	})
	return sight, streams, txn.Wrap("find streams", err)
}

// ReadRows returns the rows of the existing sessions among ids, for polling.
func (s *Reads) ReadRows(ctx context.Context, ids []string) (map[string]*session.Row, error) {
	rows := make(map[string]*session.Row, len(ids))
	if len(ids) == 0 {
		return rows, nil
	}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(txn.ReadSessions, txn.TextRows(ids), nil, txn.SessionsByID(rows))
		return nil
	})
	return rows, txn.Wrap("read rows", err)
}

// Lapsed returns sessions, at most limit and in id order from after on, that have a streaming turn
// whose lease expired before the given time, Unix ms, or a claim whose lease has expired by now, or a request that has. 0 is
// the database's now, math.MaxInt64 selects every streaming turn (for the start of a server that is the
// only one).
func (s *Reads) Lapsed(ctx context.Context, before int64, after string, limit int) (ids []string, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		var now int64
		run.QueueNow(dialect.SetClock(&now))
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if before == 0 {
			before = now
		}
		run.Queue(lapsedTurns, nil, []any{before, after, int64(limit)}, dialect.Collect(&ids, dialect.ScanText))
		run.Queue(lapsedClaims, nil, []any{now, after, int64(limit)}, dialect.Collect(&ids, dialect.ScanText))
		run.Queue(dueRequests, nil, []any{now, after, int64(limit)}, dialect.Collect(&ids, dialect.ScanText))
		return nil
	})
	if err != nil {
		return nil, txn.Wrap("find lapsed turns and claims", err)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), limit)], nil
}

// ReadAudit returns the rows of a session's or space's audit after the row seq, at most limit, with
// the end of the chain. The page's Access has the rows of the target, if that is a session, and of
// the refs.
func (s *Reads) ReadAudit(ctx context.Context, target string, seq uint64, limit int, refIDs []string) (*session.AuditPage, error) {
	page := &session.AuditPage{}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		txn.QueueAccess(run, &page.Access, target, refIDs)
		run.Queue(txn.ReadAuditHead, nil, []any{target}, func(row dialect.Scanner) error {
			_, h, err := txn.ScanAuditHead(row)
			page.Seq, page.Head = h.Seq, h.Hash
			return err
		})
		run.Queue(txn.ReadAudit, nil, []any{target, txn.Clamp(seq), int64(limit)}, dialect.Collect(&page.Rows, txn.ScanAudit))
		return nil
	})
	return page, txn.Wrap("read audit", err)
}
