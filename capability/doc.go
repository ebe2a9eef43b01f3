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
