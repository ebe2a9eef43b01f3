// Package txn runs the store's transactions: it locks and loads the rows that a group of batches needs, and saves what the
// group changes. Here are the statements and scans of all tables that a commit reads or writes, for the packages that read the
// same rows: reads, upkeep and authority call it, and Store.Update for package session. It uses package dialect alone.
//
// load.go and save.go are session.Tx, db.go runs them. The other files are one table or part each: its statements, and
// what scans its rows.
//
//	prior row  a session's row as the transaction loaded it
//	delta      the text of one appendText event
//	lineage    a ref and all refs that it was minted from
//	access     a session's row and refs' rows, read in one snapshot
//	ord        an entry's position in its session's order (session.Ord)
//	before     of an entry: as it was when a fork of its session began
//	tail       the part of a ref's id behind its target
//
// # Lock order
//
// In the process: a session's lock in sessionLocks (DB.Locks), before a connection is taken. In the database:
// rows of spaces in id order, rows of sessions in id order, then rows of streams, grants and search_sessions, and
// the ends of audit chains last. AddUses locks rows of uses in the order of the refs, in a
// transaction of its own, and ClaimWebhooks those of webhooks: it passes over what others have locked.
//
// # Bounds
//
// existingSessions is bounded by maxExistingSessions ids. A Load reads about ReadSet.MaxBytes of payloads. Up to
// maxSearchedOps ops of a stream are searched for one by one.
package txn
