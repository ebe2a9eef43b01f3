package capability

// Public shares: sessions that anyone with an id may see. The id is not a ref's: it is part of
// URLs, and selects the ref to act under.

import "time"

// PublicShare is the row of a public share. Nobody has its refs' secrets: a reader who knows the id
// acts under Reader, and a writer shows the secret of a ref minted from Share.
type PublicShare struct {
	ID      string // random, and part of URLs: A-Z a-z 0-9 _ -
	Session string
	Owner   string // id of the owner ref that the session was created with
	Share   string // id of the ref that everything under the share is minted from: revoking it ends the share
	Reader  string // id of the readers' ref
	Created int64  // Unix ms
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
	for _, id := range []string{p.Share, p.Reader} {
		if g := grants[id]; g != nil && Check(g, epoch, now, 0, "") != nil {
			return false
		}
	}
	return true
}

// Live is Valid for a share whose refs are minted.
func (p *PublicShare) Live(grants map[string]*Grant, epoch uint64, now int64) bool {
	return grants[p.Share] != nil && grants[p.Reader] != nil && p.Valid(grants, epoch, now)
}
