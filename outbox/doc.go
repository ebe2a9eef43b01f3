// Package outbox is the client's durable queue of op intents and the loop that
// sends them.
//
// Commit puts a batch of ops into a database, SQLite (a file) or Postgres, and
// returns when it is durable; no server is needed for that. Any number of
// processes may commit to one outbox. Whichever of them runs Run and holds the
// outbox's lease sends: it gives out seq per session, durably, before the first
// send, keeps several batches of each session in flight, stores the outcomes
// that come back and tells whoever waits for them. All else follows from the
// ledger on the server, which makes every repetition harmless:
//
//   - A batch is never split, merged or reordered. What was sent once is sent
//     again as the same bytes until its outcome is stored.
//   - Persist before send: seq, references replaced by values, and voids are in
//     the database before the server can see them.
//   - Outcomes are acknowledged to the server only once they are stored, and
//     never past an op that an unfinished one refers to.
//   - One process sends. A takeover raises the incarnation, which fences the
//     former holder here (its transactions find another incarnation) and on the
//     server. So does a Drop of what was sent: only then is the server's last seq
//     final, and tells what becomes a void and what stands.
//
// # Order
//
// Batches of a session are sent in the order in which they became durable. So
// each committer's order is kept: a batch whose Commit returned, or whose
// transaction committed, before the next one began, goes first; batches of one
// Postgres transaction keep the order of their calls. Transactions that overlap
// have no order between them, and none waits for another: a row that becomes
// visible late, with a lower number than rows already sent, is found all the
// same, because the sender looks for rows without a seq and not for rows beyond
// the last one.
//
// # Errors
//
// Every error of a verb has a code (fault.CodeOf): none is a driver's alone, though that is
// in its chain. Any verb may give
//
//	Canceled       the context ended, or the Box was closed
//	Unavailable    the database is away, starts again, cut the connection, or is kept locked by
//	               another process: nothing was done, and the same call may be made again
//	DiskFull       no space left; of what writes
//	OutboxDamaged  the file, or a row that the verb needs, is damaged
//	BadArgument    the file cannot be read or written (its message says why)
//	Usage          the verb does not apply (its message says why)
//	Internal       what nobody thought of
//
// and beside that, each what it says of itself:
//
//	OpenSQLite, OpenPostgres, NewPostgres   UnsafeStore, Incompatible, NotFound
//	Commit, CommitTx, Retry                 Malformed, TooLarge, BadReference, BadArgument, NotFound, UnknownRef, Ambiguous,
//	                                        AlreadyExists, OutboxFull. Unavailable may leave it open whether the batch is there:
//	                                        then it names the id to commit it again under
//	Wait                                    NotFound, *StreamStoppedError; never Unavailable
//	Drain                                   *StreamStoppedError; never Unavailable
//	Drop                                    NotFound
//	PutRef, ConfirmRef                      BadRefText, AlreadyExists
//	Ref, RefFor                             NotFound, Ambiguous
//	Abandon, NewLog, PlanReconcile          NotFound
//	Reconcile                               NotFound, InUse
//	Fence                                   NotFound, and what the server refuses
//	DropRef                                 InUse
//	BeginRotation                           BadRefText, NotFound
//	Run                                     Canceled of a closed Box, and nothing else
//	Status, Queue, List, Refs, Sessions, Stopped, FinishRotation, AbandonRotation, Rotations, Close
//
// Wait and Drain go on while the database is away, and so does Run.
//
// # How it is built
//
// commit.go is how a batch comes in. lease.go decides who sends. machine.go is the
// logic of queues and streams, without database, clock or socket, with opening.go and
// refused.go for what can go wrong; run.go is the loop around it, and sending.go its
// transactions. worker.go has one transaction at a time written: what Commits,
// outcomes and seqs have gathered goes into one; seqalloc.go knows which seq is next.
// restart.go gives up a stream that cannot go on and begins another for its session,
// fence.go keeps what is on its way there from arriving late, and reconcile.go plans what
// goes out there of what the session lacks, without a database. sweep.go removes
// what is old. tables.go holds the SQL that both databases share, sqlite.go and
// postgres.go what differs. txbatch.go makes one transaction of those that many outboxes of
// a process have for one Postgres at the same time.
package outbox
