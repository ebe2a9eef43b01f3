// Package acp has the messages of the Agent Client Protocol, version 1: JSON-RPC 2.0, a message a line. It decodes what an
// agent or an editor sends, and encodes what it is sent. It has no connection, no goroutine and no clock: who reads lines
// decides what waits for what, so that messages are handled in the order in which the agent sent them, one at a time, and
// an agent that floods waits in its own pipe. (github.com/coder/acp-go-sdk's connection starts a goroutine for each request,
// which may overtake the notifications before it, and holds up to 1,024 messages of 10 MiB; tests talk to agents that are
// made with it.)
//
// What they send is read leniently: members that are not known are skipped, null is the same as absent, and values that
// Mooring only passes on stay JSON text, byte for byte, which is also what a permission's digest is of. So a message takes
// no more than a few times its size, whatever is in it.
package acp
