// Package peerconn is the connection runtime of packages rpc and capnweb: it reads, delivers, writes, pings, waits for slow
// peers, drains and ends. Each of them has a core, which knows its protocol and has no goroutine, socket or clock; their Conn
// holds a [Loop], which drives the core through [Codec]. Nothing else uses this package.
//
//	owner        the Conn that holds a Loop, and the core in it
//	batch        what is read or written at once: bytes, and where the messages in them end
//	chunk        a batch of up to ChunkBytes, or one larger message
//	task         a call or notification to be delivered
//	reader       the goroutine that reads, delivers what it has read and writes the answers
//	writer       the goroutine that writes what no other does
//	worker       a goroutine that Run waits for
//	urgent       of output: somebody waits for it, so it is written at once
//	held back    of output: the reader will write it when it has delivered
//	retired      of a writer: it does not run, since the connection is new or idle, and is started when it is needed
//	room         what callers wait for that have reached a limit
//
// # What the Loop decides, and the core
//
// A core appends messages and tasks to its [Output]; the Loop decides when they are written and delivered, and by which
// goroutine (read.go, write.go). The core decides what a message does, what is still unanswered, and which error an ending is
// for callers (Codec.Break). The differences between the two cores are: rpc handles a batch of many messages with the lock
// held; capnweb reads one message at a time and handles it without the lock, so it claims delivery before that
// (Loop.ClaimDelivery), and its delivery is taken for slow sooner (Config.RelieveDelivery). What a transport can do besides
// reading and writing is in the interfaces of transport.go; a Loop uses what there is.
//
// Each connection has one delivery goroutine at a time, and its tasks are in one queue. A goroutine of its own exists only
// while something is delivered that did not come from reading. Another reader takes over when a handler waits at a limit, when
// a write of the reader's takes long, and whenever the keepalive timer finds the reader delivering.
//
// # Slow peers and dead ones
//
// A peer that has been silent is pinged, and is dead if it does not answer. While something is being written to it there is
// no ping, which would wait behind that: a large message leaves in pieces, and as long as pieces leave the peer is reading,
// however slowly; if none leaves for as long as a ping and its answer may take, the peer is dead (keepalive.go). Over a
// transport that reports no pieces, a write as a whole has Timeouts.Write and a second for each 64 KiB. For that the system must
// not buffer much more than it can send (internal/socket). Bytes that it, or a proxy, has accepted may be on their way to the
// peer for long, and an answer to a ping comes behind them: it is given a second more for each 64 KiB. While our own reader is
// made to wait, or handles a message, an answer to a ping would not be read, and there is none.
//
// # Lock order
//
// The owner's lock guards the Loop, its Output and the core; LimitHits.mu may be taken under it. Nothing of a transport or of
// a program is called with it held. A step that has to wait for that is left to Codec.UnlockAndRun: the only way in which the
// Loop releases the lock.
//
// # Bounds
//
// A write that makes no progress ends the connection after Timeouts.Write; a silent peer after PingInterval and Ping, or up to 128 s
// later if 8 MiB were written shortly before; the last output may take Timeouts.Close. Output is bounded by the core, which
// makes callers wait (Loop.WaitForRoom). It is collected in memory of up to ChunkBytes that all connections share
// (output.go), so only what waits to be written takes any.
package peerconn
