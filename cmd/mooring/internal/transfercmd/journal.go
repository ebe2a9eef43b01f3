// The journal of an import: that a session was created, and which batches were committed. A
// batch's id is derived from its content and position, and the outbox accepts an id once; the
// journal is for batches that the outbox has forgotten.

package transfercmd

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
)

// journal is one session's file in the home folder: a line per batch, appended after the batch is
// durable. A line truncated by a crash is ignored.
type journal struct {
	session string
	path    string
	done    map[[32]byte]bool
}

func openJournal(home, session string) (*journal, error) {
	dir := filepath.Join(home, "imports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the imports folder: %w", err)
	}
	j := &journal{session: session, path: filepath.Join(dir, session), done: map[[32]byte]bool{}}
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read the import's journal: %w", err)
	}
	for line := range bytes.Lines(data) {
		var chain [32]byte
		text := bytes.TrimSuffix(line, []byte("\n"))
		if len(text) == hex.EncodedLen(len(chain)) {
			if _, err := hex.Decode(chain[:], text); err == nil {
				j.done[chain] = true
			}
		}
	}
	return j, nil
}

// add appends batches that are durable.
func (j *journal) add(chains ...[32]byte) error {
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the import's journal: %w", err)
	}
	var lines bytes.Buffer
	lines.WriteByte('\n') // ends a line that a crash truncated
	for _, chain := range chains {
		fmt.Fprintf(&lines, "%x\n", chain)
		j.done[chain] = true
	}
	_, err = f.Write(lines.Bytes())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write the import's journal: %w", err)
	}
	return nil
}

// forget removes the journal of a session that was not created.
func (j *journal) forget() error {
	if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the import's journal: %w", err)
	}
	return nil
}

// createChain returns the chain that stands for the session's creation.
func (j *journal) createChain() [32]byte {
	return sha256.Sum256([]byte("mooring import create\x00" + j.session))
}

// batchID returns the id of the batch with a chain: a ULID of the session's creation time with
// room for its ops' ids, always the same.
func (j *journal) batchID(chain [32]byte) string {
	sum := sha256.Sum256(append([]byte("mooring import batch\x00"+j.session+"\x00"), chain[:]...))
	var id ulid.ULID
	made, err := ulid.ParseStrict(j.session[len(capability.SessionPrefix):])
	if err == nil {
		id = made
	}
	copy(id[6:14], sum[:8])
	id[14], id[15] = 0, 0
	return id.String()
}
