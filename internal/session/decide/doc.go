// Package decide is the rules of sessions: the methods that ops call, and the authority over sessions. The server's group commit
// calls it (internal/server/commit), and its operator and the store do for changes without an op: leases that have expired,
// trees of refs, forks that are copied. Clients check their ops by the same table of methods (CheckOps). It touches the rows of
// the transaction that it is given (session.Tx), and nothing else: it imports neither the wire nor SQL.
//
// Commit takes submissions gathered from all connections and decides them in one store transaction:
//
//	Submission → ReadSet (rows to lock and read) → Tx.Load → view
//	  → ledger.Admit → per op, by ledger.Decide: authorize → decode → apply
//	  → changes → Tx.Save → Answers, and Published for subscribers
//
// All decisions are made in memory, on rows read under the session row's lock, before any write. An
// op that changes state makes exactly one event, at the row's next cursor. The interruption and the
// resumption of a turn are events of the session itself.
//
// The files, in the order of a commit: submission.go (input, output and configuration), commit.go (the transaction), readset.go (its
// reads; the rows with the group's changes over them are package view's), apply.go (authority, events, leases), op.go and args.go
// (methods and their arguments), opfeatures.go and opscope.go (what an op needs of servers, and of its ref), apply_*.go with
// requestevent.go (the effect of each method), counts.go and quota.go (open turns, claims, bytes), audit.go (audit rows and usage
// counts). Calls without an outbox: direct.go, syncrevert.go, rotate.go (replacing an owner's ref). Changes without an op: upkeep.go
// (expired leases), manage.go and reach.go (what ends refs in other sessions than their own), forkcopy.go and forkfold.go (forks in
// pieces).
//
//	op          a call of a method, with an id and named arguments
//	submission  a batch of ops, an acknowledgement or a call without an outbox, with its authority
//	group       the submissions of one transaction
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
//	begin       message, payload, schema_version?          puts the message and opens its turn; limits on open turns: counts.go
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
// everything else without locks (see session.ReadSet). A transaction locks spaces in its first Load only,
// and sessions in one Load only. This package has no mutexes.
//
// # Bounds
//
// session.Limits bounds a batch and what it writes; one
// submission reads at most four times Limits.EventBytes of payloads beyond its own. session.MaxOpenTurns
// and MaxSessionTurns bound the open turns. A group that has read and written more than one submission may read is cut
// short: its remaining submissions are Overloaded.
//
// # Concurrency
//
// Commit, Lapse and the others hold no state between calls and may run in parallel, each in its own
// transaction.
package decide
