// Files that refs are written to: --to of share, rotate and admin rotate-owner.

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/fileowner"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// RefFile is a file that is to hold a ref. The ref is written to a temporary file in the same
// folder, durably and readable by this user only, before the server is asked, and renamed when
// the ref exists: until then the file is unchanged, and after a failure it is not created. nil
// stands for no file.
type RefFile struct {
	name      string
	path      string   // where name leads through symbolic links
	overwrite bool     // an existing file may be replaced
	f         *os.File // the temporary file; or the file itself if it is not a regular one (a pipe, for instance)
	special   bool     // f is the file itself: a write cannot be undone
	ref       capability.Ref
	replaced  fs.FileInfo // the file to be replaced
}

// refFileRoom is the maximum length of a ref's text, with its line end.
const refFileRoom = 4097

// NewRefFile checks that a ref can be written to a file, and makes the temporary one; "" is no file. Unless over, an existing
// file is refused (fault.AlreadyExists); a folder, and a file that cannot be made, are fault.Usage.
func NewRefFile(name string, over bool) (_ *RefFile, err error) {
	if name == "" {
		return nil, nil
	}
	r := &RefFile{name: name, path: name, overwrite: over}
	if at, err := filepath.EvalSymlinks(name); err == nil {
		r.path = at
	}
	info, err := os.Stat(r.path)
	if err != nil { // a link to a missing file exists itself
		info, err = os.Lstat(name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, cannotWriteRef(name, err)
	case info.IsDir():
		return nil, fault.Usage.With("%s is a folder: name a file in it", name)
	case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
		r.special = true
		if r.f, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, cannotWriteRef(name, err)
		}
		return r, nil
	case !over:
		return nil, fault.AlreadyExists.With("%s exists already, and may be the only copy of another ref: name another file, or move that one away first", name)
	default:
		r.replaced = info
	}
	if r.f, err = os.CreateTemp(filepath.Dir(r.path), "."+filepath.Base(r.path)+"-*"); err != nil { // of mode 0600
		return nil, cannotWriteRef(name, err)
	}
	// On a full disk this fails, before there is a ref that would be lost.
	if _, err = r.f.Write(bytes.Repeat([]byte(" "), refFileRoom)); err == nil {
		err = r.f.Sync()
	}
	if err != nil {
		r.Discard()
		return nil, newfile.Fault(newfile.Cause(err), "the ref in "+name)
	}
	return r, nil
}

// cannotWriteRef returns the error of a file that cannot be made or opened, with the name that was given, not that of the
// temporary one.
func cannotWriteRef(name string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return newfile.Fault(newfile.Cause(err), "the ref in "+name)
	}
	return fault.Usage.Because(err, "cannot write the ref to %s: %v", name, newfile.Cause(err))
}

// Write writes the ref durably to the temporary file.
func (r *RefFile) Write(ref capability.Ref) error {
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
	return newfile.Fault(newfile.Cause(err), "the ref in "+r.name)
}

// Commit renames the temporary file. An error says where the ref is.
func (r *RefFile) Commit() error {
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
	_ = newfile.SyncDir(filepath.Dir(r.path)) // the ref is written
	return nil
}

// Close discards the file if no ref was written to it.
func (r *RefFile) Close() {
	if r != nil && r.ref.ID == "" {
		r.Discard()
	}
}

// Discard removes the temporary file.
func (r *RefFile) Discard() {
	if r == nil {
		return
	}
	_ = r.f.Close()
	if !r.special {
		_ = os.Remove(r.f.Name())
	}
}
