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

// maxDelivered bounds the ids that are remembered.
const maxDelivered = 64

// progress is how far a watch has come.
type progress struct {
	client.Position
	Delivered []string // ids of the last notices

	file string
}

// savedProgress is the content of the file.
type savedProgress struct {
	At        string   `json:"at,omitempty"` // CURSOR:HASH; absent while the first notices are delivered
	Delivered []string `json:"delivered,omitempty"`
}

// open reads the file, if there is one, and locks it until unlock is called.
func (p *progress) open(file string) (unlock func() error, err error) {
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
	var saved savedProgress
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return func() error { return filelock.Close(lock) }, nil
	case err == nil:
		err = json.Unmarshal(text, &saved)
	}
	if p.Delivered = saved.Delivered; err == nil && saved.At != "" {
		p.Position, err = client.ParsePosition(saved.At)
	}
	if err != nil {
		_ = filelock.Close(lock)
		return nil, fault.Malformed.Because(err, "the position of the watch in %s cannot be read (%v): remove the file to begin anew", file, err)
	}
	return func() error { return filelock.Close(lock) }, nil
}

// delivered remembers that a notice was delivered.
func (p *progress) delivered(id string) {
	p.Delivered = append(p.Delivered[max(0, len(p.Delivered)-maxDelivered+1):len(p.Delivered):len(p.Delivered)], id)
}

// save makes the progress durable.
func (p *progress) save() error {
	if p.file == "" {
		return nil
	}
	saved := savedProgress{Delivered: p.Delivered}
	if p.Cursor != 0 {
		saved.At = p.Position.String()
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	return newfile.Fault(newfile.Replace(p.file, text), "the position of the watch")
}
