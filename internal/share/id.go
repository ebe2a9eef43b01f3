// Public ids: 128 random bits, in letters that opencode accepts.

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

// isPublicID reports whether id has the form of a public id.
func isPublicID(id string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return err == nil && len(b) == publicIDBytes
}
