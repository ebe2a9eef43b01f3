// Package capability implements sturdy refs and the authority they carry: rights, limits, epochs,
// delegation and the checks. It decides on rows that its caller has read, and uses no database,
// wire or clock, and no content of sessions.
//
// Authenticate checks whether a holder may have the live capability, Check whether it permits an
// act now, Mint makes a narrower ref from a ref, Attenuate a narrower live capability without a
// row.
//
//	ref              the text that names a target and carries a secret; its holder has the authority (Ref)
//	secret           256 random bits; the server stores only their SHA-256 (Secret)
//	target           the session or space a ref is for
//	grant            the server's row of one ref (Grant)
//	authority        what a grant permits now: its rights within its limits, while it is alive (Check)
//	live capability  an object of a connection, made from a ref; may be narrower than it (Attenuate)
//	epoch            a number of a session; raising it revokes all refs but owners'
//	cut              the session's cursor when a ref was revoked: nothing under it commits later
//	seal             a public key that a ref is bound to; redeeming needs a proof of the private one
//	redemption       a counted use of a ref's text to get a live capability
//
// # Lock order
//
// None: the package has no locks. All functions are safe for concurrent use, and all types are
// values, except ChainVerifier, which is for one goroutine. The caller locks the rows that it passes.
//
// # Bounds
//
// A label and an actor have at most 256 bytes each, a segment of an actor 64, a message id 200. A
// ref without any limit has at most MaxCountedRedemptions counted redemptions. The text of a ref is
// bounded in reftext.go. ChainVerifier tries at most maxSuspects flawed rows in other positions.
package capability

// Grant is the server's row of one sturdy ref. It never has the secret, only its SHA-256, which is
// never in JSON.
type Grant struct {
	ID             string   `json:"id"`                // the ref's id; includes Target
	Target         string   `json:"target"`            // session id (ses_…) or space id (spc_…)
	Parent         string   `json:"parent,omitempty"`  // the ref it was minted from; "" for a space's root ref
	Hash           [32]byte `json:"-"`                 // SHA-256 of the secret
	Owner          bool     `json:"owner,omitempty"`   // owner refs have no epoch and survive every bumpEpoch
	Epoch          uint64   `json:"epoch,omitempty"`   // the session's epoch it was minted under; 0 if Owner, and for a space
	Rights         Rights   `json:"rights"`            //
	Methods        []string `json:"methods,omitempty"` // append is limited to these methods; nil means all
	Expires        int64    `json:"expires,omitempty"` // Unix ms, the first at which it is dead; 0 never
	VisibleFrom    uint64   `json:"from,omitempty"`    // first visible cursor; 0 and 1 mean all
	Message        string   `json:"message,omitempty"` // only this message, with its parts and turn; "" means all
	Seal           []byte   `json:"seal,omitempty"`    // Ed25519 public key whose owner alone can redeem; nil for none
	MaxRedemptions uint32   `json:"limit,omitempty"`   // redemptions allowed; 0 means any number
	Redemptions    uint32   `json:"used,omitempty"`    // number of distinct redemption ids
	Label          string   `json:"label,omitempty"`   //
	Actor          string   `json:"actor,omitempty"`   // a path under its parent's
	Created        int64    `json:"created,omitempty"` // Unix ms
	Revoked        int64    `json:"revoked,omitempty"` // Unix ms; 0 while alive
	Cut            uint64   `json:"cut,omitempty"`     // the session's cursor at the revocation
	RevokedBy      string   `json:"revoke_by,omitempty"`
	Bytes          int64    `json:"-"` // stored under it, in bytes
	ExemptBytes    int64    `json:"-"` // of Bytes, stored before there was a quota
}
