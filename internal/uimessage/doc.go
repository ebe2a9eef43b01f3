// Package uimessage translates between a session's messages and parts, which have opencode's shapes, and the UIMessages of the
// AI SDK (npm ai, version 7): a JSON array of {id, role, metadata, parts}. It is pure: no protocol, no store, no clock.
//
//	in the session                  UIMessage
//	message/ID                      a message; what has no place in one is metadata.mooring
//	part text, not ignored          text; the provider's metadata, and mooring with the rest, in providerMetadata
//	part reasoning                  reasoning, likewise
//	part file, with a whole URL     file, likewise
//	part tool                       dynamic-tool, with the rest in toolMetadata.mooring, and data-diff with the changes of files
//	    pending, running                input-streaming, input-available
//	    completed, error                output-available, output-error
//	part step-start                 step-start, and data-step-start with the rest
//	part of any other TYPE          data-TYPE
//	session, session_diff           data-session, the first part of the first message
//
// The other way, each of these becomes what it was. What else an array has, which comes from programs that use the AI SDK, becomes a
// value that pages show, in which the member uimessage has what opencode's shape has no place for:
//
//	UIMessage                       in the session
//	text, reasoning, file           the part of that type
//	dynamic-tool, tool-NAME         part tool: pending (input-streaming, approval-requested), running (input-available,
//	                                approval-responded), completed (output-available), error (output-error, output-denied)
//	step-start                      part step-start
//	any other TYPE                  part TYPE
//
// Whatever an array has, importing it and exporting it again gives an equal one; for what was exported, byte for byte. This does not
// depend on how a part looks: what is read as a part of a session is accepted only if it is written as what was read (import.go).
//
// export.go and parts.go write an array; import.go, read.go and foreign.go read one, check.go refuses what is none; json.go has what both use.
//
// # Lock order
//
// The package has no locks. Functions may be called concurrently; an Export is not changed.
//
// # Bounds
//
//	a file      opencode.ReadAll's; it is in memory, and what is made of it once more
//	a payload   Options.Limits
//	an Export   one message at a time is in memory, beside the entries
package uimessage
