// Package sqlstore has the SQL of the outbox: the statements that both databases share, each beside
// its scan, and the Database that packages sqlite and postgres implement.
//
// Packages outbox, sender and lease call it, within the transactions of Database.Write and Database.Read. It touches
// no database but through the Querier that it is given, no clock and no socket. DamageLog.mu, its only
// lock, is a leaf.
//
// The words:
//
//	box         the number of the outbox in its database
//	row         a batch: its ops encoded, its seqs, and its outcomes once it is finished
//	num         a row's number, in the order in which rows were written
//	low water   all rows with a seq below this number are finished
//	high water  the last seq of a stream whose outcome is stored
//	tally       how many ops of a row failed, were skipped or were dropped
//	enqueued    of a statement: run at the latest when the transaction commits
//	stamp       of a ref's row: when it was last written, as its database counts
//
// A page has sweepRows or 200 rows; a chain of retries is followed MaxRetryChain times.
package sqlstore
