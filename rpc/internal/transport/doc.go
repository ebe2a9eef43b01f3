// Package transport carries framed Cap'n Proto messages: over a WebSocket, a byte stream, and in memory. Package rpc makes the
// transports, and the loop of internal/peerconn reads and writes them. Of a message only its frame is known here.
//
// # Locks and bounds
//
// One goroutine reads, and one writes; Close may be called at any time. The locks of this package are leaves. A message is read
// within framing.Limits, and its memory grows with the bytes that arrive, not with what a header promises; an idle stream has no
// buffer where the system can say that something has come.
package transport
