// Package upkeep is the care of a store's database: what its servers do beside commits (trimming and forgetting, measuring, pieces
// of forks and reverts, the record of who is running, probes), and what its operator asks for (the history's id, totals, the
// integrity check). Store has its methods; packages node and operator of a server call them, and cmd. It decides about
// nobody's authority.
//
//	to trim    to remove the start of a log, whose values the state has
//	to forget  to remove the rows of a session that was deleted long ago
//	piece      as much of a long removal as one transaction does
//	history    what commits belong to; a restored copy of a database begins another
//	replica    one of the servers that share a database
//	exempt     of bytes: stored before there was a quota (columns spared)
//	flaw       what the integrity check finds
//
// # Lock order
//
// That of package txn.
//
// # Bounds
//
// Each method takes how much one transaction does at most. CheckIntegrity lists at most maxFlaws flaws.
package upkeep
