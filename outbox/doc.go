// Package outbox is a durable client-side queue of op intents and the loop that sends them.
//
// Commit writes a batch of ops to a database, SQLite (a file) or Postgres, and returns when it
// is durable; it needs no server. Any number of processes may commit to one outbox. The process
// that runs Run and holds the outbox's lease sends: it allocates seqs per session, durably,
// before the first send, keeps several batches of each session in flight, stores the outcomes
// that come back and notifies the waiters. The ledger on the server makes every repetition
// harmless; the rest follows:
//
//   - A batch is never split, merged or reordered. Once sent, it is sent again as the same
//     bytes until its outcome is stored.
//   - Persist before send: seqs, references replaced by values, and voids are in the
//     database before the server can see them.
//   - Outcomes are acknowledged to the server only once they are stored, and never past an
//     op that an unfinished op refers to.
//   - One process sends. A takeover raises the incarnation, which fences the former holder
//     here (its transactions find another incarnation) and on the server. So does a Drop of
//     an op that may have been sent: only then is the server's last seq final, and decides
//     which ops become voids and which stand.
//
// The words, as the code uses them:
//
//	batch        ops of one session, committed and sent as a whole
//	seq          an op's number in its stream; a row is unsequenced until it has one
//	stream       a session's ordered queue of batches, at its server
//	lease        the database row that decides which Box sends; a term is one holding of it
//	incarnation  the number that a takeover raises, and that fences older senders
//	outcome      the ledger's final record of an op; finished: the outcome is stored
//	void         the op that fills the seq of a dropped op
//	route        the refs through which a stream is opened
//	stopped      a stream that sends nothing until someone decides
//
// # Order
//
// Batches of a session are sent in the order in which they became durable. So each committer's
// order is kept: a batch whose Commit returned, or whose transaction committed, before the next
// one began, goes first; batches of one Postgres transaction keep the order of their calls.
// Overlapping transactions have no order between them, and none waits for another: a row that
// becomes visible late, with a lower number than rows already sent, is still found, because the
// sender reads rows without a seq, not rows beyond the last one.
//
// # Errors
//
// Every error of a method has a code (fault.CodeOf); a driver's error is in its chain, never
// alone. Any method may return
//
//	Canceled       the context ended, or the Box was closed
//	Unavailable    the database is away, starts again, cut the connection, or is kept locked by
//	               another process: nothing was done, and the same call may be made again
//	DiskFull       no space left; only from methods that write
//	OutboxDamaged  the file, or a row that the method needs, is damaged
//	BadArgument    the file cannot be read or written (the message says why)
//	Usage          the method does not apply (the message says why)
//	Internal       anything unforeseen
//
// and in addition:
//
//	sqliteoutbox.Open, pgoutbox.Open, New   UnsafeStore, Incompatible, NotFound
//	Commit, CommitTx, Retry                 Malformed, TooLarge, BadReference, BadArgument, NotFound, UnknownRef, Ambiguous,
//	                                        AlreadyExists, OutboxFull. Unavailable may leave it open whether the batch is there:
//	                                        then it names the id to commit it again under
//	Wait                                    NotFound, *StreamStoppedError; never Unavailable
//	Drain                                   *StreamStoppedError; never Unavailable
//	Drop                                    NotFound
//	PutRef, RefAnswered                     BadRefText, AlreadyExists
//	Ref, RefFor                             NotFound, Ambiguous
//	Abandon                                 NotFound
//	Reconcile                               NotFound, InUse, and the server's refusals
//	DropRef                                 InUse
//	Rotate                                  BadRefText, NotFound, and what its ask returns
//	Run                                     Canceled of a closed Box, and nothing else
//	Status, Queue, List, Refs, Sessions, Stopped, Rotations, Close
//
// Wait, Drain and Run go on while the database is away.
//
// # How it is built
//
// box.go opens a Box and has its Run; commit.go commits a batch. restart.go gives up a stream that cannot go on and begins another
// for its session, and reconcile.go sends again what a session lacks: reconcile_plan.go plans that, without a database.
//
// Below, each imports only those after it:
//
//	internal/sender                     the loop that sends, while this Box has the lease
//	internal/lease                      which Box sends
//	internal/outcomes                   when waiters get a batch's outcomes
//	internal/writer                     which writes share a transaction, and which seqs they get
//	internal/sqlite, internal/postgres  the two databases, their connections and group commit
//	internal/sqlstore                   the SQL that both share
//	internal/refs                       by which refs a batch is sent, and what counts about them
//	internal/machine                    what is sent when, without database, clock or socket
//	internal/intent                     a batch as it is stored
//
// # Lock order
//
// DB.Mu (of the two databases) is the outermost lock: it is held while a transaction writes, and the
// transaction's jobs take leaf locks inside (WriterLock.mu, Seqs.mu, Cache.mu).
// The lock of package postgres's pools is held while one is made, which may connect. All other mutexes are leaves, held for a few
// statements and never across a database call, a Link or a callback; Writer.mu is released
// while a transaction runs and while its jobs' Done functions are called. The machine has no
// lock: the goroutine that has the loop's turn uses it.
//
// # Bounds
//
//	Limits       ops and argument bytes of a batch, bytes of an argument; an outbox's
//	             unfinished ops and their bytes
//	Window       a stream's batches in flight and their bytes; a Box's open streams
//	seqs         a stream's batches committed with seqs: at most machine.WindowsAhead windows
//	references   ledger.MaxExternalRefs a batch, MaxRetryChain retries each
//	transaction  512 jobs (package writer); on Postgres MaxTxParts parts or MaxTxBytes
//	waiting      writer.MaxLazyJobs lazy jobs, or Config.AckDelay, until they are written
//	outcomes     512 stored ones and 4,096 queued batches in memory (package outcomes)
//	connections  Config.Connections a Postgres URL; one writer and maxReaders on SQLite
//	tickets      Config.Retention, then swept in pages of SweepRows
//
// The refs of an outbox, its streams with unfinished rows and the waiters of a process are held
// in memory without a bound of their own.
package outbox
