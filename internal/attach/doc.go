// Package attach ties a session of a running opencode to one of Mooring's, over opencode's HTTP API and its stream of events: what opencode
// does is recorded as its shares are (packages opencode and mirror), what is asked in the session reaches opencode, and what opencode asks
// becomes requests.
//
// # Recording
//
// Events become puts and removals, gathered for a moment. What opencode did while they were not heard, as before the start, is read from opencode
// and compared with what was put (compare.go); of a turn that has ended the newest messages are compared too, since opencode's events are not in all
// what it keeps. A part that streams grows by deltas, which opencode itself keeps only when it is whole.
//
// A relay that shares the session (--listen, or another process) does not write what is recorded here: who writes holds the tie's lock, and uses
// its file of keys (ties.go).
//
// # Prompts are handed over at most once
//
// A prompt's message has an id that is made here and is in the tie's file before opencode is sent it (tie.go). So its fate is never unknown:
//
//	claiming  the claim is being asked for
//	taken     it was answered; the prompt waits until opencode rests
//	handing   opencode may have the message
//	handed    opencode has had the message
//
// Sending it again makes no second message, and has opencode go on where it had not begun to answer (life.go has what is done when). A prompt
// that is claimed and not in the file is searched for in opencode's history, where a part of the message says which request it is. One turn at a
// time: a prompt waits while opencode works on something else, and its request is answered when its turn is over.
//
// # What opencode asks
//
// A permission or a question is a request under opencode's own id, so that it is asked once however often this is started. It ends by the first answer, here or in
// opencode, or is withdrawn when opencode no longer waits, as when its turn was stopped: opencode lists those for ever, and so nothing counts that it lists
// of a session that rests. Those of sub-agents are asked, too.
//
// # Goroutines
//
// Run's goroutine has all the state, and takes one event at a time. Others read opencode's stream, follow the session's requests, and wait for claims.
//
// # Bounds
//
//	events that are not taken yet   32 MiB (maxAhead); beyond, the stream is read anew, and all is compared
//	an event, an answer             64 MiB (maxEvent, and opencodeapi)
//	a part that grows               2 MiB (maxGrowing); a larger one is put when it is whole
//	what is shown of a permission   1 MiB (maxShown); a larger one is answered in opencode alone
//	what waits to be sent           the outbox's limits; beyond, nothing is taken until there is room
package attach
