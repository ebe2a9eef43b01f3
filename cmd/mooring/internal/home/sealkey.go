// The key to which sealed refs for this home folder are bound.

package home

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// SealKeyFile is the file of the home folder with the private key: its seed in base64url,
// readable by its owner only.
const SealKeyFile = "seal.key"

// ReadSealKey returns a home folder's private key; nil if it has none.
func ReadSealKey(dir string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(filepath.Join(dir, SealKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the seal key: %w", err)
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		// The cause could quote the key.
		return nil, fault.Usage.With("the home folder's %s is not the key that mooring key wrote: put that back, or remove it to get a new one", SealKeyFile)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// MakeSealKey is ReadSealKey, but makes a key if there is none. Concurrent calls return the same
// key.
func MakeSealKey(dir string) (ed25519.PrivateKey, error) {
	if key, err := ReadSealKey(dir); key != nil || err != nil {
		return key, err
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make the seal key: %w", err)
	}
	name := filepath.Join(dir, SealKeyFile)
	tmp, err := newfile.WriteTemp(name, []byte(base64.RawURLEncoding.EncodeToString(key.Seed())+"\n"), nil)
	if err == nil {
		if err = newfile.RenameNoReplace(tmp, name); err == nil {
			err = newfile.SyncDir(dir) // refs will be bound to it: it must not be lost
		}
		_ = os.Remove(tmp) // which is there if another was first
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("write the seal key: %w", err)
	}
	return ReadSealKey(dir)
}
