// Package wire makes and reads whole messages of rpc.capnp: their memory, their envelopes, and copies of them. Package rpc calls
// it. It knows no connection, no table and no capability: the fields of a message are read and written by the code of package rpc
// that acts on them, and what an index in a message stands for is known there.
//
//	In              a received message, in memory of its own (in.go)
//	Out             a message of ours, in memory that its owner may use again (out.go)
//	envelope        what rpc.capnp puts around parameters and results
//	plain message   a Call on an export or a Return with results, in one segment and without capabilities
//	template        the envelope of a plain message of ours, laid out once by the generated code (envelope.go)
//	Plain           the envelope of a plain message of the peer, read at fixed positions (plain.go)
//	copy            a peer's message with another envelope: to pass on, or to send back (copy.go)
//	poison          a pattern, in tests, over memory that must not be used any more (poison.go)
//
// # Locks and bounds
//
// A message is used by one goroutine, except that any number may read the content of a parsed In. There is one lock, a leaf, for
// poison. What reading a message may cost is bounded by Limits; what an Out may take, by the code that sends it.
package wire
