// Package objects decides what a call may do. It serves the objects of capnp/mooring.capnp (gateway,
// space, session, stream) to peers over rpc connections and over Cap'n Web, and to HTTP
// handlers in this process.
//
// Package node makes the Service and hands each connection's calls to its gateway; packages share,
// web and httpapi restore a Capability through a Caller. This package reads and writes the rows of
// the Store under the authority of each call (package authority); package codec converts the
// arguments and results of calls over the wires. It knows no sockets, listeners, HTTP or JavaScript.
//
// An op passes through one file per step: stream.go takes a batch and queues it; package commit
// groups the pending batches of all connections into one transaction, in which decide.Commit
// decides everything, and answers; package fanout delivers the committed events to subscribers,
// here and on the other replicas, and sends the state.
//
// service.go is what the objects of all connections share. gateway.go, space.go (with manage.go and
// older.go) and sess.go (with reads.go, sess_follow.go, children.go and webhooks.go) are the objects
// of the schema, and answer.go answers their calls. share.go, save.go, revoke.go and refs.go change
// and list authority. inproc*.go serve the objects to HTTP handlers.
//
// Tests that need a running server are those of package node.
//
//	ref           sturdy ref: an id and a secret that grant access to a session or a space
//	grant         the stored row of a ref: rights, limits, parent, revocation
//	outbox        a client's queue of ops, known by a secret
//	stream        the right to send the batches of one outbox to one session
//	direct        a commit without an outbox: share, revoke, rotate, repeatable ops
//	turn          a message that is being streamed, under a lease
//	handler       an HTTP handler in this process that uses Caller and Capability
//
// # Lock order
//
// stream.mu comes before the committer's mutex; savedRefs.sem, which is held over transactions,
// before every mutex. All other mutexes are leaves within this package. No mutex is held over a
// call of the store or of a sink. decide.Commit calls the quota of package operator and the audit
// of package admission inside a transaction.
//
// # Bounds
//
//	one stream      ConnLimits.Batches unanswered
//	one connection  ConnLimits.Subscriptions, Snapshots; InFlight bytes in flight to them
//	one message     Config.MessageBytes; a batch stands for no more than session.Limits has
//	commit queue    commit.Config: QueueOps, QueueBytes; in one transaction GroupOps, GroupBytes
package objects
