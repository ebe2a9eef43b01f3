// Writes of the server outside of batches: the first start, opening a stream, redeeming a ref,
// audit.

package authority

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
	"github.com/mooring-rpc/mooring/ledger"
)

// firstSpace is the name in meta of the space created by the first start.
const firstSpace = "first_space"

// Authority is what a store knows of refs, streams and shares beside commits. Its methods are safe for concurrent use.
type Authority struct{ db *txn.DB }

var (
	// nthReadOnlyStream returns a row if more than {2} streams were created under a ref without any
	// write right.
	nthReadOnlyStream = dialect.Both("", `
		SELECT m.outbox FROM streams m WHERE m.idle_ref = {1} AND m.idle_ref <> '' LIMIT 1 OFFSET {2}`)

	countRedemption = dialect.Both("tt", `
		UPDATE grants SET redeemed = redeemed + 1 WHERE (target, tail) IN (SELECT a, b FROM {w})`).RowByRow(`
		UPDATE grants SET redeemed = redeemed + 1 WHERE target = $1 AND tail = $2`)
	insertRedemption = dialect.Both("", `INSERT INTO redemptions (target, tail, redemption, at) VALUES ({1}, {2}, {3}, {4})`)

	readRedemption = dialect.Both("", `
		SELECT d.at FROM redemptions d WHERE d.target = {1} AND d.tail = {2} AND d.redemption = {3}`)

	lockGrants = dialect.Both("tt", `
		SELECT `+txn.GrantColumns+` FROM grants g
		WHERE (g.target, g.tail) IN (SELECT a, b FROM {w}) ORDER BY g.target, g.tail {lock}`).RowByRow(`
		SELECT ` + txn.GrantColumns + ` FROM grants g WHERE g.target = $1 AND g.tail = $2`)
	insertSpace = dialect.Both("", `INSERT INTO spaces (id, created) VALUES ({1}, {2})`)
	claimMeta   = dialect.Both("", `INSERT INTO meta (name, value) VALUES ({1}, {2}) ON CONFLICT (name) DO NOTHING`)
)

// New returns the authority of a database.
func New(db *txn.DB) *Authority { return &Authority{db: db} }

// Init creates the first space, with root as its ref, if the database has none; root.Target is its
// id. It returns the first space's id and whether this call created it: of any number of servers
// that start at once, one does. A later call with the same root returns the existing one.
func (s *Authority) Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error) {
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		// The second of two concurrent calls waits here for the first to commit, and then finds the
		// other's name.
		found := false
		t.Run.Queue(claimMeta, nil, []any{firstSpace, root.Target}, nil)
		t.Run.Queue(txn.ReadMeta, nil, []any{firstSpace}, func(row dialect.Scanner) error { return row.Scan(&space) })
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		t.Run.Queue(txn.ReadGrants, txn.RefRows([]string{root.ID}), nil, func(dialect.Scanner) error {
			found = true
			return nil
		})
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		if space != root.Target || found {
			return nil
		}
		created = true
		mine := *root
		if mine.Created == 0 {
			mine.Created = t.Now
		}
		t.Run.Queue(insertSpace, nil, []any{space, t.Now}, nil)
		return t.Save(ctx, &session.Changes{Grants: []*capability.Grant{&mine}})
	})
	if err != nil {
		return "", false, txn.Wrap("init", err)
	}
	return space, created, nil
}

// OpenStream opens the stream that an outbox's secret gives access to (session.MatchStream), or
// creates it. Errors: WrongOutbox if the secret fits none, Fenced for an incarnation below the
// stored one; an incarnation above it fences its predecessor. A stream under a ref without any
// write right is not created (session.ErrReadOnlyStreams) if that ref has created its maximum. The
// stream of a forgotten session has no row (StreamRequest.Forgotten). The caller has checked that
// the peer holds the session's capability; a session without a row gets an Absent one.
func (s *Authority) OpenStream(ctx context.Context, o session.StreamRequest) (stream *ledger.Stream, err error) {
	if err := txn.CheckText(o.Key.Session, o.Key.Outbox, o.ReadOnlyRef); err != nil {
		return nil, err
	}
	leave, err := s.db.Locks.Acquire(ctx, o.Key.Session)
	if err != nil {
		return nil, txn.Wrap("open stream", err)
	}
	defer leave()
	var refused error
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{Sessions: []string{o.Key.Session}, Streams: session.CandidateStreams(o.Key, o.SecretHash), Grants: o.Refs, Others: session.OtherSessions(o.Key.Session, o.Refs)})
		if err != nil {
			return err
		}
		row := rows.Sessions[o.Key.Session]
		if row.Forgotten {
			stream = o.Forgotten()
			return nil
		}
		if o.Decide != nil {
			if refused = o.Decide(&o, &session.Access{Row: row, Grants: rows.Grants, Others: rows.Others, Now: rows.Now}, rows.Streams); refused != nil {
				return refused
			}
		}
		at, found, taken := session.MatchStream(o.Key, o.SecretHash, rows.Streams)
		stream = found
		switch {
		case taken:
			refused = fault.WrongOutbox.With("the outbox's id is another outbox's in this session: use the outbox that made the stream, or one with another id")
			return refused
		case stream == nil:
			full, err := atReadOnlyLimit(ctx, t, &o)
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
		return nil, txn.Wrap("open stream", err)
	}
	return stream, nil
}

// atReadOnlyLimit reports whether a ref without any write right has created its maximum of streams.
func atReadOnlyLimit(ctx context.Context, t *txn.Tx, o *session.StreamRequest) (full bool, err error) {
	if o.ReadOnlyRef == "" {
		return false, nil
	}
	t.Run.Queue(nthReadOnlyStream, nil, []any{o.ReadOnlyRef, int64(o.MaxReadOnlyStreams) - 1}, func(dialect.Scanner) error {
		full = true
		return nil
	})
	return full, t.Run.Flush(ctx)
}

// Redeem calls admit to decide on a ref and a redemption id. If admit returns nil for an existing
// ref and a redemption id that was not counted before, it is counted (Grant.Redemptions), for the
// ref and for its ancestors with a limit, and an audit row is written, with the address of peer.
// Without any limit only the first capability.MaxCountedRedemptions are counted, and later ones
// write nothing: the holder of a public link may make any number. admit may run twice, the second
// time on the rows under lock and with the ancestors; its error is returned unchanged, with nothing
// changed. A redemption id that was counted costs a read of one ref, and so does one that is
// refused at once: a lineage may be long.
func (s *Authority) Redeem(ctx context.Context, ref, redemption, peer string, admit func(*session.Redemption) error) error {
	if capability.Target(ref) == "" {
		return admit(&session.Redemption{}) // no redemption id: never counted before
	}
	if err := txn.CheckText(redemption); err != nil {
		return err
	}
	target, tail := txn.SplitRef(ref)
	find := func(run dialect.Runner, grants *dialect.Statement, ids []string) *session.Redemption {
		r := &session.Redemption{}
		txn.QueueAccess(run, &r.Access, target, nil)
		run.Queue(grants, txn.RefRows(ids), nil, func(row dialect.Scanner) error {
			g, err := txn.ScanGrant(row)
			switch {
			case err != nil:
			case g.ID == ref:
				r.Grant = g
			case g.MaxRedemptions != 0 && g.Target == target:
				r.LimitedAncestors = append(r.LimitedAncestors, g)
			}
			return err
		})
		run.Queue(readRedemption, nil, []any{target, tail, redemption}, func(row dialect.Scanner) error {
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
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		seen = find(run, txn.ReadGrants, []string{ref})
		return nil
	})
	if err != nil {
		return txn.Wrap("redeem", err)
	}
	if err := decide(seen); err != nil || seen.Grant == nil || seen.AlreadyCounted {
		return err
	}

	ids := []string{ref}
	// A lineage that leaves its target for the space's does not come back.
	if capability.Target(seen.Grant.Parent) == target {
		err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
			run.Queue(txn.ReadLineages, txn.RefRows(ids), nil, dialect.EachRow(txn.ScanRef, func(g *capability.Grant) {
				if g.ID != ref && g.MaxRedemptions != 0 && g.Target == target {
					ids = append(ids, g.ID)
				}
			}))
			return nil
		})
		if err != nil {
			return txn.Wrap("redeem", err)
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
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		// A single grant's row is locked alone. Several are locked under the session's row, which
		// all changes of authority lock, so that two transactions cannot deadlock.
		if len(ids) > 1 && capability.IsSession(target) {
			t.Run.Queue(txn.LockSessions, txn.TextRows([]string{target}), nil, nil)
		} else if len(ids) > 1 {
			t.Run.Queue(txn.LockSpace, nil, []any{target}, nil)
		}
		r := find(t.Run, lockGrants, ids)
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		t.Now = r.Now
		if own = decide(r); own != nil || r.Grant == nil || r.AlreadyCounted || uncounted(r) {
			return own
		}
		t.Run.Queue(insertRedemption, nil, []any{target, tail, redemption, t.Now}, nil)
		t.Run.Queue(countRedemption, txn.RefRows(ids), nil, nil)
		row := &capability.AuditRow{Target: target, Act: capability.AuditRedeem, Ref: ref, Actor: r.Grant.Actor, Peer: peer}
		if r.Row != nil {
			row.Cursor = r.Row.Cursor
			t.Prior = map[string]txn.PriorRow{target: {Space: r.Row.Space, External: r.Row.External}} // a session that exists
		}
		return t.Save(ctx, &session.Changes{Audit: []*capability.AuditRow{row}})
	})
	if own != nil {
		return own
	}
	return txn.Wrap("redeem", err)
}

// Audit writes a page of audit rows that belong to no other transaction: denials of calls, and
// counted attempts with unknown refs.
func (s *Authority) Audit(ctx context.Context, page capability.IdempotencyKey, rows []*capability.AuditRow) error {
	if len(rows) == 0 {
		return nil
	}
	return txn.Wrap("audit", s.updateOnce(ctx, page, func(t *txn.Tx) error {
		return t.Save(ctx, &session.Changes{Audit: rows})
	}))
}
