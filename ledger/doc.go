// Package ledger holds the outcome rules: what is recorded of an op intent that arrives on a
// stream. It decides next, duplicate, gap, fence and prune on rows that its caller has read
// under lock; it knows no database, no clock, no wire and no session content.
//
// A call runs CheckBatch, Admit, Decide and AckThrough, in this order, on one Stream and its
// History, and the caller stores the result in one transaction.
//
//	op intent    one durable call (Intent), before it has an outcome
//	batch        intents of one session with consecutive seqs, decided as a whole
//	stream       the server's row for one (session, outbox)
//	seq          an op's number in its stream, from 1
//	incarnation  the number of an outbox's sending process; a higher one fences lower ones
//	outcome      the final record of one op, repeated to every duplicate
//	record       the outcomes of one batch: one row, until pruned
//	acked        stored by the client, so that the record may be pruned
//	void         the op that fills the seq of a dropped op
//	reference    an argument that is a part of an earlier op's result
//
// docs/design.md defines them at length.
//
// # Lock order
//
// The package has no locks. The caller holds the stream's row lock throughout; a Stream, a
// History and a Decide with its Effects are used by one goroutine at a time. The other
// functions are safe for concurrent use.
//
// # Bounds
//
//	Limits           ops and argument bytes of a batch, bytes of an argument
//	MaxFrameOps      ops of a batch that can be recorded as too large
//	MaxExternalRefs  ops of other batches that one batch refers to
//	other constants  arguments, dependencies, names and paths of an op; messages; JSON nesting
package ledger
