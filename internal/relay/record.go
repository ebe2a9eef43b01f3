package relay

// The file of a share: what has to be known of it in a later process.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// record is what the file of a share has.
type record struct {
	ID       string   `json:"id"` // the public id
	External string   `json:"external"`
	Owner    string   `json:"owner"`  // the text of the ref by which the session is reached: its owner's, or a tied session's
	Reader   string   `json:"reader"` // the id of the ref that has the public id
	URL      string   `json:"url"`    // the real server's page
	Batch    string   `json:"batch"`  // that creates the session
	Created  int64    `json:"created"`
	Made     bool     `json:"made"`              // the batch is in the outbox
	Secrets  []string `json:"secrets"`           // hashes of the secrets that opencode was given, in base64url, the oldest first
	Ended    int64    `json:"ended,omitempty"`   // when
	EndBatch string   `json:"end,omitempty"`     // that revokes the reader's ref
	EndSent  bool     `json:"endSent,omitempty"` // that batch is in the outbox, or the server has ended the share
	Tied     bool     `json:"tied,omitempty"`    // it is of a session that attach records
	Session  string   `json:"session,omitempty"` // that session's id, which the ref may be above
}

// shareSuffix ends the name of a share's file, which begins with its public id; keysSuffix that of its keys.
const (
	shareSuffix = ".share"
	keysSuffix  = ".keys"
)

func keysOf(dir, id string) string { return filepath.Join(dir, id+keysSuffix) }

// readRecords reads the files of all shares of a folder, in the order of their creation. What a crash left half written is removed.
func readRecords(dir string) (list []record, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the relay's folder: %w", err)
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Name())
		if strings.HasPrefix(f.Name(), ".") { // newfile's
			_ = os.Remove(name)
			continue
		}
		id, found := strings.CutSuffix(f.Name(), shareSuffix)
		if !found || !capability.IsPublicID(id) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a share: %w", err)
		}
		var rec record
		if err := json.Unmarshal(text, &rec); err != nil || rec.ID != id {
			return nil, fmt.Errorf("the file %s is damaged: move it away, and share that session again (%w)", name, err)
		}
		list = append(list, rec)
	}
	slices.SortStableFunc(list, func(a, b record) int { return cmp.Compare(a.Created, b.Created) })
	return list, nil
}

// write writes the file, which is there whole or as it was before.
func (rec *record) write(dir string) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	err = newfile.Replace(filepath.Join(dir, rec.ID+shareSuffix), append(text, '\n'))
	if err != nil {
		return fmt.Errorf("keep the share: %w", err)
	}
	return nil
}

// open returns the share's session.
func (rec *record) open(ctx context.Context, c *client.Client) (*client.Session, error) {
	ref, err := capability.ParseRef(rec.Owner)
	if err != nil {
		return nil, err
	}
	if capability.IsSpace(ref.Target()) {
		space, err := c.Space(ctx, ref)
		if err != nil {
			return nil, err
		}
		return space.Open(rec.Session)
	}
	s, err := c.Session(ctx, ref)
	if err == nil && rec.Session != "" && rec.Session != s.ID() {
		s, err = s.Open(rec.Session)
	}
	return s, err
}

// remove removes the files of a share.
func (rec *record) remove(dir string) (err error) {
	for _, suffix := range []string{shareSuffix, keysSuffix} {
		if e := os.Remove(filepath.Join(dir, rec.ID+suffix)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
