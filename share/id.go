// Public ids: 128 bits of randomness, in letters that opencode takes.

package share

import (
	"crypto/rand"
	"encoding/base64"
)

const publicIDBytes = 16

func newPublicID() string {
	var b [publicIDBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// isPublicID says whether id has the form of one.
func isPublicID(id string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return err == nil && len(b) == publicIDBytes
}
