// The first start: a space, its root ref, and the file with that ref's text. The file is written
// and synced before the grant is stored, so a crash in between leaves a ref that the next start
// stores, and never a space without a known owner. An existing file is never replaced by another
// ref.

package operator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/session"
)

// OwnerFile is the name of the file with the owner's sturdy ref.
const OwnerFile = "owner.ref"

// Owner is the result of Bootstrap. It contains no secret.
type Owner struct {
	Path    string // of the file; "" if the folder has none
	Space   string // id of the space
	Created bool   // this call made the space
	Foreign bool   // the folder's file belongs to another database
	Dead    bool   // the file's ref was revoked or rotated
}

// BootstrapStore is the store of Bootstrap.
type BootstrapStore interface {
	// ReadAccess returns the grants of the refs that exist.
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)
	// Init makes the first space with root as its ref if there is none. It returns the id of
	// the first space, and whether this call made it.
	Init(ctx context.Context, root *capability.Grant) (space string, created bool, err error)
}

// Bootstrap makes the space and its owner's ref in dir if the database has none. address is the
// server's address in the ref. If moved is true, an existing file with another address is
// rewritten with this one. Any number of servers may call it at once on one database: one of them
// makes the space.
func Bootstrap(ctx context.Context, st BootstrapStore, dir string, address capability.Ref, moved bool) (*Owner, error) {
	if err := recoverRotateOwner(ctx, st, dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, OwnerFile)
	ref, err := readOwnerFile(path)
	written := false
	switch {
	case errors.Is(err, fs.ErrNotExist):
		ref = address.New(capability.SpacePrefix + ulid.Make().String())
		if ref, written, err = createOwnerFile(path, ref); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	crashpoint.Hit(crashpoint.ServerStartBefore)
	owner := &Owner{Path: path, Space: ref.Target()}
	access, err := st.ReadAccess(ctx, "", []string{ref.ID})
	if err != nil {
		return nil, err
	}
	if access.Grants[ref.ID] == nil {
		owner.Space, owner.Created, err = st.Init(ctx, &capability.Grant{ID: ref.ID, Target: ref.Target(),
			Hash: ref.Secret.Hash(), Rights: capability.SpaceRights, Label: "root"})
		if err != nil {
			return nil, err
		}
	}
	crashpoint.Hit(crashpoint.ServerStartAfter)
	if g := access.Grants[ref.ID]; g != nil {
		owner.Dead = g.Revoked != 0
	}
	switch {
	case owner.Space == ref.Target():
		if moved && !written && ref.Address() != address.Address() {
			return owner, replaceOwnerFile(path, address.With(ref.ID, ref.Secret))
		}
	case written: // another server was first, with a folder of its own: this ref was never stored
		owner.Path = ""
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the unused owner ref: %w", err)
		}
	default:
		owner.Foreign = true
	}
	return owner, nil
}

func readOwnerFile(path string) (capability.Ref, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return capability.Ref{}, fmt.Errorf("read the owner's ref: %w", err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil || !capability.IsSpace(ref.Target()) {
		return ref, fault.BadRefText.With("%s in the data folder is not an owner's ref: restore it, or move it away to have a new one made for a new database", OwnerFile)
	}
	return ref, nil
}

// createOwnerFile writes ref to path. If a file exists, it returns that file's ref instead.
func createOwnerFile(path string, ref capability.Ref) (got capability.Ref, written bool, err error) {
	tmp, err := newfile.WriteTemp(path, []byte(ref.Text()+"\n"), nil)
	if err != nil {
		return ref, false, fmt.Errorf("write the owner's ref: %w", err)
	}
	defer os.Remove(tmp)
	switch err := newfile.RenameNoReplace(tmp, path); {
	case errors.Is(err, fs.ErrExist):
		got, err := readOwnerFile(path)
		return got, false, err
	case err != nil:
		return ref, false, fmt.Errorf("write the owner's ref: %w", err)
	}
	return ref, true, newfile.SyncDir(filepath.Dir(path))
}

// replaceOwnerFile writes ref to path, owned by the owner of the folder's owner.ref, or of the
// folder if there is no such file: root may run it, and the server reads the file.
func replaceOwnerFile(path string, ref capability.Ref) error {
	was, err := os.Stat(filepath.Join(filepath.Dir(path), OwnerFile))
	if errors.Is(err, fs.ErrNotExist) {
		was, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write the owner's ref: %w", err)
	}
	tmp, err := newfile.WriteTemp(path, []byte(ref.Text()+"\n"), was)
	if err == nil {
		err = newfile.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("write the owner's ref: %w", err)
	}
	return nil
}
