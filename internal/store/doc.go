// Package store keeps the domain's rows in an SQL database. Store is its front: store/sqlite and store/postgres open one on
// their backend, and package node passes it to the packages of a server, each of which names the methods that it calls.
// Only cmd, package server and tests import the two backends.
//
// Store has the methods that session.Tx and the server's store interfaces name, each written once for both databases. Here
// are a transaction of a group and what is asked of the connection; the other methods are those of the packages below. Arrows go
// one way:
//
//	store      Update, Listen, Ping, Close, and the packages below in one
//	authority  refs, streams, shares, webhooks and the audit beside commits
//	upkeep     the care of the database by its servers and its operator
//	reads      what is shown of sessions; authority uses it too
//	txn        transactions, and the rows that they load and save; below the three above
//	dialect    statements for both databases, and what a backend implements; below txn
//
// Guarantees, the same for both databases and checked by store/storetest:
//
//   - A method that writes is one transaction: durable when it returns nil, without effect when it
//     returns an error (except for a connection lost during the commit: the result is unknown then,
//     and the ledger makes a retry harmless).
//   - A method that reads sees one snapshot, authority and rows together.
//   - Statements run in few round trips: they are queued and sent together.
//   - Nothing is retried here.
//
// Errors that callers can act on are faults: Unavailable (the database is unreachable, or took
// longer than the context's deadline), DiskFull, InUse, UnsafeStore, Incompatible (the schema is
// newer than this program), Canceled. Every other error is wrapped and counts as fault.Internal.
//
// All methods of Store are safe for concurrent use. The order of locks, in the process and in the database, is that of
// package txn; what bounds memory and work is said where it is: txn for loads, reads for pages, upkeep for pieces.
package store
