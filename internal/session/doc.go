// Package session is what a session is: its rows, its log, the state that the log folds to, what a ref shows of them, and the
// requests and results of reads. Packages decide and maintain change sessions by it, the store reads and writes its rows, servers, pages and
// clients show them, and clients fold and verify logs. It touches its arguments alone: it imports neither the wire nor SQL, and
// reads no clock.
//
// The rows Entry and Turn are a cache of the fold of the events; the tests compare the two.
//
//	stream      the ordered ops of one outbox in one session
//	event       a row of a session's log; its cursor counts from 1
//	key         what an entry of the state, or an event, is about
//	state       the entries (key → value) and turns that a log folds to
//	turn        a message while it is being written; it has a lease
//	grant       the database row of a ref (package capability)
//	scope       the part of a session that a ref shows, and the part that it writes
//	cut         the cursor after which nothing under a revoked ref commits
//	base        the cursor up to which a log was trimmed
//	read set    the rows that a group of submissions locks and reads
//
// The rows are in rows.go, with claim.go, forking.go, request.go, stream.go, turn.go and webhook.go; the log in event.go (its
// methods, payloads and hash chain, and where it begins) and verify.go; the state in key.go, value.go, order.go and fold.go, with hidden.go
// (what reverts hide, and what compactions leave out of it); what of both is shown in scope.go and unscoped.go. reads.go has
// what objects read, with trees of refs; the pages of keys, requests and sessions are in keypage.go, request.go and list.go.
// features.go says which readers would misread a session, limits.go what a server announces.
//
// # Bounds
//
// Limits bounds a batch, an event, a text, a name and the unacknowledged ops of a stream, Limits.SessionBytes and RefBytes the
// bytes stored (0: no bound). MaxOpenTurns and MaxSessionTurns bound the open turns, and each page has a bound beside its query.
//
// # Concurrency
//
// A Fold, a Verifier, an OrdTracker and a ShownCache each belong to one goroutine, and a Shown may be used by many. All other
// types are values. Nothing here waits.
package session
