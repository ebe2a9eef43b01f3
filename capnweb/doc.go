// Package capnweb speaks Cap'n Web, the JSON object-capability protocol of the npm package capnweb, versions 0.4.0 to
// 0.12.0, as a server and as a client, over WebSocket and in HTTP batches: calls and promise pipelining, callbacks, maps,
// streams, and bounds on everything a peer can make it hold. It knows nothing of sessions.
//
//	node              what a Stub or Promise points at: an object here, an import, or a future
//	future            a result: pending, then resolved to a value, an error or another node
//	payload           a value and the references that it owns
//	settlement        the state of waiting for all promises in a payload
//	export, import    an entry of the table of what the peer may name; of what we may name of the peer's
//	push, pull        the messages that make a call or read a property, and that ask for its result
//	lane              the calls and reads that wait in one future and came over one connection
//	map, program      a function run by the peer for each element of a value (message remap), and its instructions
//	stranger          a peer that has not authenticated yet (package internal/intake)
//
// # API
//
// A [Stub] is a counted reference to something to call: of the peer, of this side, or of another connection. [Stub.Call]
// returns a [Promise] at once, on which calls can be pipelined before its result has arrived; [Promise.Await] asks for the
// result, and a result that is never awaited is never sent. An [Object] serves calls: it receives each [Call], and answers
// with [Call.Return] or [Call.Fail], at once or later from any goroutine; [NewMethods] and [Func] make one of Go functions,
// whose arguments are converted and checked. A [Conn] is a connection over a [Transport]; [Conn.Run] serves it until it
// ends. [Handler] serves WebSockets and batches over HTTP, [Dial] opens a WebSocket, [NewBatch] collects calls for one POST.
//
// # Values
//
// Messages are JSON with arrays escaped ([[…]]) and every other array a tagged expression. In Go a value is one of
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
// and on sending also structs (fields by their json tags), maps with string keys, slices and pointers of these. Received
// values may be shared between calls and must not be changed. A value is delivered when every promise in it has resolved,
// with its result in the promise's position.
//
// # The two tables
//
//	exports   what the peer may name: results of its pushes, under positive ids that it counts up; stubs and promises
//	          that we sent, under negative ids that we count down; our main object, 0          exports.go
//	imports   the same seen from the other side: results of our pushes, what the peer sent us,
//	          its main object                                                                 imports.go
//
// No id is used twice. A stub that is sent again is exported again under a new id: the npm package releases one count for
// each id, however often it received it. For each import we count how often it was received, and release the whole count at
// once, when our last reference is released. A promise is released as soon as it is resolved.
//
// A push is evaluated when it arrives (eval.go) and calls can be pipelined on its result; a pull asks for the result, and is
// answered once. A malformed expression, and every impossible id or count, is a protocol violation: the peer is sent an
// abort, and the connection is closed with 3000.
//
// # Ownership
//
// A Stub or Promise of a program is released once, by it. References in a value belong to the value (payload.go): stubs in
// arguments are released when the call is answered, those in a result when its Promise is released; use Dup for those that
// are to live longer. Values that a program sends as arguments are duplicated, values it returns are taken over. An [Object]
// that is a [Releaser] is released after the last reference on any connection and in this process.
//
// Stubs point at nodes (node.go): an object here (object.go), an import (imports.go), or a future (future.go). Calls on a
// pending future wait in it, in order. Nodes are counted. No node may lead to itself, or to a value that refers to it:
// that is detected when a future is resolved (node.go), and is an error.
//
// # Order
//
// Messages are handled one by one. The calls in a message are delivered when all of it is in the tables, before the next is
// handled: in the order in which they came (except those inside one object of a message, whose members have no order), and
// never two of one connection at a time. A call whose arguments hold promises waits for them alone, and later calls overtake
// it, as they do in the npm package. Calls on a promise are delivered in order before later ones; a peer that receives the
// promise's resolution, in its answer or as an argument of a later call, receives it after them. This order is not kept with
// a peer that was given a stub of a promise and calls it before it is resolved. Calls that wait when their connection ends
// fail. If a handler does not return soon, though it must not block, another goroutine takes over reading: answers that the
// handler may be waiting for are read, and calls wait.
//
// There is no disembargo in Cap'n Web: when a promise of the peer resolves to an object of this side, calls on it go there
// at once, and may overtake earlier ones that are still on their way round.
//
// # Core and loop
//
// The core (core.go, exports.go, imports.go, eval.go, encode.go, map.go) has no goroutine, socket or clock: a message goes
// in, messages and deliveries come out. testdata has transcripts of it. Around it runs the loop of internal/peerconn, which
// codec.go fits it into: it reads, delivers, writes, pings, finds out who is dead and ends. A message is handled without the
// lock, which is taken for each change of the tables.
//
// Below it are internal/jsontext (JSON), internal/expr (ids, paths and plain values in it), internal/convert (Go types),
// internal/flow (the window of a stream) and internal/transport (the WebSocket, HTTP batches and the pipe). None of them knows
// this package.
//
// # Lock order
//
//	Writable.mu and pipe.mu, then Call.mu, then Conn.mu
//	linkMu, then future.mu or payload.mu
//	future.mu and callQueue.mu, then Conn.mu or the lock of detached
//	settlement.mu and releasers.mu alone
//
// Two connections' locks are never held together, and no code of a program runs under any lock, except Config.Trace. A step
// that needs another lock or a program's code leaves that in core.drop, core.drops and core.afterUnlock, to be done when the
// lock is free (Conn.unlockAndRun). A message is encoded under the lock that its exports are made under, so that ids are in
// the order of the wire.
//
// # Versions
//
// Nothing on the wire says a peer's version; the features it uses do. 0.4.0 has push, pull, resolve, reject, release and
// abort, and plain values. To a peer that has used nothing newer bytes are sent padded, and an invalid Date as an infinite
// one. What 0.4.0 cannot express (streams, blobs, URLs, headers, requests, responses) is sent as in newer versions: such a
// peer ends the connection. An [Error] is sent with its properties, which older peers ignore, and never with its stack.
// Bytes are accepted padded or not, and paths with indexes as numbers or text.
//
// # Bounds
//
// [Limits] names every bound and what happens at it: our calls wait, the peer's are rejected as overloaded, and a peer that
// goes on regardless is disconnected. Strangers have much lower bounds (Config.Intake). [LimitHits] counts. The work of a map is
// bounded over all elements and nested maps, and the memory of results is counted however they were made, so that a few
// messages cannot be amplified. An error that is no [Error] is sent as "internal error", or as Config.Redact returns; a
// panic in a handler is too, with the incident's name in the log, and the connection lives.
package capnweb
