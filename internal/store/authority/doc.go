// Package authority keeps what a store knows of who may do what, beside commits: the first space and its root, streams and their
// secrets, redemptions, uses and expiry of refs, page tokens, public shares, webhooks, what is charged to which ref, and
// audit rows of the server itself. Store has its methods; the packages of a server that admit calls use them, and cmd for its
// operator. Whether a ref may do something is decided by the caller, or by what the caller passes in.
//
//	root        a space's first ref; whoever has it owns the space
//	redemption  the first use of a ref by one holder
//	account     the ref of a space to which a session's bytes are charged
//	share       a session that is published under an id of its own
//	refusal     a key that was synced to a share and not taken
//	page token  a browser's credential for pages of one ref
//	writer      a server that adds pages of uses, each once
//	to claim    of a webhook: to be the server that delivers for it, for a time
//
// # Lock order
//
// That of package txn; rows of uses and of webhooks are locked by transactions that lock nothing else.
//
// # Bounds
//
// Lists and claims take their limits as arguments. A writer's last page is known for writerRetention.
package authority
