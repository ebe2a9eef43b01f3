package capability

// Public shares: sessions that anyone with an id may see. The id is not a ref's: it is part of
// URLs, and selects the ref to act under.

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"time"
)

// PublicShare is the row of a public share. Nobody has its refs' secrets: a reader who knows the id
// acts under Reader, and a writer shows the secret of a ref minted from Share.
type PublicShare struct {
	ID      string // random, and part of URLs: A-Z a-z 0-9 _ -
	Session string
	Owner   string // id of the owner ref that the session was created with; "" of a ref's public id
	Share   string // id of the ref that everything under the share is minted from: revoking it ends the share
	Reader  string // id of the readers' ref
	Created int64  // Unix ms
}

// NewPublicID returns a random public id.
func NewPublicID() string {
	var b [publicIDBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// IsPublicID reports whether id has the form of a public id, in letters that opencode accepts.
func IsPublicID(id string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return err == nil && len(b) == publicIDBytes
}

// PublicID returns the public id of a ref that was shared with one: a digest of the ref's id and of its secret's hash, so who mints
// the ref knows it before a server has answered, and no two refs have the same. It does not show the secret.
func PublicID(ref string, hash [32]byte) string {
	sum := sha256.Sum256(slices.Concat([]byte("mooring public ref v1\x00"+ref+"\x00"), hash[:]))
	return base64.RawURLEncoding.EncodeToString(sum[:publicIDBytes])
}

// publicIDBytes is a public id's length in bytes: 128 bits.
const publicIDBytes = 16

// NewPublicRef returns the row of a ref with a public id. Its end is the share's.
func NewPublicRef(g *Grant) PublicShare {
	return PublicShare{ID: PublicID(g.ID, g.Hash), Session: g.Target, Share: g.ID, Reader: g.ID, Created: g.Created}
}

// ShareRequest identifies a request for a public share. A client without an answer retries: the
// same request, within DedupeWindow, gets the same share. Any other request gets its own.
type ShareRequest struct {
	Space        string        // of the session
	Fingerprint  [32]byte      // digest of everything that makes two requests the same
	DedupeWindow time.Duration // from the first of them, by the database's clock
}

// ShareRefusal is a key that a share lacks: it was synced and could not be stored.
type ShareRefusal struct {
	Key string // "" if unknown
	Why string
	At  int64 // Unix ms
}

// Valid reports whether the share exists or can still be made: neither of its refs is dead. A ref
// that grants does not have is about to be minted, or its maker crashed before. epoch and now are
// as for Check.
func (p *PublicShare) Valid(grants map[string]*Grant, epoch uint64, now int64) bool {
	return !slices.ContainsFunc([]string{p.Share, p.Reader}, func(id string) bool {
		g := grants[id]
		return g != nil && Check(g, epoch, now, 0, "") != nil
	})
}

// Live is Valid for a share whose refs are minted.
func (p *PublicShare) Live(grants map[string]*Grant, epoch uint64, now int64) bool {
	return grants[p.Share] != nil && grants[p.Reader] != nil && p.Valid(grants, epoch, now)
}
