// Package outcomes decides when the waiters of a process get a batch's outcomes: when an answer
// arrives here (Hub), or when a poll of the database finds one that another process has stored
// (Polls).
//
// Package sender delivers answers, and Wait and Drain of package outbox wait for them. It touches
// no database but through Polls.Read.
//
// The words:
//
//	received  of outcomes: they have arrived here, and may not be stored yet
//	source    where a batch's answer will be seen first
//	queued    of a batch: committed here, while this process sends, and not with the sender yet
//
// Hub.mu and Polls.mu are leaves; neither is held while the database is read.
//
// maxStoredOutcomes stored outcomes and maxQueued queued batches are in memory; the waiters of a
// process, and the outcomes that are not stored yet, without a bound of their own.
package outcomes
