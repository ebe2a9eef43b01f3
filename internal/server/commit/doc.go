// Package commit decides which batches share a transaction, and in which order: the group commit.
// decide.Commit decides the outcome of a batch.
//
// Package objects submits batches, and waits for a session's transaction before it opens a stream.
// This package writes, through Store, and tells the Publisher (the hub of package fanout) what it
// has committed; refusals and uses are counted in package admission.
//
//	submission  a batch, an acknowledgement or a direct commit, with the authority it came under
//	direct      a commit without an outbox: share, revoke, rotate, repeatable ops
//	group       the submissions of one transaction
//	run queue   the sessions with pending submissions, in the order of their turns
//
// # Lock order
//
// Committer.replyMu comes before Committer.mu, and before the locks of package fanout. Neither is
// held over a call of the store; replyMu is held while answers are given and events published.
//
// # Bounds
//
//	queue         Config.QueueOps, QueueBytes; one session has at most three quarters of each
//	transactions  Config.Transactions at once, and 4 more that are not answered yet
//	a group       Config.GroupOps, GroupBytes, or one submission that is larger
package commit
