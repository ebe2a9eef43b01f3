// Package capability holds sturdy refs and what they allow: rights, limits,
// epochs, delegation and the checks. It decides on rows that its caller has
// read; it knows no database, no wire and no session content.
package capability

// Right is one thing a ref may allow; Rights is a set of them.
type Rights uint8

// Rights on a session, then those on a space.
const (
	Read Rights = 1 << iota
	Append
	Share
	Revoke
	Create
	List
)

// SessionRights is all a session ref can carry, SpaceRights all a space ref can.
const (
	SessionRights = Read | Append | Share | Revoke
	SpaceRights   = Create | List
)

// Grant is the server's row of one sturdy ref. The secret is never in it,
// only its SHA-256.
type Grant struct {
	ID       string   // the ref's id; carries Target
	Target   string   // session id (ses_…) or space id (spc_…)
	Parent   string   // the ref it was minted from; "" for a space's root ref
	Hash     [32]byte // SHA-256 of the secret
	Owner    bool     // owner refs have no epoch and outlive every bump
	Epoch    uint64   // the session's epoch it was minted under; 0 if Owner
	Rights   Rights
	Methods  []string // append only these methods; nil means all
	Expires  int64    // Unix ms; 0 never
	From     uint64   // first visible cursor; 0 and 1 mean all
	Limit    uint32   // redemptions allowed; 0 means any number
	Used     uint32   // distinct redemption ids seen
	Label    string
	Actor    string // a path under its parent's
	Created  int64  // Unix ms
	Revoked  int64  // Unix ms; 0 while alive
	Cut      uint64 // the session's cursor at the revocation
	RevokeBy string // the ref that revoked it
}
