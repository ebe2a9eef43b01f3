// Package acpedit is the agent's side of the Agent Client Protocol, towards an editor: what the editor asks for is done by an
// agent that is run as by mooring run (package acprun), so that all of it is recorded in sessions, and others can ask as well.
//
// # Sessions
//
// Each session of the editor is one of Mooring, whose id it has, with a run and a process of the agent of its own. A process is
// started when the editor says what it is, because what the agent can is part of the answer; the first session takes it over.
//
//	initialize                     the agent's answer, but for the sessions, which are Mooring's
//	session/new                    a new session, or the one that was named at the start
//	session/load, session/resume   one that this home folder knows; what was before is repeated by the agent, or from what is recorded
//	session/close                  ends the run
//	session/prompt                 a prompt, asked in the session
//	session/cancel                 ends the turn
//	session/list, session/fork     refused: the agent's own sessions are none of the editor's
//	all else                       passed on to the agent
//
// Updates, notifications and requests of the agent are passed on as they are, but for the session's id. (Requests about files and
// terminals are if the editor has said that it answers them.) So nothing but session/prompt makes the agent begin a turn, as far
// as the protocol goes.
//
// # Goroutines
//
// One reads the editor's lines, one writes them; each session has one for its run, and one that hands it what the editor wants, so
// that a run that waits holds up no other. Nothing waits for the editor to read.
//
// # Bounds
//
//	a line of the editor                16 MiB
//	lines that are no messages          maxRubbish; then the connection is over
//	what the editor does not read       maxQueued, with what is kept for it; then the connection is over
//	sessions at a time                  maxSessions
//	messages that wait for a session    maxInbox; then the connection waits
//	requests that are not answered      64 of each agent, and 64 to it
//	history from what is recorded       maxHistory, the newest
//
// # Lock order
//
// All mutexes are leaves.
package acpedit
