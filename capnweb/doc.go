// Package capnweb speaks Cap'n Web, the JSON object-capability protocol of the npm package capnweb, versions 0.4.0 to
// 0.12.0, as a server and as a client, over WebSocket and in HTTP batches: calls and promise pipelining, callbacks, maps,
// streams, and bounds on everything a peer can make it hold. It knows nothing of sessions.
//
// # What a program sees
//
// A [Stub] is a counted reference to something to call: of the peer, of this side, or of another connection. [Stub.Call]
// gives a [Promise] at once, on which calls can be pipelined before its result is there; [Promise.Await] asks for the
// result, and what is never awaited is never sent. An [Object] serves calls: it gets each [Call], and answers by
// [Call.Return] or [Call.Fail], at once or later from anywhere; [NewMethods] and [Func] make one of Go functions, whose
// arguments are converted and checked. A [Conn] is a connection over a [Transport]; [Conn.Run] serves it until it ends.
// [Handler] serves WebSockets and batches over HTTP, [Dial] opens a WebSocket, [NewBatch] collects calls for one POST.
//
// # Values
//
// What travels is JSON with arrays escaped ([[…]]) and every other array a tagged expression. In Go a value is one of
//
//	nil                  null
//	Undefined            undefined
//	bool, string         themselves
//	float64              a number, NaN and the infinities included; on sending every Go integer type too, if it is exact
//	*big.Int             bigint
//	time.Time            a Date, in milliseconds; the zero time is an invalid Date
//	[]byte               Uint8Array; Bytes for other containers
//	URL, Headers, *Request, *Response, *Blob, *Error
//	[]any                an array
//	map[string]any       an object
//	*Stub, *Promise      something of the other side, or of this one, to call
//	Object, func         on sending: exported as a stub (functions as Func takes them)
//	*Readable, *Writable streams
//
// and on sending also structs (fields by their json tags), maps with string keys, slices and pointers of these. Values
// that come in may be shared between calls: they are read, not changed. A promise in a value is waited for before the
// value is delivered, and its result is in its place.
//
// # The two tables
//
//	exports   what the peer may name: results of its pushes, under positive ids that it counts up; stubs and promises
//	          that we sent, under negative ids that we count down; our main object, 0          exports.go
//	imports   the same seen from the other side: results of our pushes, what the peer sent us,
//	          its main object                                                                 imports.go
//
// No id is used twice. A stub that is sent again is exported anew: what the npm package gives back is one count for each
// id, however often it was told of it. Of what we import we count how often we were told, and give it all back in one
// release, when our last reference goes. A promise is given back as soon as it is resolved.
//
// A push is evaluated when it comes (eval.go) and its result is what can be pipelined on; a pull asks for it, and is
// answered once. What is wrong in an expression, and every id or count that cannot be, is a broken rule: the peer is told
// in an abort, and the connection closed with 3000.
//
// # Who owns what
//
// A Stub or Promise of a program is released once, by it. What is in a value belongs to the value (payload.go): stubs in
// arguments go when the call is answered, those in a result when its Promise is released; Dup what is to live longer.
// What a program sends as an argument is duplicated, what it returns is taken over. An [Object] that is a [Releaser] is
// told once that nobody holds it any more, after the last reference on any connection and in this process.
//
// Stubs point at nodes (node.go): an object here (local.go), a thing of a peer (imports.go), or a future (future.go), which
// is what a result is before it is known and after. What is asked of a future before it is known waits in it, in order.
// Nodes are counted. Nothing may come to lead to itself, or to a value that holds it: that is found out when a future
// becomes known (link.go), and is an error.
//
// # Order
//
// Messages are taken in one by one. What comes of one is delivered when all of it is in the tables, before the next is
// looked at: calls in the order in which they came (but for those inside one object of a message: its members have no
// order), and never two of one connection at a time. A call whose arguments hold promises waits for them alone, and later
// ones overtake it, as they do in the npm package. Calls on a promise are let go in order before later ones; who learns
// what it came to, by its answer or as an argument of a later call, learns it behind them. No such order is kept with who
// was given a stub of a promise and calls it before that is known. Calls that wait when their connection ends fail. A handler
// that does not return soon, though it must not block, gets another reader behind it: answers that it may be waiting for
// are heard, and calls wait.
//
// There is no disembargo in Cap'n Web: when a promise of the peer turns out to be an object of this side, calls on
// it go there at once, and may overtake earlier ones that are still on their way round.
//
// # Core and loop
//
// The core (core.go, exports.go, imports.go, eval.go, encode.go, remap.go) has no goroutine, socket or clock: a message
// goes in, messages and deliveries come out. testdata tells in transcripts what it says to what. Around it run a
// goroutine that reads and delivers, one that writes all that waits in one go, and a timer that pings (run.go, write.go).
// A goroutine for delivering alone exists only while something is delivered that did not come out of reading. The reader
// writes the answers to what it has delivered itself; a release leaves with the next message, or 2 ms later.
//
// # Lock order
//
//	Writable.mu and pipe.mu, then Call.mu, then Conn.mu
//	linkMu, then future.mu or payload.mu
//	future.mu and line.mu, then Conn.mu or the lock of strays
//	settlement.mu and releasers.mu alone
//
// Two connections' locks are never held together, and no code of a program runs under any lock, but for Config.Trace. What
// a step needs of another lock or of a program's code it leaves in core.drop, core.drops and core.afterUnlock, to be done when
// the lock is free (Conn.unlockAndRun). A message is written under the lock that its exports are made under, so that ids are
// as the wire has them.
//
// # Versions
//
// Nothing on the wire tells a peer's version; what it uses does. 0.4.0 knows push, pull, resolve, reject, release and
// abort, and plain values. To a peer that has used nothing newer bytes go padded, and an invalid Date as an infinite one.
// What 0.4.0 has no words for (streams, blobs, URLs, headers, requests, responses) is sent as newer versions have
// it: such a peer ends the connection. An [Error] goes with its properties, which older peers leave unread, and
// never with its stack. Bytes are taken padded or not, and paths with indexes as numbers or text.
//
// # Bounds
//
// [Limits] names every bound and what happens at it: our calls wait, the peer's are rejected as overloaded, and who goes
// on regardless is cut off. Of a stranger much less is taken in (intake.go). [LimitHits] counts. The work of a map is bounded over all elements and nested maps, and what
// results hold is counted however they were made, so that a few messages do not make much of little. An error that is no
// [Error] leaves as "internal error", or as Config.Redact has it; a panic in a handler does too, with a name
// that the log has, and the connection lives.
package capnweb
