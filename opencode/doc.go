// Package opencode translates between what the coding agent opencode shares and a
// session's keys and values. It is pure: no wire, no store, no clock.
//
//	item of a sync {type, data}      key
//	session                          session
//	message                          message/ID
//	part                             part/MESSAGEID/ID
//	session_diff                     session_diff, an array as {"diff": […]}
//	model, one or an array           model/ID each
//	messages {messages}              a message and its parts, for each
//
// The last item of a key wins. items.go reads items, data.go writes them again;
// recording.go reads whole files (exports, recordings of share traffic), export.go
// writes the document that opencode's own export prints.
package opencode

// Put is one key of a session with its value, JSON text that is kept byte for byte.
type Put struct {
	Key     string
	Payload []byte
}
