package capability

// Public shares: a session that anybody who has an id may see. The id is no ref's:
// it stands in URLs, and says which ref it is good for.

import "time"

// PublicShare is the row of a public share. Nobody holds its refs' secrets: whoever
// has found the row acts under Reader, and whoever has shown the secret of a ref
// minted from Share writes.
type PublicShare struct {
	ID      string // random, and part of URLs: A-Z a-z 0-9 _ -
	Session string
	Owner   string // the ref id that the session was made with
	Share   string // the ref id that everything under the share is minted from: revoked, the share is over
	Reader  string // the ref id of its readers
	Created int64  // Unix ms
}

// ShareRequest says who asks for a public share. A client that did not hear the
// answer asks again: the same request, within a short time, is for the same share.
// Any other is for a share of its own.
type ShareRequest struct {
	Space        string        // in which its session is, or will be
	Fingerprint  [32]byte      // digest of all that makes it the same request
	DedupeWindow time.Duration // since the first of them, by the database's clock
}

// ShareRefusal is something that a share lacks: it was synced and could not be stored.
type ShareRefusal struct {
	Key string // "" where it is not known what was lost
	Why string
	At  int64 // Unix ms
}

// Valid says whether the share is there, or can still be made: neither of its refs
// is dead. A ref that grants does not have is one that is about to be minted, or was
// when its maker crashed. epoch and now are as for Check.
func (p *PublicShare) Valid(grants map[string]*Grant, epoch uint64, now int64) bool {
	for _, id := range []string{p.Share, p.Reader} {
		if g := grants[id]; g != nil && Check(g, epoch, now, 0, "") != nil {
			return false
		}
	}
	return true
}

// Live is Valid for a share that has been made.
func (p *PublicShare) Live(grants map[string]*Grant, epoch uint64, now int64) bool {
	return grants[p.Share] != nil && grants[p.Reader] != nil && p.Valid(grants, epoch, now)
}
