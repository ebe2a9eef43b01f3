// Package transport carries messages of Cap'n Web: over a WebSocket, in the bodies of an HTTP request and its response, and in
// memory. Package capnweb makes the transports, and the loop of internal/peerconn reads and writes them. A message is bytes here.
//
// # Locks and bounds
//
// One goroutine reads, and one writes; Close may be called at any time. The locks of this package are leaves. A WebSocket accepts a
// message up to a byte beyond its limit. Of a batch's body a message is buffered while it is read, of the answers as much as their
// limit says.
package transport
