// Package intent is a batch of op intents as the outbox stores it: what its ops refer to, which
// outcomes are decided without a server, what is sent, and the bytes of a row.
//
// Packages outbox, sender, machine, sqlstore and refs use it. It touches no database, clock or socket,
// and has no locks: a Batch belongs to the goroutine that decoded it.
//
// The words:
//
//	op intent      one durable call; in a row, an Op
//	local outcome  an outcome that was decided here: the op needs no server
//	void           it takes the seq of an op that was dropped
//	target         an op that another one refers to or depends on
//	strict         of resolving: what a Commit is refused for, and a stored batch is not
//	compacted      finished and applied; arguments are gone
//
// Decoding takes memory in proportion to the row: counts and lengths are checked against the
// bytes that are left.
package intent
