// Public shares, and the reads needed to create one: sessions by external id, their owner refs, the
// refs minted from a ref.

package authority

import (
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/reads"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

const shareColumns = `p.id, p.session, p.owner_tail, p.share_tail, p.reader_tail, p.created`

var (
	insertShare = dialect.Both("", `
		INSERT INTO public_shares (id, session, owner_tail, share_tail, reader_tail, created, asked) VALUES ({1}, {2}, {3}, {4}, {5}, {6}, {7})`)
	readShare = dialect.Both("", `SELECT `+shareColumns+` FROM public_shares p WHERE p.id = {1}`)

	// readRecentRequests reads the shares that a requester asked for since a time, newest first.
	readRecentRequests = dialect.Both("", `
		SELECT `+shareColumns+` FROM public_shares p
		WHERE p.asked = {1} AND length(p.asked) > 0 AND p.created > {2} ORDER BY p.created DESC, p.id`)

	// readShares reads sessions' shares, the oldest of each session first.
	readShares = dialect.Both("t", `
		SELECT `+shareColumns+` FROM {w} CROSS JOIN public_shares p WHERE p.session = w.a ORDER BY p.created, p.id`)

	// listShares reads a page of all shares, with their sessions' rows and infos.
	listShares = dialect.Both("", `
		SELECT `+txn.SessionColumns+`, `+shareColumns+`, `+reads.InfoPrefix+` FROM public_shares p CROSS JOIN sessions s
		WHERE s.id = p.session AND p.id > {1} ORDER BY p.id LIMIT {2}`)

	readOwners = dialect.Both("", `
		SELECT `+txn.GrantColumns+` FROM grants g WHERE g.target = {1} AND g.owner = 1 AND g.revoked = 0 ORDER BY g.tail`)
	readChildren = dialect.Both("", `
		SELECT `+txn.GrantColumns+` FROM grants g
		WHERE g.parent_target = {1} AND g.parent_tail = {2} AND g.revoked = 0 ORDER BY g.created, g.tail LIMIT {3}`)
)

// The keys that were synced to a session and refused; the empty key represents unknown ones.
var (
	readRefusals = dialect.Both("", `
		SELECT f.key, f.why, f.at FROM share_refusals f WHERE f.session = {1} ORDER BY f.key`)
	saveRefusals = dialect.Both("ttti", `
		INSERT INTO share_refusals (session, key, why, at) {values} ON CONFLICT (session, key) DO NOTHING`)
	dropRefusals = dialect.Both("tt", `
		DELETE FROM share_refusals WHERE (session, key) IN (SELECT a, b FROM {w})`)
)

// findByExternal selects the living sessions with an external id, newest first.
var findByExternal = dialect.Both("", `
	SELECT s.id FROM sessions s
	WHERE s.space = {1} AND s.external = {2} AND s.external <> '' AND s.life = 1 ORDER BY s.id DESC LIMIT {3}`)

func scanShare(row dialect.Scanner) (*capability.PublicShare, error) {
	var p capability.PublicShare
	var owner, share, reader string
	err := row.Scan(&p.ID, &p.Session, &owner, &share, &reader, &p.Created)
	p.Owner, p.Share, p.Reader = txn.JoinRef(p.Session, owner), txn.JoinRef(p.Session, share), txn.JoinRef(p.Session, reader)
	return &p, err
}

// shareRefs returns the ids of the refs that decide whether shares are alive, as rows of a
// statement's list.
func shareRefs(shares []*capability.PublicShare) [][]any {
	var ids []string
	for _, p := range shares {
		ids = append(ids, p.Share, p.Reader)
	}
	return txn.RefRows(ids)
}

// PublishShare writes the row of a share, unless the same request was made within its dedupe window
// and that share is alive: then it returns the earlier share. The row is written before the session
// is created and its refs are minted, so that a retry, after a crash or at the same time, completes
// this share instead of creating a second. Created is set from the database's clock.
func (s *Authority) PublishShare(ctx context.Context, share capability.PublicShare, ask capability.ShareRequest) (standing *capability.PublicShare, err error) {
	leave, err := s.db.Locks.Acquire(ctx, ask.Space)
	if err != nil {
		return nil, txn.Wrap("publish a share", err)
	}
	defer leave()
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{ExclusiveSpaces: []string{ask.Space}})
		if err != nil {
			return err
		}
		var there []*capability.PublicShare
		if err := dialect.Query(ctx, t.Run, readRecentRequests, nil, []any{ask.Fingerprint[:], rows.Now - ask.DedupeWindow.Milliseconds()}, dialect.Collect(&there, scanShare)); err != nil {
			return err
		}
		sessions, grants := map[string]*session.Row{}, map[string]*capability.Grant{}
		t.QueueList(txn.ReadSessions, txn.TextRows(shareSessions(there)), txn.SessionsByID(sessions))
		t.QueueList(txn.ReadGrants, shareRefs(there), txn.GrantsByID(grants))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		for _, p := range there {
			of := sessions[p.Session]
			if of == nil {
				of = &session.Row{}
			}
			if of.Life != session.Deleted && p.Valid(grants, of.Epoch, rows.Now) {
				standing = p
				return nil
			}
		}
		share.Created = rows.Now
		standing = &share
		t.Run.Queue(insertShare, nil, append(txn.ShareValues(&share), ask.Fingerprint[:]), nil)
		return nil
	})
	if err != nil {
		return nil, txn.Wrap("publish a share", err)
	}
	return standing, nil
}

func shareSessions(shares []*capability.PublicShare) (ids []string) {
	for _, p := range shares {
		ids = append(ids, p.Session)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// FindShare returns a share by its id, alive or not; NotFound if there never was one.
func (s *Authority) FindShare(ctx context.Context, id string) (share *capability.PublicShare, err error) {
	if err := txn.CheckText(id); err != nil {
		return nil, err
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(readShare, nil, []any{id}, func(row dialect.Scanner) (err error) {
			share, err = scanShare(row)
			return err
		})
		return nil
	})
	if err == nil && share == nil {
		err = fault.NotFound.With("there is no such share")
	}
	if err != nil {
		return nil, txn.Wrap("find a share", err)
	}
	return share, nil
}

// SharesOf returns the oldest living share of each of sessions that has one.
func (s *Authority) SharesOf(ctx context.Context, sessions []string) (map[string]*capability.PublicShare, error) {
	living := map[string]*capability.PublicShare{}
	if len(sessions) == 0 {
		return living, nil
	}
	if err := txn.CheckText(sessions...); err != nil {
		return nil, err
	}
	err := s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		var now int64
		var shares []*capability.PublicShare
		rows, grants := map[string]*session.Row{}, map[string]*capability.Grant{}
		run.QueueNow(dialect.SetClock(&now))
		run.Queue(readShares, txn.TextRows(sessions), nil, dialect.Collect(&shares, scanShare))
		run.Queue(txn.ReadSessions, txn.TextRows(sessions), nil, txn.SessionsByID(rows))
		if err := run.Flush(ctx); err != nil || len(shares) == 0 {
			return err
		}
		if err := dialect.Query(ctx, run, txn.ReadGrants, shareRefs(shares), nil, txn.GrantsByID(grants)); err != nil {
			return err
		}
		for _, p := range shares {
			if r := rows[p.Session]; living[p.Session] == nil && r != nil && r.Life == session.Live && p.Live(grants, r.Epoch, now) {
				living[p.Session] = p
			}
		}
		return nil
	})
	return living, txn.Wrap("find shares", err)
}

// ListShares returns the living shares with ids above after, in id order, out of a page of at most
// limit shares, living or dead. next is the start of the next page, "" at the end.
func (s *Authority) ListShares(ctx context.Context, after string, limit int) (list []session.SharedListing, next string, err error) {
	if err := txn.CheckText(after); err != nil {
		return nil, "", err
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		var now int64
		var page []session.SharedListing
		var shares []*capability.PublicShare
		grants := map[string]*capability.Grant{}
		run.QueueNow(dialect.SetClock(&now))
		run.Queue(listShares, nil, []any{after, int64(max(limit, 1))}, func(row dialect.Scanner) error {
			var l session.SharedListing
			var owner, share, reader string
			var info []byte
			p := &l.Share
			r, err := txn.ScanSession(row, &p.ID, &p.Session, &owner, &share, &reader, &p.Created, &info)
			if err != nil {
				return err
			}
			p.Owner, p.Share, p.Reader = txn.JoinRef(p.Session, owner), txn.JoinRef(p.Session, share), txn.JoinRef(p.Session, reader)
			l.Row, l.Title = *r, reads.InfoTitle(info)
			page, shares = append(page, l), append(shares, p)
			return nil
		})
		if err := run.Flush(ctx); err != nil || len(page) == 0 {
			return err
		}
		if err := dialect.Query(ctx, run, txn.ReadGrants, shareRefs(shares), nil, txn.GrantsByID(grants)); err != nil {
			return err
		}
		for i := range page {
			if l := &page[i]; l.Life == session.Live && l.Share.Live(grants, l.Epoch, now) {
				list = append(list, *l)
			}
		}
		if len(page) == max(limit, 1) {
			next = page[len(page)-1].Share.ID
		}
		return nil
	})
	return list, next, txn.Wrap("list shares", err)
}

// FindExternal returns the living sessions with an external id in a space, newest first, at most
// limit.
func (s *Authority) FindExternal(ctx context.Context, space, external string, limit int) (ids []string, err error) {
	if err := txn.CheckText(space, external); err != nil {
		return nil, err
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(findByExternal, nil, []any{space, external, int64(limit)}, dialect.Collect(&ids, dialect.ScanText))
		return nil
	})
	return ids, txn.Wrap("find an external id", err)
}

// OwnerOf returns the living owner ref of a session; nil if there is none.
func (s *Authority) OwnerOf(ctx context.Context, id string) (*capability.Grant, error) {
	if err := txn.CheckText(id); err != nil {
		return nil, err
	}
	owners, err := s.readRefs(ctx, readOwners, id)
	if err != nil || len(owners) == 0 {
		return nil, txn.Wrap("find the owner", err)
	}
	return owners[0], nil
}

// MintedFrom returns the living refs that were minted directly from ref, oldest first, at most
// limit.
func (s *Authority) MintedFrom(ctx context.Context, ref string, limit int) ([]*capability.Grant, error) {
	if err := txn.CheckText(ref); err != nil {
		return nil, err
	}
	target, tail := txn.SplitRef(ref)
	list, err := s.readRefs(ctx, readChildren, target, tail, int64(limit))
	return list, txn.Wrap("find what was minted from a ref", err)
}

// readRefs runs a statement that selects refs.
func (s *Authority) readRefs(ctx context.Context, what *dialect.Statement, args ...any) (list []*capability.Grant, err error) {
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(what, nil, args, dialect.Collect(&list, txn.ScanRef))
		return nil
	})
	return list, err
}

// Refusals returns the synced keys that a session lacks, in key order.
func (s *Authority) Refusals(ctx context.Context, id string) (list []capability.ShareRefusal, err error) {
	if err := txn.CheckText(id); err != nil {
		return nil, err
	}
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.Queue(readRefusals, nil, []any{id}, func(row dialect.Scanner) error {
			var r capability.ShareRefusal
			err := row.Scan(&r.Key, &r.Why, &r.At)
			list = append(list, r)
			return err
		})
		return nil
	})
	return list, txn.Wrap("read what a share lacks", err)
}

// ChangeRefusals adds and removes refused keys. A key that is refused already stays as it is. At is
// set from the database's clock.
func (s *Authority) ChangeRefusals(ctx context.Context, id string, add []capability.ShareRefusal, drop []string) error {
	for _, r := range add {
		if err := txn.CheckText(r.Key, r.Why); err != nil {
			return err
		}
	}
	return txn.Wrap("note what a share lacks", s.db.Update(ctx, func(t *txn.Tx) error {
		rows, err := t.Load(ctx, &session.ReadSet{})
		if err != nil {
			return err
		}
		t.QueueList(dropRefusals, txn.MapRows(drop, func(key string) []any { return []any{id, key} }), nil)
		t.QueueList(saveRefusals, txn.MapRows(add, func(r capability.ShareRefusal) []any { return []any{id, r.Key, r.Why, rows.Now} }), nil)
		return nil
	}))
}
