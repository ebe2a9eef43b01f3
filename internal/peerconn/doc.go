// Package peerconn is what packages rpc and capnweb share of a connection: the count of limits that were reached, and the rule
// for slow peers with its test. A peer is slow as long as pieces of a write leave, and dead if none leaves for as long as a
// ping and its answer may take.
package peerconn
