// Rotation of the root ref on the server's machine: a new root ref for an owner whose ref is lost,
// or may be known to others. Access to the data folder or the database is the authority.
//
// The new ref is in a file of its own, durably, before it is stored in the database, and replaces
// owner.ref when that has committed. After a crash in between, a repeated call, with the same new
// ref, or the next start completes it.

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/session"
)

// newOwnerFile is the name of the file with the new ref, until it replaces OwnerFile.
const newOwnerFile = OwnerFile + ".new"

// RescueStore is the store of RotateOwner.
type RescueStore interface {
	// FirstSpace returns the id of the space that the first start made.
	FirstSpace(ctx context.Context) (string, error)
	// RotateRoot replaces its space's root ref by root, and returns the old ref's id; "" if
	// that was done before.
	RotateRoot(ctx context.Context, root *capability.Grant) (old string, err error)
}

// RotatedOwner is the result of RotateOwner. It contains no secret.
type RotatedOwner struct {
	Path  string // of the file with the new ref
	Space string // id of the space
	Ref   string // id of the new ref
	Old   string // id of the ref that died now; "" if it was dead already
}

// RotateOwner makes a new root ref for the first space, writes it to dir's owner.ref, and revokes
// the old one alone: refs made under it stay. address is the server's address in the ref, if the
// folder has no ref with one.
func RotateOwner(ctx context.Context, st RescueStore, dir string, address capability.Ref) (*RotatedOwner, error) {
	space, err := st.FirstSpace(ctx)
	if err != nil {
		return nil, err
	}
	path, fresh := filepath.Join(dir, OwnerFile), filepath.Join(dir, newOwnerFile)
	switch was, err := readOwnerFile(path); {
	case err == nil && was.Target() != space:
		return nil, fault.Ambiguous.With("%s in the data folder is for another database: move it away first", OwnerFile)
	case err == nil:
		address = was
	}
	out := &RotatedOwner{Path: path, Space: space}
	for again := false; ; again = true {
		ref, err := readOwnerFile(fresh)
		if err != nil || ref.Target() != space || again {
			ref = address.New(space)
			if err := replaceOwnerFile(fresh, ref); err != nil {
				return nil, err
			}
		}
		crashpoint.Hit(crashpoint.ServerStartBefore)
		out.Ref = ref.ID
		out.Old, err = st.RotateRoot(ctx, &capability.Grant{ID: ref.ID, Target: space, Hash: ref.Secret.Hash(), Label: "root"})
		if fault.CodeOf(err) == fault.AlreadyExists && !again {
			continue // left by an earlier call, and dead since
		}
		if err != nil {
			return nil, err
		}
		break
	}
	crashpoint.Hit(crashpoint.ServerStartAfter)
	return out, commitOwnerFile(dir)
}

// commitOwnerFile replaces OwnerFile by newOwnerFile, durably.
func commitOwnerFile(dir string) error {
	if err := os.Rename(filepath.Join(dir, newOwnerFile), filepath.Join(dir, OwnerFile)); err != nil {
		return fmt.Errorf("write the owner's ref: %w", err)
	}
	return newfile.SyncDir(dir)
}

// recoverRotateOwner completes a rotation that was interrupted after the database had stored the
// new ref. A ref that is not stored is left for the next call of RotateOwner: the old one is
// still valid.
func recoverRotateOwner(ctx context.Context, st interface {
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)
}, dir string) error {
	ref, err := readOwnerFile(filepath.Join(dir, newOwnerFile))
	if errors.Is(err, fs.ErrNotExist) || fault.CodeOf(err) == fault.BadRefText {
		return nil
	}
	if err != nil {
		return err
	}
	access, err := st.ReadAccess(ctx, "", []string{ref.ID})
	if err != nil {
		return err
	}
	if g := access.Grants[ref.ID]; g == nil || g.Revoked != 0 || !capability.SecretMatches(g, ref.Secret) {
		return nil
	}
	return commitOwnerFile(dir)
}
