// Package rpc is a two-party Cap'n Proto RPC vat, level 1: bootstrap, calls, promise pipelining, capabilities both
// ways, embargoes, cancellation, and bounds on everything a peer can make it hold. It knows nothing of sessions.
package rpc
