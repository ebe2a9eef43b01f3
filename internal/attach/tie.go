package attach

// The file of a tie: which session of Mooring's one of opencode's is recorded in, and how far the prompt has come that is being handed over.

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// Tie is an open file, which one process at a time has.
type Tie struct {
	name string // without suffix
	lock *os.File
	rec  tieRecord
}

// tieRecord is what the file has.
type tieRecord struct {
	Opencode  string  `json:"opencode"`        // the id of its session
	Session   string  `json:"session"`         // the id of Mooring's; "" before there is one
	Directory string  `json:"directory"`       // in which opencode has it
	Owner     string  `json:"owner,omitempty"` // the text of its owner's ref, and the batch that creates it, until that is in the outbox
	Batch     string  `json:"batch,omitempty"`
	Prompt    *prompt `json:"prompt,omitempty"`
}

// The suffixes of a tie's files.
const (
	tieSuffix  = ".json"
	keysSuffix = ".keys"
	lockSuffix = ".lock"
)

// OpenTie opens or makes the tie of one of opencode's sessions, in a folder.
func OpenTie(dir, opencode string) (*Tie, error) {
	if !isID(opencode) {
		return nil, fault.BadArgument.With("%q is no id of opencode's sessions", fault.Clip(opencode))
	}
	t := &Tie{name: filepath.Join(dir, opencode), rec: tieRecord{Opencode: opencode}}
	var err error
	t.lock, err = filelock.Open(t.name + lockSuffix)
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fault.InUse.With("another mooring attach is tied to opencode's session %s, or a mooring relay writes to it: end that first", opencode)
	case t.lock == nil:
		return nil, fmt.Errorf("lock the tie: %w", err)
	} // else it is locked, or on a file system without locks
	left, err := filepath.Glob(filepath.Join(dir, "."+opencode+".*-*"))
	for _, name := range left { // by one that was killed while it wrote
		_ = os.Remove(name)
	}
	if err == nil {
		err = t.read()
	}
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tie) read() error {
	rec, err := readTie(t.name)
	if err == nil && rec.Opencode != "" {
		t.rec = rec
	}
	return err
}

// KeysName returns the name of the file of keys that were put into the session (package putkeys).
func (t *Tie) KeysName() string { return t.name + keysSuffix }

// Close gives the tie back.
func (t *Tie) Close() error { return filelock.Close(t.lock) }

// Session returns the id of Mooring's session; "" if there is none yet.
func (t *Tie) Session() string { return t.rec.Session }

// Opencode returns the id of opencode's session.
func (t *Tie) Opencode() string { return t.rec.Opencode }

// Directory returns the folder in which opencode has its session; "" if that is not known.
func (t *Tie) Directory() string { return t.rec.Directory }

// SetDirectory says in which folder opencode has its session.
func (t *Tie) SetDirectory(dir string) error {
	if t.rec.Directory == dir {
		return nil
	}
	t.rec.Directory = dir
	return t.save()
}

// Begun returns what a session of Mooring's is to be created with, which may have been begun: its owner's ref and the batch's id; "" for none.
func (t *Tie) Begun() (owner capability.Ref, batch string, err error) {
	if t.rec.Batch == "" {
		return owner, "", nil
	}
	owner, err = capability.ParseRef(t.rec.Owner)
	return owner, t.rec.Batch, err
}

// SetSession says which session of Mooring's it is, and with what it is to be created, if it is not in the outbox. No other tie of the folder
// may have it.
func (t *Tie) SetSession(id string, owner capability.Ref, batch string) error {
	others, err := filepath.Glob(filepath.Join(filepath.Dir(t.name), "*"+tieSuffix))
	if err != nil {
		return err
	}
	for _, name := range others {
		var rec tieRecord
		if text, err := os.ReadFile(name); err == nil && json.Unmarshal(text, &rec) == nil && rec.Session == id && rec.Opencode != t.rec.Opencode {
			return fault.InUse.With("session %s has opencode's session %s already, and takes no other", id, rec.Opencode)
		}
	}
	t.rec.Session, t.rec.Owner, t.rec.Batch = id, "", batch
	if batch != "" {
		t.rec.Owner = owner.Text()
	}
	return t.save()
}

// setPrompt makes durable how far a prompt has come; nil is none. If it cannot, nothing has changed.
func (t *Tie) setPrompt(p *prompt) error {
	was := t.rec.Prompt
	if t.rec.Prompt = nil; p != nil {
		now := *p
		t.rec.Prompt = &now
	}
	err := t.save()
	if err != nil {
		t.rec.Prompt = was
	}
	return err
}

// save writes the file.
func (t *Tie) save() error {
	text, err := json.Marshal(t.rec)
	if err != nil {
		return err
	}
	return newfile.Fault(newfile.Replace(t.name+tieSuffix, append(text, '\n')), "the ties")
}
