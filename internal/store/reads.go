// Reads. Each is one snapshot, in which the rows and the authority to see them belong together.

package store

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// queueAccess queues the statements that every read begins with.
func queueAccess(run Runner, sight *session.Access, id string, refIDs []string) {
	sight.Grants = make(map[string]*capability.Grant, len(refIDs))
	run.QueueNow(setClock(&sight.Now))
	if id != "" {
		queueRow(run, readSessions, id, &sight.Row)
	}
	if len(refIDs) > 0 {
		run.Queue(readGrants, refRows(refIDs), nil, grantsByID(sight.Grants))
	}
	if others := session.OtherSessions(id, refIDs); id != "" && len(others) > 0 {
		sight.Others = map[string]*session.Row{}
		run.Queue(readSessions, textRows(others), nil, sessionsByID(sight.Others))
	}
}

// ReadAccess returns a session's row (nil if there is none, and for a space or "") and the rows of
// the known refs among refIDs.
func (s *Store) ReadAccess(ctx context.Context, id string, refIDs []string) (*session.Access, error) {
	sight := &session.Access{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, sight, id, refIDs)
		return nil
	})
	if err != nil {
		return nil, wrap("look", err)
	}
	return sight, nil
}

// ReadLog returns a session's events after cursor after, in order and without a gap: at most
// maxEvents and, except for the first, at most about maxBytes. If after is below Row.Base, the page
// starts where the log does and has the checkpoint before it; the caller compares. The page also
// has the hashes of the events at hashesAt.
func (s *Store) ReadLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refIDs []string, hashesAt ...uint64) (*session.Unscoped[*session.LogPage], error) {
	page, err := s.readLog(ctx, id, after, maxBytes, maxEvents, refIDs, hashesAt...)
	if err != nil {
		return nil, err
	}
	return session.NewUnscoped(page), nil
}

// readLog is ReadLog, for the store itself.
func (s *Store) readLog(ctx context.Context, id string, after uint64, maxBytes, maxEvents int, refIDs []string, hashesAt ...uint64) (*session.LogPage, error) {
	page := &session.LogPage{}
	size := 0
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, wrap("read log", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, id, refIDs)
		if len(hashesAt) > 0 {
			page.Hashes = make(map[uint64]session.Hash, len(hashesAt))
			run.Queue(readHashes, eventRows(id, hashesAt), nil, func(row Scanner) error {
				var cursor int64
				var hash []byte
				err := row.Scan(&cursor, &hash)
				var h session.Hash
				copy(h[:], hash)
				page.Hashes[uint64(cursor)] = h
				return err
			})
		}
		run.Queue(readEvents, nil, []any{id, clamp(after), int64(max(maxEvents, 1)) + 2, int64(max(maxBytes, eventOverhead))}, func(row Scanner) error {
			e, err := scanEvent(row)
			if err != nil {
				return err
			}
			if page.Row != nil && e.Cursor <= page.Row.Base {
				page.Checkpoint = e
				return nil
			}
			size += eventSize(e)
			if len(page.Events) > 0 && (size > maxBytes || len(page.Events) >= maxEvents) {
				page.More = true
				return ErrStopRows
			}
			page.Events = append(page.Events, e)
			return nil
		})
		return nil
	})
	if err != nil {
		return nil, wrap("read log", err)
	}
	return page, nil
}

// eventRows returns a list of a session's events, as rows of a statement's list.
func eventRows(id string, cursors []uint64) [][]any {
	list := make([][]any, len(cursors))
	for i, cursor := range cursors {
		list[i] = []any{id, clamp(cursor)}
	}
	return list
}

// hashKeyName is the name in meta of the key of masked hashes.
const hashKeyName = "hash_key"

// hashKey returns the database's session.HashKey, which a migration has created.
func (s *Store) hashKey(ctx context.Context) (key session.HashKey, err error) {
	if known := s.hashKeyCache.Load(); known != nil {
		return *known, nil
	}
	var text string
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readMeta, nil, []any{hashKeyName}, func(row Scanner) error { return row.Scan(&text) })
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
func (s *Store) ReadState(ctx context.Context, id string, refIDs []string, pieceBytes int, portion func(*session.Access) session.Portion,
	piece func(*session.Unscoped[*session.StateChunk]) error) error {
	if err := s.ensureOrds(ctx, id); err != nil {
		return err
	}
	var own error
	key, err := s.hashKey(ctx)
	if err != nil {
		return wrap("read state", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		access := session.Access{Key: key}
		chunks := session.Chunker{Access: &access, PieceBytes: pieceBytes, Give: func(c *session.Unscoped[*session.StateChunk]) error {
			own = piece(c)
			return own
		}}
		queueAccess(run, &access, id, refIDs)
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
				run.Queue(readTurnRange, nil, []any{id, from, below}, func(row Scanner) error {
					t, err := scanTurn(row)
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
				entries, others, err := entryPage(ctx, run, id, from, r.Below, statePageBytes, statePageBytes/entryOverhead)
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
					from = keyAfter(entries[len(entries)-1].Key)
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
	return wrap("read state", err)
}

// ReadRange returns the folded state of the keys above after and below below, in order: at most
// maxEntries and, except for the first, at most about maxBytes, with the turns of the messages
// among them.
func (s *Store) ReadRange(ctx context.Context, id, after, below string, maxBytes, maxEntries int, refIDs []string) (*session.Unscoped[*session.StateRange], error) {
	if err := checkText(after, below); err != nil {
		return nil, err
	}
	page := &session.StateRange{}
	var err error
	if page.Key, err = s.hashKey(ctx); err != nil {
		return nil, wrap("read range", err)
	}
	err = s.backend.Snapshot(ctx, func(run Runner) (err error) {
		queueAccess(run, &page.Access, id, refIDs)
		page.Entries, page.More, err = entryPage(ctx, run, id, keyAfter(after), below, maxBytes, maxEntries)
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
			run.Queue(readTurns, messages, nil, collect(&page.Turns, scanTurn))
		}
		if err := run.Flush(ctx); err != nil {
			return err
		}
		return hideRange(ctx, run, page)
	})
	if err != nil {
		return nil, wrap("read range", err)
	}
	slices.SortFunc(page.Turns, func(a, b *session.Turn) int { return strings.Compare(a.Message, b.Message) })
	return session.NewUnscoped(page), nil
}

// entryPage flushes the queue, and returns the entries of the keys from from on and below below, in
// order: at most most entries and, except for the first, at most about maxBytes, with the texts of
// their deltas. more reports that there are others.
func entryPage(ctx context.Context, run Runner, id, from, below string, maxBytes, most int) (entries []*session.Entry, more bool, err error) {
	return pageOf(ctx, run, readRange, readOpenDeltas, id, id, from, below, maxBytes, most)
}

// pageOf is entryPage by other statements, of entries whose deltas are in the log of a session.
func pageOf(ctx context.Context, run Runner, read, deltas *Statement, id, log, from, below string, maxBytes, most int) (entries []*session.Entry, more bool, err error) {
	size := 0
	run.Queue(read, nil, []any{id, from, below, int64(max(most, 1)) + 1, int64(max(maxBytes, 0))}, func(row Scanner) error {
		e, err := scanEntry(row)
		if err != nil {
			return err
		}
		size += entrySize(e)
		if len(entries) > 0 && (size > maxBytes || len(entries) >= most) {
			more = true
			return ErrStopRows
		}
		entries = append(entries, e)
		return nil
	})
	if err := run.Flush(ctx); err != nil {
		return nil, false, err
	}
	if err := foldDeltasBy(ctx, run, deltas, log, entries); err != nil {
		return nil, false, err
	}
	return entries, more, nil
}

// foldOpenDeltas adds to a session's entries the texts of their deltas.
func foldOpenDeltas(ctx context.Context, run Runner, id string, entries []*session.Entry) error {
	return foldDeltasBy(ctx, run, readOpenDeltas, id, entries)
}

// foldDeltasBy is foldOpenDeltas by a statement.
func foldDeltasBy(ctx context.Context, run Runner, read *Statement, id string, entries []*session.Entry) error {
	var grown []*session.Entry
	from, to := uint64(math.MaxInt64), uint64(0)
	var first, last string
	for _, e := range entries {
		if e.LastAppend > 0 {
			if grown = append(grown, e); len(grown) == 1 {
				first, last = e.Key, e.Key
			}
			from, to, first, last = min(from, e.Cursor), max(to, e.LastAppend), min(first, e.Key), max(last, e.Key)
		}
	}
	if len(grown) == 0 {
		return nil
	}
	texts := make(map[string][]delta, len(grown))
	for _, e := range grown {
		texts[e.Key] = nil
	}
	run.Queue(read, nil, []any{id, int64(from), int64(to), first, last}, func(row Scanner) error {
		d, err := scanDelta(row)
		if deltas, wanted := texts[d.key]; wanted {
			texts[d.key] = append(deltas, d)
		}
		return err
	})
	if err := run.Flush(ctx); err != nil {
		return err
	}
	for _, e := range grown {
		foldDeltas(e, texts[e.Key])
	}
	return nil
}

// foldDeltas folds a part's deltas into its payload.
func foldDeltas(e *session.Entry, deltas []delta) {
	var text []byte
	for _, d := range deltas {
		if d.cursor > e.Cursor {
			text = append(text, d.text...)
		}
	}
	if len(text) > 0 {
		e.Payload = session.FoldText(e.Payload, text)
	}
}

// FindStreams returns the existing streams among keys, all of one session. sight has the rows of
// the session and the refs.
func (s *Store) FindStreams(ctx context.Context, keys []session.StreamKey, refIDs []string) (sight *session.Access, streams map[session.StreamKey]*ledger.Stream, err error) {
	for _, key := range keys {
		if err := checkText(key.Session, key.Outbox); err != nil {
			return nil, nil, err
		}
	}
	sight, streams = &session.Access{}, make(map[session.StreamKey]*ledger.Stream, len(keys))
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, sight, keys[0].Session, refIDs)
		run.Queue(readStreams, streamRows(keys), nil, func(row Scanner) error {
			m, err := scanStream(row)
			if err == nil {
				streams[session.StreamKey{Session: m.Session, Outbox: m.Outbox}] = m
			}
			return err
		})
		return nil
	})
	if err != nil {
		return nil, nil, wrap("find streams", err)
	}
	return sight, streams, nil
}

// ReadRows returns the rows of the existing sessions among ids, for polling.
func (s *Store) ReadRows(ctx context.Context, ids []string) (map[string]*session.Row, error) {
	rows := make(map[string]*session.Row, len(ids))
	if len(ids) == 0 {
		return rows, nil
	}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		run.Queue(readSessions, textRows(ids), nil, sessionsByID(rows))
		return nil
	})
	if err != nil {
		return nil, wrap("read rows", err)
	}
	return rows, nil
}

// A page that is not full ends when the database has examined maxListScan sessions, or the titles of maxCompared have been
// read, so many at once.
const (
	maxListScan = 5000
	maxCompared = 2000
	listBatch   = 250
)

// ListSessions returns a page of a space's sessions, with at most maxTitleBytes of each title. The
// page's Access has the refs' rows and no session's.
func (s *Store) ListSessions(ctx context.Context, space string, q session.ListQuery, refIDs []string) (*session.ListPage, error) {
	if err := checkText(space, q.After, q.Search, q.Parent); err != nil {
		return nil, err
	}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	if q.Order == session.ByTitle {
		s.refreshTitles(ctx)
	}
	page := &session.ListPage{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, "", refIDs)
		if err := listPage(ctx, run, space, &q, page); err != nil || !q.Activity || len(page.Sessions) == 0 {
			return err
		}
		return addActivity(ctx, run, page)
	})
	if err != nil {
		return nil, wrap("list sessions", err)
	}
	return page, nil
}

// addActivity adds what goes on in the sessions of a page.
func addActivity(ctx context.Context, run Runner, page *session.ListPage) error {
	at, rows := map[string]*session.Listing{}, [][]any{}
	for _, l := range page.Sessions {
		at[l.ID], rows = l, append(rows, []any{l.ID, int64(l.Cursor)})
	}
	run.Queue(readActivity, rows, []any{page.Now}, func(row Scanner) error {
		var id string
		var a session.Activity
		var running int64
		if err := row.Scan(&id, &a.Ref, &a.Actor, &running); err != nil {
			return err
		}
		a.Running = running > 0
		at[id].Activity = &a
		return nil
	})
	return run.Flush(ctx)
}

// ReadChildren implements session.Reader.
func (s *Store) ReadChildren(ctx context.Context, id, after string, limit int, refIDs []string, admit session.Admit) (*session.ListPage, error) {
	q := session.ListQuery{Parent: id, After: after, Limit: limit}
	if refused := q.Check(); refused != nil {
		return nil, refused
	}
	page := &session.ListPage{}
	var refused error
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, id, refIDs)
		if err := run.Flush(ctx); err != nil {
			return err
		}
		var g *capability.Grant
		if g, refused = admit(&page.Access); refused != nil {
			return refused
		}
		if err := listPage(ctx, run, page.Row.Space, &q, page); err != nil {
			return err
		}
		page.Sessions = session.ChildrenShown(g, page.Sessions)
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, wrap("list children", err)
	}
	return page, nil
}

// listPage fills a page.
func listPage(ctx context.Context, run Runner, space string, q *session.ListQuery, page *session.ListPage) error {
	limit := max(q.Limit, 1)
	at, refused := q.Position()
	if refused != nil {
		return refused
	}
	search := strings.ToLower(strings.TrimSpace(q.Search))
	for examined, compared := 0, 0; ; {
		from, seen, room, full, left := at, 0, limit-len(page.Sessions), false, false
		if search != "" || compared > 0 {
			room = max(room, listBatch)
		}
		scan := listScan{bound: maxListScan, deleted: q.Deleted, search: search, limit: room + 1}
		scan.queue(run, q, space, from, func(l *session.Listing, position session.ListPosition) {
			if left = full || seen == room; left {
				return
			}
			seen++
			if at = position; l.Space == space && q.Matches(l) {
				page.Sessions = append(page.Sessions, l)
				full = len(page.Sessions) == limit
			}
		})
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if !left { // the list may still go on behind the bound
			more := false
			scan = listScan{offset: maxListScan - 1, bound: 1, deleted: true, limit: 1}
			scan.queue(run, q, space, from, func(_ *session.Listing, position session.ListPosition) { at, more = position, true })
			if err := run.Flush(ctx); err != nil || !more {
				return err
			}
			examined += maxListScan
		}
		compared += seen
		enough := examined >= maxListScan || compared >= maxCompared
		if full || enough && (q.Search != "" || len(page.Sessions) > 0) { // clients of earlier versions stop at an empty page
			page.Next = at.Text(q.Order)
			return nil
		}
	}
}

// listScan is what is examined of a list, and what is selected of that (see listingSQL).
type listScan struct {
	offset, bound int
	deleted       bool
	search        string
	limit         int
}

// queue reads what is selected after a position, each session with the position after it.
func (c *listScan) queue(run Runner, q *session.ListQuery, space string, from session.ListPosition, each func(*session.Listing, session.ListPosition)) {
	list, args := listFrom(q.Order, space, from)
	if q.Parent != "" {
		list, args = listChildren, []any{q.Parent, from.ID}
	}
	deleted := int64(0)
	if c.deleted {
		deleted = 1
	}
	args = append(args, int64(c.offset), int64(c.bound), deleted, c.search, int64(c.limit))
	run.Queue(list, nil, args, func(row Scanner) error {
		var title string
		var info []byte
		r, err := scanSession(row, &title, &info)
		if err == nil {
			each(&session.Listing{Row: *r, Title: infoTitle(info)}, session.ListPosition{ID: r.ID, Updated: r.Updated, Title: title})
		}
		return err
	})
}

// listFrom returns the statement that reads a space's sessions after a position, with its first values.
func listFrom(order session.ListOrder, space string, at session.ListPosition) (*Statement, []any) {
	const behind = capability.SessionPrefix + "~" // above every id
	switch {
	case order == session.OldestFirst:
		return listOldest, []any{space, at.ID}
	case order == session.NewestFirst && at.ID == "":
		return listNewest, []any{space, behind}
	case order == session.NewestFirst:
		return listNewest, []any{space, at.ID}
	case order == session.ByTitle:
		return listTitled, []any{space, at.Title, at.ID}
	case at.ID == "":
		return listChanged, []any{space, int64(math.MaxInt64), int64(math.MaxInt64), behind}
	}
	return listChanged, []any{space, at.Updated / 60_000, at.Updated, at.ID}
}

// maxTitleBytes is the maximum length of a title in a list: writers may store an info of any size.
const maxTitleBytes = 256

// infoTitle returns the title in the beginning of an info, cut to maxTitleBytes, in memory of its
// own.
func infoTitle(info []byte) string {
	title := gjson.GetBytes(info, "title")
	if !title.Exists() && len(info) == maxInfoBytes { // it may end within the title, perhaps behind a backslash
		title = gjson.GetBytes(append(info, `""`...), "title")
	}
	text := title.String()
	if len(text) <= maxTitleBytes {
		return text
	}
	n := maxTitleBytes
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.Clone(text[:n])
}

// Lapsed returns sessions, at most limit and in id order from after on, that have a streaming turn
// whose lease expired before the given time, Unix ms, or a claim whose lease has expired by now, or a request that has. 0 is
// the database's now, math.MaxInt64 selects every streaming turn (for the start of a server that is the
// only one).
func (s *Store) Lapsed(ctx context.Context, before int64, after string, limit int) (ids []string, err error) {
	err = s.backend.Snapshot(ctx, func(run Runner) error {
		var now int64
		run.QueueNow(setClock(&now))
		if err := run.Flush(ctx); err != nil {
			return err
		}
		if before == 0 {
			before = now
		}
		run.Queue(lapsedTurns, nil, []any{before, after, int64(limit)}, collect(&ids, scanText))
		run.Queue(lapsedClaims, nil, []any{now, after, int64(limit)}, collect(&ids, scanText))
		run.Queue(dueRequests, nil, []any{now, after, int64(limit)}, collect(&ids, scanText))
		return nil
	})
	if err != nil {
		return nil, wrap("find lapsed turns and claims", err)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), limit)], nil
}

// ReadAudit returns the rows of a session's or space's audit after the row seq, at most limit, with
// the end of the chain. The page's Access has the rows of the target, if that is a session, and of
// the refs.
func (s *Store) ReadAudit(ctx context.Context, target string, seq uint64, limit int, refIDs []string) (*session.AuditPage, error) {
	page := &session.AuditPage{}
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		queueAccess(run, &page.Access, target, refIDs)
		run.Queue(readAuditHead, nil, []any{target}, func(row Scanner) error {
			_, h, err := scanAuditHead(row)
			page.Seq, page.Head = h.seq, h.hash
			return err
		})
		run.Queue(readAudit, nil, []any{target, clamp(seq), int64(limit)}, collect(&page.Rows, scanAudit))
		return nil
	})
	if err != nil {
		return nil, wrap("read audit", err)
	}
	return page, nil
}
