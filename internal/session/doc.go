// Package session is the domain: the methods that ops call, the log and state of a session, and the
// authority over it. It imports neither the wire nor SQL.
//
// Commit takes submissions gathered from all connections and decides them in one store transaction:
//
//	Submission → ReadSet (rows to lock and read) → Tx.Load → view
//	  → ledger.Admit → per op, by ledger.Decide: authorize → decode → apply
//	  → changes → Tx.Save → Answers, and Published for subscribers
//
// All decisions are made in memory, on rows read under the session row's lock, before any write. An
// op that changes state makes exactly one event, at the row's next cursor. The interruption and the
// resumption of a turn are events of the session itself. The rows Entry and Turn are a cache of the
// fold of the events; the tests compare the two.
//
// The files, in the order of a commit: submission.go (input and output), commit.go (the
// transaction), readset.go (its reads), view.go, viewload.go and viewrefs.go (rows with the group's
// changes over them), apply.go (authority, events, leases), op.go and args.go (methods and their
// arguments), apply_*.go with finalize.go and text.go (the effect of each method), order.go (the
// state's order), turn.go (a turn's lifecycle), turncount.go (open turns),
// claimcount.go (claims), audit.go (audit rows and
// usage counts), changes.go (the rows to write). The others: rotate.go (replacing an owner's ref),
// tree.go (trees of refs), lapse.go (expired leases), event.go (the hash chain), verify.go
// (integrity of a log), fold.go (state from events), rows.go and reads.go (the rows in the store,
// and the results of reads).
//
//	op          a call of a method, with an id and named arguments
//	stream      the ordered ops of one outbox in one session
//	event       a row of a session's log; its cursor counts from 1
//	state       the entries (key → value) and turns that a log folds to
//	turn        a message while it is being written; it has a lease
//	grant       the database row of a ref (package capability)
//	cut         the cursor after which nothing under a revoked ref commits
//	base        the cursor up to which a log was trimmed
//	read set    the rows that a group of submissions locks and reads
//	orphan      an open turn whose ref is dead
//
// # Methods
//
// Arguments are named; each may be a reference to an earlier op's result. Every result has
// "cursor", and "unchanged": true where no event was made.
//
//	create      ref, hash, external?, label?, actor?, order?, origin?, origin_at?, origin_message?  the first op of a session's stream; mints the owner ref; order "time" is opencode's
//	fork        source, via, at?, at_hash?, message?, and the arguments of create
//	                                                       begins with the source's entries; a live object of via must be passed along
//	put         key, payload, schema_version?              replaces; equal to the present value: unchanged
//	remove      key                                        absent: unchanged; not a message whose turn is open
//	begin       message, payload, schema_version?          puts the message and opens its turn; limits on open turns: turncount.go
//	appendText  key, offset, text                          continues a part's text at its byte offset
//	finalize    message, status, payload?, schema_version?, parts?, usage?, error?, completed?; at most MaxTerminalParts parts
//	share       ref, hash, rights, methods?, expires_at?, expires_in?, from?, message?, redemptions?, seal?, label?, actor?
//	revoke      ref                                        it and all minted below it
//	bumpEpoch                                              every share of the session
//	purge       key                                        owner refs only; removes every payload of the key from log and state
//	delete                                                 owner refs only
//
// # Lock order
//
// Tx.Load locks the rows of spaces, then the rows of sessions, each in id order, and reads
// everything else without locks (see ReadSet). A transaction locks spaces in its first Load only,
// and sessions in one Load only. This package has no mutexes.
//
// # Bounds
//
// Limits bounds a batch, an event, a text, a name and the unacknowledged ops of a stream; one
// submission reads at most four times Limits.EventBytes of payloads beyond its own. MaxOpenTurns
// and MaxSessionTurns bound the open turns, Limits.SessionBytes and RefBytes the bytes stored (0: no
// bound). A group that has read and written more than one submission may read is cut
// short: its remaining submissions are Overloaded.
//
// # Concurrency
//
// Commit and Lapse hold no state between calls and may run in parallel, each in its own
// transaction. A Fold, a Verifier and an OrdTracker each belong to one goroutine. All other types
// are values.
package session
