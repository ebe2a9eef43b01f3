// Package session is the domain: what ops mean, what a session's log and state
// are, and who may do what to them. It knows no wire and no SQL.
//
// Submissions that have been gathered from all connections go through Commit,
// in one store transaction:
//
//	Submission → want (rows to lock and read) → Tx.Load → view
//	  → ledger.Admit → per op, by ledger.Decide: authorize → decode → apply
//	  → changes → Tx.Save → Answers, and Published for subscribers
//
// Everything is decided in plain code on rows read under the session row's
// lock, before any write. An op that changes state makes exactly one event; the
// event's cursor is the row's next. That a turn was interrupted, or is resumed, is
// an event of the session's own. The rows (Entry, Turn) are a cache of what
// Fold makes of the events alone, and the tests hold the two side by side.
//
// The files, in the order of the corridor: submission.go (what comes in and
// goes out), commit.go (the transaction), readset.go (its reads), view.go,
// viewload.go and viewrefs.go (rows with changes over them), apply.go
// (authority, events, leases), op.go and args.go (methods and their
// arguments), apply_*.go with finalize.go and text.go (what each method does),
// order.go (the state's order), turn.go (a turn's lifecycle), turncount.go (how many are open), audit.go (what is noted and counted), changes.go
// (what is written). Beside it stand rotate.go (a new ref in the place of an
// owner's), tree.go (trees of refs), lapse.go (leases that run out), event.go (the
// hash chain), verify.go (whether a log is what was written), fold.go (state from
// events), rows.go and reads.go (what the store keeps and gives).
//
// # Methods
//
// Arguments are named; each may be a reference to an earlier op's result. Every
// result has "cursor", and "unchanged": true where no event was made.
//
//	create      ref, hash, external?, label?, actor?, order?  the first op of a session's stream; mints the owner ref; order "time" is opencode's
//	fork        source, via, at?, at_hash?, and those of create
//	                                                       begins with the source's entries; a live object of via must come along
//	put         key, payload, schema_version?              replaces; equal to the present value: unchanged
//	remove      key                                        absent: unchanged; not a message whose turn is open
//	begin       message, payload, schema_version?          puts the message and opens its turn; how many may be open: turncount.go
//	appendText  key, offset, text                          continues a part's text at its byte offset
//	finalize    message, status, payload?, schema_version?, parts?, usage?, error?, completed?; at most MaxTerminalParts parts
//	share       ref, hash, rights, methods?, expires_at?, expires_in?, from?, message?, redemptions?, seal?, label?, actor?
//	revoke      ref                                        it and all minted below it
//	bumpEpoch                                              every share of the session
//	purge       key                                        owner refs only; takes every payload of it out of log and state
//	delete                                                 owner refs only
//
// # Concurrency
//
// Commit and Lapse keep nothing between calls and may run in parallel, each in
// a transaction of its own. Fold is for one goroutine. All else is values.
package session
