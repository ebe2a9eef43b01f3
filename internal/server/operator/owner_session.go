// Rotation of one session's owner's ref on the server's machine: for a session whose owner's ref
// nobody has, such as one that opencode shared, or is lost.

package operator

import (
	"context"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// SessionRescueStore is the store of RotateSessionOwner.
type SessionRescueStore interface {
	// FirstSpace returns the id of the space that the first start made. FindExternal returns
	// the ids of its live sessions with an external id, the newest first.
	FirstSpace(ctx context.Context) (string, error)
	FindExternal(ctx context.Context, space, external string, limit int) ([]string, error)
	// OwnerOf returns the grant of a session's live owner's ref; nil if there is none.
	OwnerOf(ctx context.Context, session string) (*capability.Grant, error)
	Update(ctx context.Context, fn func(session.Tx) error) error
}

// maxSharedExternal bounds the session ids that an error lists.
const maxSharedExternal = 10

// RotateSessionOwner makes a new owner's ref for a session of the first space, given by its id or
// external id, and revokes the old one alone: refs made under it stay. keep is called with the
// new ref before it is stored in the database. It returns the old ref's id. Errors: NotFound;
// Ambiguous, with the newest ids, if several live sessions have the external id; Revoked if the
// owner's ref was revoked and not rotated; keep's.
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
		return "", fault.Revoked.With("the session does not exist, or its owner's ref was revoked")
	}
	ref := address.New(id)
	if err := keep(ref); err != nil {
		return "", err
	}
	do := []decide.Submission{{Batch: ledger.Batch{Session: id}, Ref: owner.ID, Peer: "operator",
		Direct: &decide.Direct{Rotate: &decide.Rotation{ID: ref.ID, Hash: ref.Secret.Hash()}}}}
	err = st.Update(ctx, func(tx session.Tx) error {
		answers, _, err := decide.Commit(ctx, tx, do, decide.DefaultConfig())
		if err != nil {
			return err
		}
		if refused := answers[0].Err; refused != nil {
			return refused
		}
		return nil
	})
	return owner.ID, err
}
