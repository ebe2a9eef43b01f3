package capability

// Refs in files: the text on one line, readable by the file's owner only.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// ReadRefFile reads the ref whose text is in a file, with or without surrounding white space. The
// error is BadRefText, and repeats nothing of the text.
func ReadRefFile(name string) (Ref, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return Ref{}, fault.BadRefText.Because(err, "cannot read the ref's file: %v", err)
	}
	return ParseRef(strings.TrimSpace(string(text)))
}

// WriteRefFile writes a ref's text to a file that only its owner can read, atomically replacing an
// existing file.
func WriteRefFile(name string, ref Ref) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the ref: %w", err)
		}
	}()
	if ref.ID == "" || ref.Secret.IsZero() {
		return fault.BadRefText.With("an address alone, or a ref without a secret, is of no use in a file")
	}
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to // replaces the link's target, not the link
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(ref.Text() + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // best effort
	}
	return err
}
