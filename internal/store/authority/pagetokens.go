// Page tokens: credentials of browsers for pages of refs, valid on every replica.

package authority

import (
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

var (
	insertPageToken = dialect.Both("", `
		INSERT INTO page_tokens (target, tail, hash, origin, expires) VALUES ({1}, {2}, {3}, {4}, {5})`)

	// evictPageTokens removes a ref's tokens that are older than its n-th newest.
	evictPageTokens = dialect.Both("", `
		DELETE FROM page_tokens WHERE target = {1} AND tail = {2} AND expires < (
			SELECT p.expires FROM page_tokens p WHERE p.target = {1} AND p.tail = {2} ORDER BY p.expires DESC LIMIT 1 OFFSET {3})`)

	readPageToken = dialect.Both("", `
		SELECT p.origin, p.expires FROM page_tokens p WHERE p.target = {1} AND p.tail = {2} AND p.hash = {3}`)
	dropPageToken = dialect.Both("", `DELETE FROM page_tokens WHERE target = {1} AND tail = {2} AND hash = {3}`)

	// findExpiredTokens selects expired tokens, oldest first.
	findExpiredTokens = dialect.Both("", `
		SELECT p.target, p.tail, p.hash FROM page_tokens p WHERE p.expires <= {1} ORDER BY p.expires LIMIT {2}`)
)

// AddPageToken stores a token that is valid for life from now on; Expires is set from the
// database's clock. Only the keep newest tokens of a ref are kept: the holder of a ref may request
// any number.
func (s *Authority) AddPageToken(ctx context.Context, token capability.PageToken, life time.Duration, keep int) (expires int64, err error) {
	if err := txn.CheckText(token.Ref, token.Origin); err != nil {
		return 0, err
	}
	target, tail := txn.SplitRef(token.Ref)
	err = s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.QueueNow(dialect.SetClock(&t.Now))
		if err := t.Run.Flush(ctx); err != nil {
			return err
		}
		expires = t.Now + life.Milliseconds()
		t.Run.Queue(insertPageToken, nil, []any{target, tail, token.Hash[:], token.Origin, expires}, nil)
		t.Run.Queue(evictPageTokens, nil, []any{target, tail, int64(keep - 1)}, nil)
		return nil
	})
	return expires, txn.Wrap("add a page's token", err)
}

// FindPageToken returns the token of a ref by its hash, and the database's time, Unix ms; NotFound
// if there is none or it has expired.
func (s *Authority) FindPageToken(ctx context.Context, ref string, hash [32]byte) (token capability.PageToken, now int64, err error) {
	if err := txn.CheckText(ref); err != nil {
		return token, 0, err
	}
	target, tail := txn.SplitRef(ref)
	err = s.db.Backend.Snapshot(ctx, func(run dialect.Runner) error {
		run.QueueNow(dialect.SetClock(&now))
		run.Queue(readPageToken, nil, []any{target, tail, hash[:]}, func(row dialect.Scanner) error {
			token.Ref, token.Hash = ref, hash
			return row.Scan(&token.Origin, &token.Expires)
		})
		return nil
	})
	if err == nil && token.Expires <= now {
		err = fault.NotFound.With("there is no such token")
	}
	return token, now, txn.Wrap("find a page's token", err)
}

// DropPageToken removes a token; it is no error if there is none.
func (s *Authority) DropPageToken(ctx context.Context, ref string, hash [32]byte) error {
	if err := txn.CheckText(ref); err != nil {
		return err
	}
	target, tail := txn.SplitRef(ref)
	return txn.Wrap("end a page's token", s.db.Update(ctx, func(t *txn.Tx) error {
		t.Run.Queue(dropPageToken, nil, []any{target, tail, hash[:]}, nil)
		return nil
	}))
}

// CollectPageTokens removes expired tokens, at most limit of them. more reports that there may be
// others.
func (s *Authority) CollectPageTokens(ctx context.Context, limit int) (more bool, err error) {
	due, err := s.findDue(ctx, findExpiredTokens, limit, func(row dialect.Scanner) ([]any, error) {
		var target, tail string
		var hash []byte
		err := row.Scan(&target, &tail, &hash)
		return []any{target, tail, hash}, err
	})
	if err == nil && len(due) > 0 {
		err = s.db.Update(ctx, func(t *txn.Tx) error {
			for _, args := range due {
				t.Run.Queue(dropPageToken, nil, args, nil)
			}
			return nil
		})
	}
	return len(due) == limit && limit > 0, txn.Wrap("collect page tokens", err)
}
