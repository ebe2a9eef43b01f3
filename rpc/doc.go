// Package rpc is a two-party Cap'n Proto RPC vat, level 1: bootstrap, calls, promise pipelining, capabilities in both
// directions, embargoes, cancellation, and bounds on everything a peer can make it hold. It knows nothing of sessions. The
// comments of rpc.capnp are its specification, and each message of that file is found here by its name.
//
//	vat                one side of a connection: the objects of one program, and what it knows of the peer's
//	node               what a Ref points at: localCap, remoteCap, promiseCap or brokenCap
//	question, answer   a call of ours to the peer; a call of the peer to us
//	export, import     an object of ours that the peer may name; an object of the peer's that we may name
//	capTable           the capabilities that travel with a message; interface pointers in it are indexes into the table
//	embargo            new calls wait until earlier ones, which travel by way of the peer, have come back
//	lane               the calls that wait on one promise and came on one delivery goroutine
//	stranger           a peer that has not authenticated yet (package internal/intake)
//
// # API
//
// A [Ref] is a counted reference to an object of this vat, of a peer, or promised. [Ref.Call] sends a call and returns a
// [Promise] at once; [Promise.Cap] returns a reference to a capability in the answer before the answer has arrived, and
// calls on it are pipelined. An [Object] serves calls: it receives each [Call] on a delivery goroutine, where it must not
// block, and answers with [Call.Return] or [Call.Fail], at once or later from any goroutine. A [Conn] is a connection over
// a [Transport]; [Conn.Run] serves it until it ends. Interface pointers in messages are looked up in a [CapTable]. Calls
// fail with an [Exception]; [IsDisconnected] and its siblings test for its type. A [Flow] makes streaming calls in a window
// of bytes. (Flow and [Pipe] are for programs written on this package: Mooring's own schema has no streaming methods, and
// its errors have codes of their own.)
//
// Two calls on one reference are delivered in the order in which they were made, whatever the reference resolves to. There
// is no such guarantee between two references, even to one object, except between references to one path of one Promise.
//
// # The four tables
//
//	questions   our calls that the peer has not returned           number chosen by us    questions.go, promise.go
//	answers     the peer's calls, until returned and finished      number chosen by them  answers.go, call.go
//	exports     objects and promises of ours the peer may name     number chosen by us    exports.go
//	imports     objects and promises of the peer's we may name     number chosen by them  imports.go, remotecap.go
//
// A question is in its table until the peer's Return and our Finish. We send Finish right after the Return, if the Return
// needs one: all we keep of the results are imports, which are counted separately. A question is cancelled, by a Finish
// before the Return, when its Promise is released and no pipelined reference to its results and no call made on one is left.
//
// An answer is in its table until our Return and the peer's Finish; calls pipelined on it wait in it. A Finish before the
// Return cancels the call, unless something else waits for its results: a call pipelined on it, an object that was passed a
// promise of them, or a question of ours that takes its answer from them. Results with capabilities, and exceptions, are
// kept until the Finish. Calls pipelined on other results can only fail, so their Return says that it needs no Finish and
// they are dropped with it; a Finish that comes nevertheless is ignored, once (core.finishOptional).
//
// An export holds one count on its object, however often it was sent to the peer, and counts how often that was.
// An import counts how often it was received and returns the whole count in one Release when our last reference is
// released, or when it resolves.
//
// # Ownership
//
// A Ref is owned by the code that received it and is released once. Nodes are counted; a reference inside a message, a
// queue or a table is a count of its own. Functions named place are given messages in pooled memory, which is reused when
// they return. Received messages are never pooled: parameters and results stay valid for as long as they are referenced.
//
// # Messages
//
// Whole messages are made, read and copied in internal/wire; their fields are read and written here, by the code that acts on
// them. The generated code does that, except for plain messages (a Call on an export or a Return with results, in one segment and
// without capabilities), which nearly all are: reading and writing these pointer by pointer would cost more than all the rest of
// a call. Both ways end in acceptCall or acceptReturn, and a fuzzer compares what they read. Programs can read the content of
// plain messages without the generated code too (PlainParams, PlainResults; package internal/capnpfast).
//
// # Core and loop
//
// The core (core.go and the files of the tables) has no goroutine, socket or clock: messages and actions go in, messages and
// deliveries come out, under one lock. testdata has transcripts of it. Around it runs the loop of internal/peerconn, which codec
// fits it into (conn.go): it reads, delivers, writes, pings, finds out who is dead and ends. The reader handles all messages of a
// batch before it delivers, and writes the answers to the calls it has delivered; a Finish after a Return, a Release and what
// Call.ReturnLazily answers leave with the next message, or 20 ms later. Before a reader parks it polls its socket for a moment, while that pays, and its reads
// and writes bypass the scheduler where they can (internal/socket). Byte streams have no pings: on them the system itself detects
// a dead peer.
//
// Each connection has one delivery goroutine at a time, and its deliveries (calls, notifications, disembargoes on their
// way back) are in one queue. Order follows from that queue, from the wire, and from three rules:
//
//   - A promise of this vat sends on the calls that wait on it on the delivery goroutine they came on, and only then
//     announces to the peer what it has resolved to (promisecap.go).
//   - An import that turns out to be an object of ours, or is named as ours though it is the peer's, holds calls back until
//     a Disembargo has gone round behind the earlier ones and the calls held back are handed over (remotecap.go,
//     disembargo.go).
//   - A call targeted at a promise goes where the promise went, step by step, never by a short cut.
//
// Until a promise has sent on all its calls, its resolution is not visible: not to the calls of other connections, and not
// to a peer that is given the promise meanwhile, which still receives it as a promise. So order is kept through vats in
// between (hops_test.go).
//
// Below it are internal/table (the data structures of the tables), internal/wire (whole messages), internal/transport (the
// WebSocket, the byte stream and the pipe), and below the last two internal/framing (where a message ends, before anything is
// allocated for it).
//
// # Lock order
//
//	Conn.mu, then Promise.mu or Call.mu; Conn.mu or Promise.mu, then promiseCap.mu; Flow.mu alone
//
// Nothing is locked under Call.mu, promiseCap.mu or the lock of a serialqueue.Queue, and two connections' locks are never
// held together: a promise's resolution, and counts, are atomic. A step that needs another lock, a program's code or a
// context leaves that in core.drops, core.cancels, core.afterUnlock or core.out.Tasks, to be done when the lock is free
// (Conn.unlockAndRun). No code of a program runs under any lock, except Config.Trace. Its panics are logged, and go no
// further (call.go).
//
// # Bounds
//
// [Limits] names every bound and what happens at it: our calls wait, the peer's are answered overloaded, and a peer that
// goes on regardless is disconnected. Strangers have much lower bounds (intake.go). A call that waits at a bound waits in
// [Ref.Call]; deliveries never wait.
package rpc
