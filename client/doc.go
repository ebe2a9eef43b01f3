// Package client is what an agent's author imports to keep a session on a Mooring server: Open a Client, get a Session from a
// sturdy ref, put ops into a Batch and Commit it. Commit returns when the batch is durable in the outbox, with or without a
// server. Queued batches are sent in the background while a Client is open, in this process or a later one, and each op takes
// effect exactly once.
//
//	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(dir)})
//	s, err := c.Session(ctx, ref)
//	b := s.Batch()
//	first := b.Put("message/msg_1", map[string]any{"role": "user"})
//	b.Put("session", info).Expect(first.Field("cursor"))
//	ticket, err := b.Commit(ctx)      // durable now
//	results, err := ticket.Wait(ctx)  // answered by the server
//
// Writes that go through the outbox (Batch, Space.Create, Session.Share) work offline. Reads (Snapshot, Events, Subscribe,
// Describe, Refs) and the direct verbs (Revoke, BumpEpoch, Rotate, Space.Share) need the server: they are retried over broken
// connections and the ref's other hosts for Config.RetryTimeout, Subscribe for as long as it runs.
//
// A ref that is used is saved in the outbox, together with its status as servers report it. If the same ref is given with another
// secret or address than a server has confirmed, the new one is tried, and replaces the saved one only when a server has accepted
// it. A mistyped copy of a ref therefore displaces nothing, and a caller that knows only the ref's id can commit nothing under
// it.
//
// Every error of a verb has a code (fault.CodeOf), including errors of a database driver or a connection. Errors from the outbox
// are those of package outbox's table. A verb that asks a server returns the server's error; Unavailable, Disconnected or
// Draining once Config.RetryTimeout is over; and Canceled when ctx ended. By verb:
//
//	Batch.Commit, CommitTx, Session.Put, Share      the outbox's errors of Commit
//	Ticket.Wait, Client.Drain, Batch.CommitWait     go on while the server or the outbox's database is away; NotFound, *outbox.StreamStoppedError
//	Client.Refs, Forget, Status, Session, Space,    the outbox's errors of Refs, DropRef, Status, PutRef and RefFor
//	  SessionByID, Open
//	Describe, Snapshot, Events, Subscribe, Follow,  the server's, and the outbox's where a ref is read or saved
//	  Refs, Audit, Revoke, BumpEpoch, Rotate, Save,
//	  Space.Share, Redeem, Attenuate, Verify
//	Results.Err, Of, ByID, Decode                   that an op was refused, with its reason's code; NotFound
//
// The structs of this package are no JSON formats: encoding/json would write payloads and hashes as bytes, and leaves out what is
// not exported. The JSON of a server's HTTP API, and of the command line, has forms of its own.
//
// All methods of Client, Space, Session, Live, Ticket and Results are safe for concurrent use. A Batch and its Promises are for
// one goroutine and are frozen by Commit: a verb called afterwards changes nothing, and the next Commit reports it.
//
// Words:
//
//	ref         sturdy ref: an id, a secret and the hosts of its server; grants rights on one session or space
//	space       a container of sessions, created under its root ref
//	op          one change of a session; has an id, an outcome and, if it applied, a result
//	batch       ops of one session that become durable together in the outbox
//	ticket      names a committed batch, to wait for its outcomes
//	cursor      number of an event in a session's log, from 1
//	cut         the cursor after which nothing commits under a revoked ref
//	confirmed   of a saved ref: a server has accepted its secret at its address
//	live        of a capability: bound to one connection, as against a sturdy ref
//
// # Lock order
//
// Client.mu, then the locks of package serverconn, which has an order of its own. The mutexes of the sinks are leaves. No mutex is
// held during a call to the outbox or to a handler of the caller's.
//
// # Bounds
//
//	confirmed refs in memory           10,000 (maxConfirmed)
//	deliveries queued by Subscribe     the server's window, then the connection's limit on unanswered calls
//	ops queued, batches in flight      the outbox's (package outbox)
//	a server's connection              those of package serverconn
package client
