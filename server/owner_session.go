// The rescue of one session on the server's machine: a new owner's ref for a session
// whose own nobody holds, as that of one that opencode shared, or that is lost.

package server

import (
	"context"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// SessionRescueStore is what RotateSessionOwner needs of a store.
type SessionRescueStore interface {
	// FirstSpace is the id of the space that the first start made, FindExternal the
	// living sessions that an external id names there, the newest first.
	FirstSpace(ctx context.Context) (string, error)
	FindExternal(ctx context.Context, space, external string, limit int) ([]string, error)
	// OwnerOf is the living ref of a session's owner; nil if there is none.
	OwnerOf(ctx context.Context, session string) (*capability.Grant, error)
	Update(ctx context.Context, fn func(session.Tx) error) error
}

// maxSharedExternal is how many sessions of one name an error lists.
const maxSharedExternal = 10

// RotateSessionOwner makes a new owner's ref for a session of the first space, given
// by its id or external id, and kills the old one alone: what was made under it goes
// on. keep is called with the new ref before the database knows of it. It gives the
// old ref's id. Errors: NotFound; Ambiguous, with the newest ids, if several living
// sessions have the external id; Revoked if its owner's ref was revoked and not
// rotated; keep's.
func RotateSessionOwner(ctx context.Context, st SessionRescueStore, id string, address capability.Ref, keep func(capability.Ref) error) (old string, err error) {
	if !capability.IsSession(id) {
		space, err := st.FirstSpace(ctx)
		if err != nil {
			return "", err
		}
		found, err := st.FindExternal(ctx, space, id, maxSharedExternal)
		switch {
		case err != nil:
			return "", err
		case len(found) == 0:
			return "", fault.NotFound.With("the server has no session of this name")
		case len(found) > 1:
			return "", fault.Ambiguous.With("several sessions have this name, the newest first: %s: give an id", strings.Join(found, ", "))
		}
		id = found[0]
	}
	owner, err := st.OwnerOf(ctx, id)
	switch {
	case err != nil:
		return "", err
	case owner == nil:
		return "", fault.Revoked.With("the session is not there, or its owner's ref was revoked")
	}
	ref := address.New(id)
	if err := keep(ref); err != nil {
		return "", err
	}
	do := []session.Submission{{Batch: ledger.Batch{Session: id}, Ref: owner.ID, Peer: "operator",
		Direct: &session.Direct{Rotate: &session.Rotation{ID: ref.ID, Hash: ref.Secret.Hash()}}}}
	err = st.Update(ctx, func(tx session.Tx) error {
		answers, _, err := session.Commit(ctx, tx, do, session.DefaultConfig())
		if err != nil {
			return err
		}
		return errOrNil(answers[0].Err)
	})
	return owner.ID, err
}
