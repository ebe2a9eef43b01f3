// Package decide is the rules of sessions: what the methods of ops do (their arguments are package opargs), and the authority over
// sessions. The server's group commit calls it (internal/server/commit). It touches the rows of the transaction that it is given
// (session.Tx), and nothing else: it imports neither the wire nor SQL. What changes sessions without an op is package maintain.
//
// Commit takes submissions gathered from all connections and decides them in one store transaction:
//
//	Submission → ReadSet (rows to lock and read) → Tx.Load → view
//	  → ledger.Admit → per op, by ledger.Decide: authorize → decode (opargs) → apply
//	  → changes → Tx.Save → Answers, and Published for subscribers
//
// All decisions are made in memory, on rows read under the session row's lock, before any write. An
// op that changes state makes exactly one event, at the row's next cursor. The interruption and the
// resumption of a turn are events of the session itself.
//
// The files, in the order of a commit: submission.go (input, output and configuration), commit.go (the transaction), readset.go (its
// reads; the rows with the group's changes over them are package view's), apply.go (authority, events, leases), opscope.go
// (what an op needs of its ref), apply_*.go (the effect of each method, whose results all have "cursor", and "unchanged": true where
// no event was made), reach.go (what ends refs in the sessions below their own), limits.go (open turns, claims, bytes), audit.go
// (audit rows and usage counts). Calls without an outbox: direct.go, syncrevert.go, rotate.go (replacing an owner's ref).
//
//	op          a call of a method, with an id and named arguments
//	submission  a batch of ops, an acknowledgement or a call without an outbox, with its authority
//	group       the submissions of one transaction
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
// Commit holds no state between calls and may run in parallel, each in its own
// transaction.
package decide
