// Package writer decides which writes to an outbox share a transaction, and which seqs they get in it.
//
// Packages outbox, sender and lease submit Jobs to the one Writer of a Box: commits, outcomes, seqs. It touches the
// database through the sqlstore.Database that it is given, and nothing else.
//
// The words:
//
//	job     a part of a transaction
//	lazy    of a job: it waits a while for others to go with, and is tried again until it succeeds
//	stream  of a job: the session whose lazy jobs are written in order; of seqs: a session's seqs
//	term    one holding of the lease; only within one are there seqs to allocate
//	probe   how a transaction finds out whether the lease is this Box's
//
// Writer.mu is released while a transaction runs and while its jobs' Done functions are called; they
// may take Seqs.mu, which is a leaf.
//
// A transaction has maxGroupJobs jobs; MaxLazyJobs lazy jobs, or Config.Delay, are waited for.
package writer
