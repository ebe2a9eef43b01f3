package watch

// The position of a watch between its runs.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/filelock"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// maxTold bounds the ids that are remembered.
const maxTold = 64

// place is how far a watch has come.
type place struct {
	client.Position
	Told []string // ids of the last notices

	file string
}

// savedPlace is the content of the file.
type savedPlace struct {
	At   string   `json:"at,omitempty"` // CURSOR:HASH; absent while the first notices are told
	Told []string `json:"told,omitempty"`
}

// open reads the file, if there is one, and locks it until unlock is called.
func (p *place) open(file string) (unlock func() error, err error) {
	if p.file = file; file == "" {
		return func() error { return nil }, nil
	}
	lock, err := filelock.Open(file + ".lock")
	switch {
	case errors.Is(err, filelock.ErrLocked):
		return nil, fault.InUse.With("the same watch runs already, in another process")
	case lock == nil:
		return nil, fmt.Errorf("the file of the watch: %w", err)
	}
	text, err := os.ReadFile(file)
	var saved savedPlace
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error { return filelock.Close(lock) }, nil
	case err == nil:
		err = json.Unmarshal(text, &saved)
	}
	if p.Told = saved.Told; err == nil && saved.At != "" {
		p.Position, err = client.ParsePosition(saved.At)
	}
	if err != nil {
		_ = filelock.Close(lock)
		return nil, fault.Malformed.Because(err, "the position of the watch in %s cannot be read (%v): remove the file to begin anew", file, err)
	}
	return func() error { return filelock.Close(lock) }, nil
}

// told remembers that a notice was told.
func (p *place) told(id string) {
	p.Told = append(p.Told[max(0, len(p.Told)-maxTold+1):len(p.Told):len(p.Told)], id)
}

// save makes the place durable.
func (p *place) save() error {
	if p.file == "" {
		return nil
	}
	saved := savedPlace{Told: p.Told}
	if p.Cursor != 0 {
		saved.At = p.Position.String()
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	return newfile.Fault(newfile.Replace(p.file, text), "the position of the watch")
}
