// Package acprecord turns what an agent says over the Agent Client Protocol into ops of a session. It is pure: no
// protocol, no outbox, no clock.
//
// What the agent does is recorded in the shapes that opencode's sessions have, so that a page shows both alike:
//
//	of ACP                                        in the session
//	a prompt                                      message/USER with its parts; message/TURN, whose turn begins
//	agent_message_chunk, agent_thought_chunk      parts text and reasoning, which grow (appendText)
//	tool_call, tool_call_update                   a part tool, put anew as it changes; diffs in state.metadata.files
//	plan                                          a part tool todowrite, one a turn, put anew as it changes
//	the prompt's result or error                  finalize: completed, aborted (cancelled) or failed, with tokens and cost
//	modes, commands, options, usage, the agent    agent, a value of an own kind (State)
//	session_info_update                           the title in session
//
// Text is gathered (Config.Gather, Config.Chunk), as are a tool call's changes while it runs; Due says when Flush is to be
// called. The order of parts is that in which the agent began them.
//
// What comes without a prompt, before one or after its result, is a message of its own; but changes of a tool call whose
// turn is over are put where it is.
//
// # Bounds
//
//	text of a part      partText; what follows is another part
//	a tool call's part  input and output shownBytes each, the texts of at most maxFiles changes fileBytes together; all are
//	                    cut, and end in an ellipsis
//	a turn              Config.TurnBytes of what is recorded, Config.TurnText of text, maxTools tool calls; then Update
//	                    reports ErrFlood. The values of maxKept tool calls that have ended are kept
//	commands, options   shownBytes each, or they are left out
package acprecord
