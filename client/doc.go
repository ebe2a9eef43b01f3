// Package client is what an agent's author imports to keep a session on a
// Mooring server: Open a Client, get a Session from a sturdy ref, put ops into
// a Batch and Commit it. Commit returns when the batch is durable in the outbox,
// with or without a server; what waits there is sent in the background for as
// long as a Client is open, in this process or in any later one, and each op
// takes effect exactly once.
//
//	c, err := client.Open(ctx, client.Config{Home: dir})
//	s, err := c.Session(ctx, ref)
//	b := s.Batch()
//	first := b.Put("message/msg_1", map[string]any{"role": "user"})
//	b.Put("session", info).Expect(first.Field("cursor"))
//	ticket, err := b.Commit(ctx)      // durable now
//	results, err := ticket.Wait(ctx)  // answered by the server
//
// What goes through the outbox (Batch, Space.Create, Session.Share) works
// offline. Reading (Snapshot, Events, Subscribe, Describe, Refs) and the direct
// verbs (Revoke, BumpEpoch, Rotate, Space.Share) need the server: they go on over
// broken connections and other hosts of the ref for Config.RetryTimeout, Subscribe for as
// long as it runs.
//
// A ref that is used is kept in the outbox, together with what servers tell of it. If
// the same ref comes with another secret or another address than a server has confirmed,
// the new one is tried, and replaces the kept one only when a server has accepted it. So
// a mistyped copy of a ref displaces nothing, and a caller that knows no more than the
// ref's id can commit nothing under it.
//
// Every error of a verb has a code (fault.CodeOf), that of a driver or a link too. What the
// outbox does gives the errors of package outbox's table; what asks a server gives the server's
// word, Unavailable, Disconnected or Draining once Config.RetryTimeout is over, and Canceled when
// ctx ended. So the verbs are of these kinds:
//
//	Batch.Commit, CommitTx, Session.Put, Share      the outbox's errors of Commit
//	Ticket.Wait, Client.Drain, Batch.CommitWait     go on while the server or the outbox's database is away; NotFound, *outbox.Standstill
//	Client.Refs, Forget, Status, Session, Space,    the outbox's errors of Refs, DropRef, Status, PutRef and RefFor
//	  SessionByID, Open
//	Describe, Snapshot, Events, Subscribe, Follow,  the server's, and the outbox's where a ref is read or kept
//	  Refs, Audit, Revoke, BumpEpoch, Rotate, Save,
//	  Space.Share, Redeem, Attenuate, Verify
//	Results.Err, Of, ByID, Decode                   that an op was refused, with its reason's code; NotFound
//
// All methods of Client, Space, Session, Live, Ticket and Results are safe for
// concurrent use. A Batch and its Promises are for one goroutine and frozen by Commit:
// a verb that is called afterwards changes nothing, and the next Commit says so.
package client
