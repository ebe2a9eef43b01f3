// Package rpc is a two-party Cap'n Proto RPC vat, level 1: bootstrap, calls, promise pipelining, capabilities both ways,
// embargoes, cancellation, and bounds on everything a peer can make it hold. It knows nothing of sessions. The comments
// of rpc.capnp are its specification, and each of that file's messages is found here by its name.
//
// # What a program sees
//
// A [Ref] is a counted reference to an object of this vat, of a peer, or promised. [Ref.Call] sends a call and gives a
// [Promise] at once; [Promise.Cap] gives a reference to a capability in the answer before the answer is there, and
// calls on it are pipelined. An [Object] serves calls: it gets each [Call] on a delivery goroutine, where it must not
// block, and answers with [Call.Return] or [Call.Fail], at once or later from anywhere. A [Conn] is a connection over a
// [Transport]; [Conn.Run] serves it until it ends. Interface pointers in messages go through a [CapTable] beside them.
// Calls fail with an [Exception], whose kind [IsDisconnected] and its siblings tell. A [Flow] makes streaming calls in a
// window of bytes. (Those two, and [Pipe], are for programs that are written on this package: Mooring's own schema has no
// streaming methods, and its errors have codes of their own.)
//
// Two calls on one reference are delivered in the order in which they were made, whatever it turns out to be. There is
// no such promise between two references, even of one object, but for those of one path of one Promise.
//
// # The four tables
//
//	questions   our calls that the peer has not returned      number chosen by us    questions.go, promise.go
//	answers     the peer's calls, until returned and finished number chosen by them  answers.go, call.go
//	exports     things of ours that the peer may name         number chosen by us    exports.go
//	imports     things of the peer that we may name           number chosen by them  imports.go, remotecap.go
//
// A question is in its table until the peer's Return and our Finish. We send Finish right behind the Return, if that needs
// one: what we keep of the results are imports, counted on their own. A question is given up, by a Finish before the
// Return, when its Promise is released and neither a pipelined reference to its results nor a call made on one is left.
//
// An answer is in its table until our Return and the peer's Finish; calls pipelined on it wait in it. A Finish before the
// Return cancels the call, unless somebody else waits for its results: a call pipelined on it, an object that was passed a
// promise of them, or a question of ours whose answer they are to be. Results with capabilities, and exceptions, are kept
// until the Finish. All that can be asked of other results is to fail, so their Return says that it needs no Finish and they
// are gone with it; one that comes nevertheless is ignored, once (nofinish.go).
//
// An export holds one count on its object, however often the peer was told of it, and counts what the peer was told.
// An import counts what we were told and gives it all back in one Release when our last reference goes, or when it resolves.
//
// # Who owns what
//
// A Ref is owned by whoever got it and is released once. Nodes (what Refs point at: localCap, remoteCap, promiseCap,
// brokenCap) are counted; a reference inside a message, a queue or a table is a count of its own. place functions get
// messages in pooled memory that are gone when they return. Received messages are never pooled: parameters and results
// stay valid for as long as they are kept.
//
// # Envelopes
//
// What rpc.capnp puts around parameters and results is read and written by the generated code, but for what nearly all
// messages are: calls on an export and results, without capabilities. These are written from a template (envelope.go) and
// read at their places (plain.go): pointer by pointer that would cost more than all the rest of a call. A message that is
// unusual in any way goes the other way, to the same rules: both end in acceptCall or acceptReturn, and a fuzzer holds what is
// read in one way to what is read in the other. Programs can read the content of such messages
// by hand too (PlainParams, PlainResults; package internal/capnpfast), with the generated code for what is unusual there.
//
// # Core and loop
//
// The core (core.go and the files of the tables) has no goroutine, socket or clock: messages and actions go in,
// messages and deliveries come out, under one lock. testdata tells in transcripts what it says to what. Around it run
// a goroutine that reads and delivers, one that writes all that waits in one go, and a timer that pings. A goroutine for
// delivering alone exists only while something is delivered that did not come out of reading; a second reader takes
// over when a handler, or a write of the reader's own, makes the first one wait. The
// reader writes the answers to what it has delivered itself, and if they are many the first before it has delivered the
// last; a Finish behind a Return and a Release leave with the next message, or 2 ms later (write.go). Before a reader
// parks it asks its socket for a moment, while that pays, and what it reads and writes goes past the scheduler where it can
// (internal/socket).
//
// Each connection has one delivery goroutine at a time, and what it delivers (calls, notifications, disembargoes going
// back) is in one queue. Order follows from that queue, from the wire, and from three rules: a promise of this vat lets
// go of what waits on it on the delivery goroutine it came on, and only then tells the peer what it is (promisecap.go); a
// thing of the peer that turns out to be ours, or is named as ours though it is the peer's, holds calls back until a
// Disembargo has gone round behind the earlier ones and what it has held is handed over (remotecap.go, disembargo.go); what
// is targeted at a promise goes where the promise went, step by step, never by a short cut. Until a promise has let go of
// all, nobody learns what it is: not the calls of other connections, and not a peer that is given it meanwhile, to which it
// is a promise still. So the order holds through vats in between (hops_test.go).
//
// # Dead peers and slow ones
//
// A peer of which nothing is heard is pinged, and found dead when it does not answer. While something is being written to it
// there is no ping, which would wait behind that: a large message leaves in pieces, and as long as it goes on the peer takes it
// in, however slowly; if it does not go on for as long as a ping and its answer may take, the peer is dead (Conn.startKeepalive).
// For that the system must not take in much more than it can send, and on byte streams, which have no pings, it looks after
// the peer itself (internal/socket).
//
// # Lock order
//
//	Conn.mu, then Promise.mu or Call.mu; Conn.mu or Promise.mu, then promiseCap.mu; loop.mu alone
//
// Nothing is locked under Call.mu or promiseCap.mu, and two connections' locks are never held together: what a promise has
// resolved to, and counts, are atomic. What a step needs of another lock, of a program's code or of a context it leaves in
// core.drops, core.cancels, core.afterUnlock or core.todo, to be done when the lock is free (Conn.unlockAndRun). No code of a program
// runs under any lock, but for Config.Trace. What it panics with is logged, and goes no further (panics.go).
//
// # Bounds
//
// [Limits] names every bound and what happens at it: our calls wait, the peer's are answered overloaded, and a peer that goes
// on regardless is cut off. Of a stranger much less is taken in (intake.go). A call that waits at a bound waits in [Ref.Call]; deliveries never wait.
package rpc
