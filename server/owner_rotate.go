// The rescue on the server's machine: a new root ref for who has lost the owner's
// ref, or fears for it. Holding the data folder or the database is the authority.
//
// The new ref is in a file of its own, durably, before the database hears of it,
// and takes the place of owner.ref when that has committed. A crash in between is
// mended by doing it again, with the same new ref, or by the next start.

package server

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
	"github.com/mooring-rpc/mooring/session"
)

// newOwnerFile has the new ref until it is in place.
const newOwnerFile = OwnerFile + ".new"

// RescueStore is what RotateOwner needs of a store.
type RescueStore interface {
	// FirstSpace is the id of the space that the first start made.
	FirstSpace(ctx context.Context) (string, error)
	// RotateRoot puts root in the place of its space's root ref, whose id it
	// gives; "" if that was done before.
	RotateRoot(ctx context.Context, root *capability.Grant) (old string, err error)
}

// RotatedOwner tells what RotateOwner did. It holds no secret.
type RotatedOwner struct {
	Path  string // of the file with the new ref
	Space string // the space's id
	Ref   string // the new ref's id
	Old   string // that of the one that is dead now; "" if it was dead already
}

// RotateOwner makes a new root ref for the first space, writes it to dir's
// owner.ref and kills the old one alone: what was made under it goes on. address
// is where the ref says the server is, if the folder has no ref that does.
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
			continue // it is what an earlier rescue left, and dead since
		}
		if err != nil {
			return nil, err
		}
		break
	}
	crashpoint.Hit(crashpoint.ServerStartAfter)
	return out, commitOwnerFile(dir)
}

// commitOwnerFile puts the new file in the place of the old.
func commitOwnerFile(dir string) error {
	if err := os.Rename(filepath.Join(dir, newOwnerFile), filepath.Join(dir, OwnerFile)); err != nil {
		return fmt.Errorf("write the owner's ref: %w", err)
	}
	return newfile.SyncDir(dir)
}

// recoverRotateOwner puts a rescue's file in place that was interrupted after the
// database knew of it. One that the database does not know is left for the next
// rescue: the old ref is good still.
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
	sight, err := st.ReadAccess(ctx, "", []string{ref.ID})
	if err != nil {
		return err
	}
	if g := sight.Grants[ref.ID]; g == nil || g.Revoked != 0 || !capability.SecretMatches(g, ref.Secret) {
		return nil
	}
	return commitOwnerFile(dir)
}
