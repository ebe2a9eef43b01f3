// Files that refs go into: --to of share, rotate and admin rotate-owner.

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fileowner"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// refFile is a file that is to hold a ref. The ref is written beside it, durably
// and for this user alone, before anything is asked for, and gets its name when it
// is there: until then the file is what it was, and where nothing comes of it there
// is none. nil stands for no file.
type refFile struct {
	name      string
	path      string   // where name leads, if that is through links
	overwrite bool     // it may replace one that is there
	f         *os.File // beside it; or, if it is no regular file (a pipe, say), itself
	special   bool     // f is it: what is written there cannot be taken back
	ref       capability.Ref
	replaced  fs.FileInfo // of the one that it replaces
}

// refFileRoom is as long as any ref's text, with its line end.
const refFileRoom = 4097

// newRefFile finds out that a ref can be written to a file. Unless over, one that
// is there is refused.
func newRefFile(name string, over bool) (_ *refFile, err error) {
	if name == "" {
		return nil, nil
	}
	r := &refFile{name: name, path: name, overwrite: over}
	if at, err := filepath.EvalSymlinks(name); err == nil {
		r.path = at
	}
	info, err := os.Stat(r.path)
	if err != nil { // and a link that leads nowhere is there all the same
		info, err = os.Lstat(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("write the ref: %w", err)
	case info.IsDir():
		return nil, fault.Usage.With("%s is a folder: name a file in it", name)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		r.special = true
		if r.f, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, fmt.Errorf("write the ref: %w", err)
		}
		return r, nil
	case !over:
		return nil, fault.AlreadyExists.With("%s is there already, and may be the only copy of another ref: name another file, or move that one away first", name)
	default:
		r.replaced = info
	}
	if r.f, err = os.CreateTemp(filepath.Dir(r.path), "."+filepath.Base(r.path)+"-*"); err != nil { // of mode 0600
		return nil, fmt.Errorf("write the ref: %w", err)
	}
	// On a full disk this fails, before there is a ref that would be lost.
	if _, err = r.f.Write(bytes.Repeat([]byte(" "), refFileRoom)); err == nil {
		err = r.f.Sync()
	}
	if err != nil {
		r.discard()
		return nil, fmt.Errorf("write the ref: %w", err)
	}
	return r, nil
}

// write keeps the ref, durably, under a name that is not the file's yet.
func (r *refFile) write(ref capability.Ref) error {
	if r == nil {
		return nil
	}
	if r.ref = ref; r.special {
		return nil
	}
	text := ref.Text() + "\n"
	_, err := r.f.WriteAt([]byte(text), 0)
	if err == nil {
		err = r.f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = r.f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write the ref: %w", err)
	}
	return nil
}

// commit gives what was written the file's name. An error says where the ref is.
func (r *refFile) commit() error {
	if r == nil {
		return nil
	}
	if r.special {
		_, err := r.f.WriteString(r.ref.Text() + "\n")
		if err = errors.Join(err, r.f.Close()); err != nil {
			return fmt.Errorf("ref %s was made, and could not be written to %s: %w", r.ref.ID, r.name, err)
		}
		return nil
	}
	tmp := r.f.Name()
	if r.replaced != nil {
		fileowner.CopyFrom(r.f, r.replaced)
	}
	err := r.f.Close()
	switch {
	case err != nil:
	case r.overwrite:
		err = os.Rename(tmp, r.path)
	default:
		err = newfile.RenameNoReplace(tmp, r.path)
	}
	if err != nil {
		return fmt.Errorf("ref %s was made, and its text is in %s: %w", r.ref.ID, tmp, err)
	}
	_ = newfile.SyncDir(filepath.Dir(r.path)) // the ref is there
	return nil
}

// discard leaves things as they were.
func (r *refFile) discard() {
	if r == nil {
		return
	}
	_ = r.f.Close()
	if !r.special {
		_ = os.Remove(r.f.Name())
	}
}
