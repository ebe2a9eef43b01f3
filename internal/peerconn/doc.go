// Package peerconn is what packages rpc and capnweb share of a connection: the count of limits that were reached.
package peerconn
