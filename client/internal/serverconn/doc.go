// Package serverconn is one server as a client uses it, and the connection to it: it dials the hosts of a ref, says hello, restores
// refs to live capabilities, and sends the batches of an outbox over streams. It knows neither the client's sessions and spaces nor
// what their calls ask for and answer: those are made on the capabilities that it returns.
//
// Package client alone calls it. It starts a Server for each address in use, waits for its connection (Peer) where a call is made or
// followed, and gives the streams of a Peer to the outbox's sender. The package touches the network through Config.Dial, and of the
// outbox only the types of a stream; it reads and writes no file and no database.
//
//	server       an address: one or several hosts that serve the same database
//	peer         a live connection to one of the hosts; all its capabilities end with it
//	round        one attempt at each host
//	retired      of a server: nobody has used it for idleTimeout and it is not connected, so its loop has ended
//	rejected     of a peer: it speaks no common version, or has not answered hello
//	restored     of a ref: its live capability is known, or a promise of it; a peer keeps it to be used again
//	redemption   the id under which a ref is counted as redeemed, however often it is restored
//	challenge    a nonce of the server's, which the holder of a sealed ref's key signs
//	fast path    encoding of batches and decoding of acks without the generated code
//
// server.go has the loop that connects, with the choice of a host and the pauses; dial.go the WebSocket and the limits of a connection;
// peer.go hello, features and the cache of restored capabilities; seal.go the proofs of sealed refs; stream.go the streams; calls.go,
// apply.go and reply.go the calls that these make, and what is answered to a batch; state.go what tests of package client ask for.
//
// # Lock order
//
// Peer.sending, then Stream.mu; a goroutine that holds Stream.mu only tries Peer.sending. Server.mu, then Peer.mu (only in state.go).
// Peer.mu, then package rpc's locks. The mutex of challengeQueue is a leaf. The callbacks of Config, and those of a stream's answers,
// are called without a lock. Server.Retire, Limits and Err call nothing: a lock of the caller's may be held.
//
// # Goroutines
//
// Server.Run and Stream.Run are started and awaited by the caller. Run starts the attempts at several hosts, and the connection; it
// returns when they have ended.
//
// # Bounds
//
//	one message from a server             64 MiB (maxMessageBytes)
//	a handshake, then the answer to hello 5 s (dialTimeout), 10 s (helloTimeout)
//	live capabilities of a connection     two generations of 1024 (maxLive)
//	challenges in flight, a connection    32 (maxChallenges)
//	calls of a stream that wait for room  the outbox's batches in flight
//	an idle server's loop                 ended after a minute (idleTimeout)
package serverconn
