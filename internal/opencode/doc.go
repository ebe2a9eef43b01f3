// Package opencode translates between the shared data of the coding agent opencode and a
// session's keys and values. It is pure: no protocol, no store, no clock.
//
//	item of a sync {type, data}      key
//	session                          session
//	message                          message/ID
//	part                             part/MESSAGEID/ID
//	session_diff                     session_diff, an array as {"diff": […]}
//	model, one or an array           model/ID each
//	messages {messages}              a message and its parts, for each
//
// The last item of a key wins. items.go parses items, data.go writes them; recording.go parses
// whole files (exports, recordings of share traffic), export.go writes the document of opencode's
// export command, compaction.go finds what a summary stands for.
//
// Words:
//
//	item       {type, data}: one value as opencode syncs it
//	put        one key of a session with its value
//	batch      the puts of one sync request, or of one message of an export
//	recording  a file of share traffic, one request a line (JSONL)
//	chain      a digest of a batch and of all before it
//	orphan     a part without its message
//
// # Lock order
//
// The package has no locks. Functions may be called concurrently; a Reader is for one goroutine
// at a time.
//
// # Bounds
//
//	a line of a recording  64 MiB (jsonlines.MaxLine)
//	a file                 1 GiB (jsonlines.MaxFile)
//	a piece, a payload     Limits
package opencode

// Put is one key of a session with its value, JSON text that is kept byte for byte.
type Put struct {
	Key     string
	Payload []byte
}
