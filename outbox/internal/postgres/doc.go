// Package postgres keeps outboxes in a Postgres database: any number, by name, beside other tables.
// The outboxes of one process on one pool share a connection that listens, and their transactions
// are committed in groups.
//
// Package outbox opens it, and calls it as a sqlstore.Database.
//
// pools is held while a pool is made, which may connect; Listeners, TxBatchers and TxBatcher.Mu are
// leaves. A transaction has at most MaxTxParts parts and MaxTxBytes bytes, MaxConcurrentTx run at a
// time, and a part that is stuck holds up others for StallTimeout at most.
package postgres
