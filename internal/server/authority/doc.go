// Package authority decides what a ref is worth: whether its secret and proof are right when it is redeemed, and what
// it allows whoever acts under it, against the rows of the snapshot that a call reads.
//
// Package objects redeems refs and makes an Authority for each live session; package fanout checks the one of a
// subscription again before it delivers. The Redeemer reads the ref's row, counts the redemption and records refusals
// in the audit; nothing else here touches the Store: Check is given the rows. This package knows no wire.
//
//	ref          sturdy ref: an id and a secret that grant access to a session or a space
//	grant        the stored row of a ref: rights, limits, parent, revocation
//	authority    the ref, and its attenuation, under which a live object acts
//	credential   what is shown to redeem a ref
//	sealed       of a ref: only the holder of a key may redeem it, by a proof
//	challenge    a nonce that a proof is for, once
//
// # Lock order
//
// Authority.mu and Challenges.mu are leaves.
//
// # Bounds
//
//	challenges of one connection  64 (maxOpenChallenges), a minute each (challengeTTL)
//	one redemption                RedeemerConfig.ReadTimeout
package authority
