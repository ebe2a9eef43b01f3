// The server's verbs that write without a batch: the first start, opening a
// stream, redeeming a ref, audit.

package store

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// firstSpace is the name in meta of the space that the first start made.
const firstSpace = "first_space"

// Init makes the first space, with root as its ref, if the database has none;
// root.Target is its id. It returns the first space's id and whether this call
// made it: of any number of servers that start at once, one does. A later call
// with the same root finds it made.
func (s *Store) Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error) {
	err = s.update(ctx, func(t *tx) error {
		// Who comes second waits here for the first to commit, and then finds
		// the other's name.
		found := false
		t.run.Queue(claimMeta, nil, []any{firstSpace, root.Target}, nil)
		t.run.Queue(readMeta, nil, []any{firstSpace}, func(row Scanner) error { return row.Scan(&space) })
		t.run.QueueNow(setClock(&t.now))
		t.run.Queue(readGrants, refRows([]string{root.ID}), nil, func(Scanner) error {
			found = true
			return nil
		})
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		if space != root.Target || found {
			return nil
		}
		created = true
		mine := *root
		if mine.Created == 0 {
			mine.Created = t.now
		}
		t.run.Queue(insertSpace, nil, []any{space, t.now}, nil)
		return t.Save(ctx, &session.Changes{Grants: []*capability.Grant{&mine}})
	})
	if err != nil {
		return "", false, wrap("init", err)
	}
	return space, created, nil
}

// OpenStream opens the stream that an outbox's secret opens (session.StreamFor), or makes
// it. WrongOutbox if it can open none, Fenced below the stored incarnation; one above it
// fences whoever had that. One of a ref that can change nothing is not made
// (session.ErrIdle) where that ref has made as many as it may. That of a forgotten session
// is none of the database's (StreamOpening.Forgotten). The caller has checked that
// whoever asks holds the session's capability; a session that is not there yet gets an
// Absent row.
func (s *Store) OpenStream(ctx context.Context, o session.StreamRequest) (stream *ledger.Stream, err error) {
	if err := checkText(o.Key.Session, o.Key.Outbox, o.ReadOnlyRef); err != nil {
		return nil, err
	}
	leave, err := s.locks.acquire(ctx, o.Key.Session)
	if err != nil {
		return nil, wrap("open stream", err)
	}
	defer leave()
	var refused error
	err = s.update(ctx, func(t *tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{Sessions: []string{o.Key.Session}, Streams: session.CandidateStreams(o.Key, o.SecretHash)})
		if err != nil {
			return err
		}
		if rows.Sessions[o.Key.Session].Forgotten {
			stream = o.Forgotten()
			return nil
		}
		at, found, taken := session.MatchStream(o.Key, o.SecretHash, rows.Streams)
		stream = found
		switch {
		case taken:
			refused = fault.WrongOutbox.With("the outbox's id is another outbox's in this session: use the outbox that made the stream, or one with another id")
			return refused
		case stream == nil:
			full, err := t.atReadOnlyLimit(ctx, &o)
			if err != nil {
				return err
			}
			if full {
				refused = session.ErrReadOnlyStreams
				return refused
			}
			stream = &ledger.Stream{Session: at.Session, Outbox: at.Outbox, SecretHash: o.SecretHash, Incarnation: o.Incarnation, ReadOnlyRef: o.ReadOnlyRef}
		case o.Incarnation < stream.Incarnation:
			refused = fault.Fenced.With("incarnation %d of the outbox was taken over by incarnation %d", o.Incarnation, stream.Incarnation)
			return refused
		case o.AlreadyOpen(stream):
			return nil
		default:
			stream.Incarnation = o.Incarnation
			if o.ReadOnlyRef == "" {
				stream.ReadOnlyRef = ""
			}
		}
		return t.Save(ctx, &session.Changes{Streams: []*ledger.Stream{stream}})
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, wrap("open stream", err)
	}
	return stream, nil
}

// atReadOnlyLimit says whether a ref that can change nothing has made as many streams as it may.
func (t *tx) atReadOnlyLimit(ctx context.Context, o *session.StreamRequest) (full bool, err error) {
	if o.ReadOnlyRef == "" {
		return false, nil
	}
	t.run.Queue(nthReadOnlyStream, nil, []any{o.ReadOnlyRef, int64(o.MaxReadOnlyStreams) - 1}, func(Scanner) error {
		full = true
		return nil
	})
	return full, t.run.Flush(ctx)
}

// Redeem has admit decide on a ref and a redemption id. If admit returns nil
// for a ref that is there and a redemption id that was not counted before, it
// is counted (Grant.Redemptions), for the ref and for those with a limit that it was
// minted from, and an audit row is written, with the address of peer. Where there is no
// limit that is so for capability.MostCounted of them, and nothing is written of further
// ones: anybody who holds a public link may make any number. admit may run twice,
// the second time on the rows under lock, and then with those above it too; its
// error comes back as it is, with nothing changed. A redemption id that was
// counted costs a read of one ref, and so does one that is refused at once: the
// line above a ref may be long.
func (s *Store) Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error {
	if capability.Target(ref) == "" {
		return admit(&session.Redemption{}) // no id at all, so nobody's
	}
	if err := checkText(redemption); err != nil {
		return err
	}
	target, tail := splitRef(ref)
	find := func(run Runner, grants *Statement, ids []string) *session.Redemption {
		r := &session.Redemption{}
		queueAccess(run, &r.Access, target, nil)
		run.Queue(grants, refRows(ids), nil, func(row Scanner) error {
			g, err := scanGrant(row)
			switch {
			case err != nil:
			case g.ID == ref:
				r.Grant = g
			case g.MaxRedemptions != 0 && g.Target == target:
				r.LimitedAncestors = append(r.LimitedAncestors, g)
			}
			return err
		})
		run.Queue(readRedemption, nil, []any{target, tail, redemption}, func(row Scanner) error {
			var at int64
			r.AlreadyCounted = true
			return row.Scan(&at)
		})
		return r
	}
	decide := func(r *session.Redemption) error {
		if r.Grant != nil {
			r.Grants[r.Grant.ID] = r.Grant
		}
		return admit(r)
	}

	var seen *session.Redemption
	err := s.backend.Snapshot(ctx, func(run Runner) error {
		seen = find(run, readGrants, []string{ref})
		return nil
	})
	if err != nil {
		return wrap("redeem", err)
	}
	if err := decide(seen); err != nil || seen.Grant == nil || seen.AlreadyCounted {
		return err
	}

	ids := []string{ref}
	// The line above a ref leaves its target for the space's, and does not come back.
	if capability.Target(seen.Grant.Parent) == target {
		err = s.backend.Snapshot(ctx, func(run Runner) error {
			run.Queue(readLineages, refRows(ids), nil, func(row Scanner) error {
				g, err := scanGrant(row)
				if err == nil && g.ID != ref && g.MaxRedemptions != 0 && g.Target == target {
					ids = append(ids, g.ID)
				}
				return err
			})
			return nil
		})
		if err != nil {
			return wrap("redeem", err)
		}
		slices.Sort(ids)
	}
	uncounted := func(r *session.Redemption) bool {
		r.Uncounted = len(ids) == 1 && r.Grant.MaxRedemptions == 0 && r.Grant.Redemptions >= capability.MaxCountedRedemptions
		return r.Uncounted
	}
	if uncounted(seen) {
		return nil
	}

	var own error
	err = s.update(ctx, func(t *tx) error {
		// One grant's row is locked alone. Several are locked under the row that all
		// changes of authority go through, so that nobody holds one of them and
		// waits for another.
		if len(ids) > 1 && capability.IsSession(target) {
			t.run.Queue(lockSessions, textRows([]string{target}), nil, nil)
		} else if len(ids) > 1 {
			t.run.Queue(lockSpace, nil, []any{target}, nil)
		}
		r := find(t.run, lockGrants, ids)
		if err := t.run.Flush(ctx); err != nil {
			return err
		}
		t.now = r.Now
		if own = decide(r); own != nil || r.Grant == nil || r.AlreadyCounted || uncounted(r) {
			return own
		}
		t.run.Queue(insertRedemption, nil, []any{target, tail, redemption, t.now}, nil)
		t.run.Queue(countRedemption, refRows(ids), nil, nil)
		row := &capability.AuditRow{Target: target, Act: capability.AuditRedeem, Ref: ref, Actor: r.Grant.Actor, Peer: peer}
		if r.Row != nil {
			row.Cursor = r.Row.Cursor
		}
		return t.Save(ctx, &session.Changes{Audit: []*capability.AuditRow{row}})
	})
	if own != nil {
		return own
	}
	return wrap("redeem", err)
}

// checkText refuses texts of a peer's making that a database would not take, or
// would not give back as they were.
func checkText(texts ...string) error {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fault.BadArgument.With("a name in the call is not UTF-8 text, or has a NUL in it")
		}
	}
	return nil
}

// Audit writes a page of audit rows that no transaction of theirs carries: denials of
// calls, and strangers' in numbers.
func (s *Store) Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error {
	if len(rows) == 0 {
		return nil
	}
	return wrap("audit", s.updateOnce(ctx, page, func(t *tx) error {
		return t.Save(ctx, &session.Changes{Audit: rows})
	}))
}
