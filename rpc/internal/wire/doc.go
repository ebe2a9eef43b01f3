// Package wire makes and reads whole messages of rpc.capnp: their memory, their envelopes, and copies of them. Package rpc calls
// it. It knows no connection, no table and no capability: the fields of a message are read and written by the code of package rpc
// that acts on them, and what an index in a message stands for is known there.
//
//	In              a received message, in memory of its own
//	Out             a message of ours, in memory that its owner may use again
//	envelope        what rpc.capnp puts around parameters and results
//	plain message   a Call on an export or a Return with results, in one segment and without capabilities
//	template        the envelope of a plain message of ours, laid out once by the generated code
//	poison          a pattern, in tests, over memory that must not be used any more
//
// # Locks and bounds
//
// A message is used by one goroutine; any number may read the content of a parsed In. The one lock, of poison, is a leaf. Limits
// bounds what reading a message may cost; what an Out takes is bounded by the code that sends it.
package wire
