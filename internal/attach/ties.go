package attach

// The ties of a folder, for a relay beside them.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
)

// Ties are the ties of a folder (relay.Ties).
type Ties struct {
	Client *client.Client
	Dir    string

	// Of the tie that this process has open, if it has one.
	Attached string // opencode's id of the session
	Here     *client.Session
}

// Session returns the session in which one of opencode's is recorded; nil if it is not tied, or is by a ref that the home folder does not know.
func (t *Ties) Session(ctx context.Context, opencode string) (*client.Session, error) {
	if opencode == t.Attached && t.Here != nil {
		return t.Here, nil
	}
	if !isID(opencode) {
		return nil, nil
	}
	rec, err := readTie(t.name(opencode))
	if err != nil || rec.Session == "" || rec.Batch != "" {
		return nil, err
	}
	s, err := t.Client.SessionByID(ctx, rec.Session)
	if fault.CodeOf(err) == fault.NotFound {
		return nil, nil
	}
	return s, err
}

// Lock lets the caller alone write to the session of a tie; ok is false while an attach does.
func (t *Ties) Lock(opencode string) (unlock func(), ok bool, err error) {
	if opencode == t.Attached {
		return nil, false, nil
	}
	lock, err := filelock.Open(t.name(opencode) + lockSuffix)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, false, nil
	case lock == nil:
		return nil, false, err
	} // else it is locked, or on a file system without locks
	return func() { _ = filelock.Close(lock) }, true, nil
}

// KeysName returns the name of the file of keys that were put into the session of a tie.
func (t *Ties) KeysName(opencode string) string { return t.name(opencode) + keysSuffix }

// name returns the name of a tie's files, without suffix.
func (t *Ties) name(opencode string) string { return filepath.Join(t.Dir, opencode) }

// isID reports whether a text can be an id of opencode's sessions, and part of a file's name.
func isID(opencode string) bool {
	return opencode != "" && len(opencode) <= 100 && !strings.ContainsFunc(opencode, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '_'
	})
}

// readTie reads the file of a tie, of a name without suffix; the record is empty if there is none.
func readTie(name string) (rec tieRecord, err error) {
	text, err := os.ReadFile(name + tieSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return rec, fmt.Errorf("read the tie: %w", err)
	}
	if err := json.Unmarshal(text, &rec); err != nil || rec.Opencode != filepath.Base(name) {
		return tieRecord{}, fault.OutboxDamaged.With("the file %s is damaged: move it away to begin with another session", name+tieSuffix)
	}
	return rec, nil
}
