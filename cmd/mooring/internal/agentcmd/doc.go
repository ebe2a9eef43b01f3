// Package agentcmd has the commands that run for long beside an agent, an editor or a person: mooring run and acp record an agent
// of the Agent Client Protocol in a session, attach and relay do so for a running opencode, mcp gives sessions to a model, and
// watch tells of what happens in them.
//
// Command mooring adds the constructors to its root. What is recorded, relayed and delivered is decided in packages acprun,
// acpedit, attach, relay, mcpserver and watch; here are the flags, the sessions that these work on, what is kept of them in the
// home folder, and what is said while a server is away.
//
// Words:
//
//	runner    a process of mooring run or acp, which has a session's agent
//	tie       that a session of opencode's is recorded in one of Mooring's, in the home folder's folder attached
//	relay     the share server that opencode's config names, on this machine, one in a home folder
//	notice    a request that was opened or answered, or a turn that is finished: ids and kinds, no contents
//
// # Lock order
//
// A relay holds the home folder's relay.lock while it runs, and attach while it takes over what a relay has shared. Of a tie's own
// lock, package attach says more.
//
// # Bounds
//
//	sessions of a watch          100 (maxWatched)
//	requests at a relay's end    10 s (relayStop)
//	a tie in use                 waited for 1 s (tieWait)
//	whether the server is away   looked at every 500 ms (reportEvery)
package agentcmd
