// Package capability holds sturdy refs and what they allow: rights, limits,
// epochs, delegation and the checks. It decides on rows that its caller has
// read; it knows no database, no wire, no clock and no session content.
//
// A Ref is the ref as its holder has it, with the Secret; a Grant is the row
// that a server keeps of it, with the secret's hash. Authenticate says whether a holder
// may have the live capability, Check whether it allows something now, Mint
// makes a narrower one from it, Attenuate a live one that has no row.
package capability

// Grant is the server's row of one sturdy ref. The secret is never in it,
// only its SHA-256, and that is in no JSON.
type Grant struct {
	ID             string   `json:"id"`                // the ref's id; carries Target
	Target         string   `json:"target"`            // session id (ses_…) or space id (spc_…)
	Parent         string   `json:"parent,omitempty"`  // the ref it was minted from; "" for a space's root ref
	Hash           [32]byte `json:"-"`                 // SHA-256 of the secret
	Owner          bool     `json:"owner,omitempty"`   // owner refs have no epoch and outlive every bump
	Epoch          uint64   `json:"epoch,omitempty"`   // the session's epoch it was minted under; 0 if Owner, and for a space
	Rights         Rights   `json:"rights"`            //
	Methods        []string `json:"methods,omitempty"` // append only these methods; nil means all
	Expires        int64    `json:"expires,omitempty"` // Unix ms, the first at which it is dead; 0 never
	VisibleFrom    uint64   `json:"from,omitempty"`    // first visible cursor; 0 and 1 mean all
	Message        string   `json:"message,omitempty"` // one message alone, with its parts and turn; "" means all
	Seal           []byte   `json:"seal,omitempty"`    // Ed25519 public key that redeeming takes a proof for; nil for none
	MaxRedemptions uint32   `json:"limit,omitempty"`   // redemptions allowed; 0 means any number
	Redemptions    uint32   `json:"used,omitempty"`    // distinct redemption ids seen
	Label          string   `json:"label,omitempty"`   //
	Actor          string   `json:"actor,omitempty"`   // a path under its parent's
	Created        int64    `json:"created,omitempty"` // Unix ms
	Revoked        int64    `json:"revoked,omitempty"` // Unix ms; 0 while alive
	Cut            uint64   `json:"cut,omitempty"`     // the session's cursor at the revocation
	RevokedBy      string   `json:"revoke_by,omitempty"`
	Bytes          int64    `json:"-"` // held of what was written under it
	ExemptBytes    int64    `json:"-"` // of them, that were there before there was a quota
}
