// Package node is what a process serves: listeners, the connections of both wires, HTTP, limits and
// draining. It makes the parts of a server out of the packages below internal/server, and ties
// them together; what a call may do is decided in package objects.
//
// Package server makes a Server, mounts the handlers of packages share, web and httpapi, and runs
// it; these handlers admit their requests here and get a Caller of package objects. This package
// writes nothing to the database: it passes the Store on, and reads the history's id.
//
// server.go starts and drains, with config.go, limits.go (what may change meanwhile) and store.go
// (the database). listen.go admits connections of Cap'n Proto, capnweb.go and capnweb_http.go those
// of Cap'n Web, http.go routes requests, with request.go around each and inproc_sse.go for long
// answers. metrics.go observes, log.go demotes lines that strangers cause, history.go reads the
// history's id.
//
// A server holds no state that a transaction does not check again, so any number of servers may
// share a database. The tests of package objects that need a server are here.
//
//	connection  a WebSocket, a byte stream, an HTTP batch or a long answer: counted, and drained
//	handshake   an HTTP connection that is no WebSocket yet
//	stranger    a peer that has shown no ref
//	intake      the memory for what peers have sent and is not answered
//	handler     an HTTP handler of this process that is mounted, and uses Caller and Capability
//	foreign     of a request: received by another http.Server than Serve's
//	history     what the database's commits belong to; a restored copy begins another
//	to drain    to refuse new calls, answer those that run, and end subscriptions
//
// # Lock order
//
// Server.mu and capnwebConns.mu are leaves: neither is held over a call of another package but
// counters of connections.
//
// # Bounds
//
//	connections         Config.Connections, ConnectionsPerAddress; before an upgrade Handshakes
//	refusals being sent 64 (maxRefusing)
//	messages in memory  Config.StrangerBytes, KnownBytes, RefBytes
//	one batch           Config.BatchTimeout
//	stopping            Config.DrainDelay, then DrainTimeout
package node
