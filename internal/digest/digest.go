// Package digest makes the SHA-256 that things are known by: over a name that says
// what is hashed, and its fields one after the other, each of which tells where it
// ends. It is written for ever: what has been stored must be found again.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// Writer gathers the fields of one thing. It is for one goroutine, and lives where
// it is declared: what is hashed is mostly short, and then costs no allocation.
type Writer struct {
	before hash.Hash // has what did not fit into room; nil if all does
	room   [512]byte
	n      int // bytes in it
}

// New begins with what is hashed, such as "mooring event v1".
func New(what string) (w Writer) {
	w.Text(what)
	return w
}

// fit makes room for n more bytes, if there may be that many.
func (w *Writer) fit(n int) bool {
	if w.n+n > len(w.room) {
		w.hash(string(w.room[:w.n]))
		w.n = 0
	}
	return n <= len(w.room)
}

// hash is handed a copy, so that room may stay on a stack.
func (w *Writer) hash(s string) {
	if w.before == nil {
		w.before = sha256.New()
	}
	w.before.Write([]byte(s))
}

// Num adds a number, as eight bytes.
func (w *Writer) Num(v uint64) {
	w.fit(8)
	binary.BigEndian.PutUint64(w.room[w.n:], v)
	w.n += 8
}

// Text adds a text, behind its length.
func (w *Writer) Text(s string) {
	w.Num(uint64(len(s)))
	if w.fit(len(s)) {
		w.n += copy(w.room[w.n:], s)
	} else {
		w.hash(s)
	}
}

// Sum32 adds another hash as it is: its length is known.
func (w *Writer) Sum32(sum [32]byte) {
	w.fit(len(sum))
	w.n += copy(w.room[w.n:], sum[:])
}

// Sum is the hash of all that was added.
func (w *Writer) Sum() (sum [32]byte) {
	if w.before == nil {
		return sha256.Sum256(w.room[:w.n])
	}
	w.fit(len(w.room))
	return [32]byte(w.before.Sum(nil))
}
