// Package relay stands between opencode and a server: it is the share server that opencode's config names, on this machine, and commits
// what opencode sends to the local outbox, from which it is replayed. opencode sends each change once and drops what it cannot deliver; here
// everything is answered at once, also while the real server is away. A program that has a client open can run a Relay inside it: New, ServeHTTP,
// Run.
//
// Each share is a session of its own on the server, made by a batch of the outbox under the space's ref that the relay was given: the create,
// and a ref with a public id (capability.PublicID), which is why the link is known before the server has heard of it. A sync is batches of puts
// with the argument sync, by which the server does what it does with a sync of its own share API (session/decide/syncrevert.go). The end of a share
// is a revoke of that ref.
//
// # What is durable when
//
//	create   the share's file, then the batch, then the answer. A file whose batch is not in the outbox is removed at the next start:
//	         nobody was answered
//	sync     its batches, in the order in which the syncs began, then the answer
//	DELETE   the file says that the share has ended and which batch says so to the server, then the answer. That batch is committed before
//	         it if there is room for it in the outbox, else as soon as there is. At a start it is committed again under its id, which
//	         changes nothing if it is there
//
// On a full disk an end is answered with an error, as it may be forgotten by a crash; else it is brought about too when there is room. A start
// commits nothing and needs no room: Run does what was left.
//
// What opencode sends while no relay runs is lost to it: opencode does not repeat it. If the relay is told where opencode's own API is, it reads
// every living share's session there at each start, and after each sync that was answered with an error, and commits what differs
// (catchup.go); not what is too large for a session, which the share says that it lacks. So that this is little, a file beside the share's has
// the keys that were put with hashes of their values (package putkeys).
//
// A session that mooring attach records with the same home folder is shared as it is recorded there, and not recorded a second time (tied.go).
//
// Words:
//
//	share     one of opencode's sessions, under a public id
//	secret    what opencode shows with each sync; its hash is stored
//	tied      of a share: its session is one that attach records
//	catch up  to read a session from opencode itself, since something may have been missed
//
// # Lock order
//
// Relay.creating, a share's turn (writequeue), share.mu and Relay.mu, in this order; the last is a leaf. share.mu is held while the share's file
// is written, Relay.creating and a turn during commits and requests as well.
//
// # Bounds
//
//	a sync's body           512 MiB (maxBody), read as a stream
//	one item                32 MiB (syncbody.MaxBuffered); one value what a session takes (4 MiB)
//	memory of requests      256 MiB (memoryBytes), beyond: they wait
//	syncs at once           8 (maxSyncs), beyond: they wait
//	living shares           10,000 (maxShares)
//	secrets of a share      16 (maxSecrets), beyond: the oldest is forgotten
//	ended shares            forgotten after 30 days (keepEnded), daily
//	keys in memory          those of the living shares that have had a sync since they were last compared with opencode
//	what waits to be sent   the outbox's limits
package relay
