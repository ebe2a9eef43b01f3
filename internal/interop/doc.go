// Package interop tests the vat (package rpc) against other implementations of Cap'n Proto RPC: the C++ one, over byte
// streams (build tag interop: it needs a C++ compiler and libcapnp), and go-capnp's own, over WebSockets.
//
// Both sides of every pair serve the Peer of internal/testschema/interop.capnp, and both sides of every pair call it. The foreign
// side is always a process of its own: package gocapnp in this test's own binary, started again, or the program that
// cxx makes. A server process says "listening ADDRESS" and ends with its input; a client process reads the name of a
// scenario a line and answers "ok NAME" or "FAIL NAME why" when it has let go of everything but the connection. So
// what is checked here, beside the answers, is that all tables are empty while the connection still stands.
package interop
