// Package acprun runs an agent for a session: it starts the agent's process, hands it the session's prompts and stops,
// asks people for the permissions that it wants, and records what it does.
//
// # Prompts are handed over at most once
//
// A prompt is claimed, and its stage is written to the journal (journal.go, one file a session, synced at every record)
// before the step that it names is taken:
//
//	claiming  the claim is being asked for
//	taken     it was answered; the user's message and the turn are being recorded
//	handing   the agent is being sent the prompt
//	handed    all of it was written
//	heard     the agent has said something since
//	done      the turn is ended and the request is answered, in one batch whose id the journal has
//
// What becomes of a prompt whose runner or agent has ended is decided by its stage alone (life.go):
//
//	before handing   it goes on: the agent cannot have it. The batches have the same ids, so nothing is recorded twice
//	handing, handed  the request ends as unknown, unless the agent's history has the id of our message
//	heard            the request is answered: the turn was interrupted
//
// A claimed prompt of which the journal knows nothing ends as unknown, too: the journal may have been lost.
//
// # The agent
//
// One process at a time: before another starts, the first has ended with all that it had started, also if its runner was
// killed (package agentproc). The next goes on with the agent's session, by session/resume or session/load, where the agent
// can, and else begins a new one and says so in the session's state (acprecord.State). After its end it is
// started again when there is a prompt for it.
//
// # One runner a session
//
// The journal's lock keeps other runners of the home folder away, and a claim of the agent's state those of other machines
// (fence.go).
//
// # The editor
//
// A program before which a person sits may be one more party of the run (editor.go): its prompts are requests in the session, its
// answers to permissions answers there, and it is shown what the agent does, for others as well. All else passes between
// it and the agent as it is.
//
// # Permissions
//
// What an agent asks for becomes a request, with all that it would do as the payload, whose digest its answer must name. It is
// about the turn, and so ends with it; its answer reaches the agent's question alone, never a later one.
//
// # Goroutines
//
// Run's goroutine has all the state, and takes one event at a time. Others read the agent's lines, follow the session's
// requests, wait for claims, and speak for the editor; they hand over one event each and wait until it is taken, so an agent that floods waits in its
// pipe.
package acprun
