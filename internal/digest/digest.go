// Package digest makes the SHA-256 that things are known by: over a name that says
// what is hashed, and its fields one after the other, each of which tells where it
// ends. It is written for ever: what has been stored must be found again.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Writer gathers the fields of one thing. It is for one goroutine.
type Writer struct {
	h hash.Hash
	n [8]byte
}

// New begins with what is hashed, such as "mooring event v1".
func New(what string) *Writer {
	w := &Writer{h: sha256.New()}
	w.Text(what)
	return w
}

// Num adds a number, as eight bytes.
func (w *Writer) Num(v uint64) {
	binary.BigEndian.PutUint64(w.n[:], v)
	w.h.Write(w.n[:])
}

// Text adds a text, behind its length.
func (w *Writer) Text(s string) {
	w.Num(uint64(len(s)))
	w.h.Write([]byte(s))
}

// Sum32 adds another hash as it is: its length is known.
func (w *Writer) Sum32(sum [32]byte) { w.h.Write(sum[:]) }

// Sum is the hash of all that was added.
func (w *Writer) Sum() (sum [32]byte) {
	w.h.Sum(sum[:0])
	return sum
}
