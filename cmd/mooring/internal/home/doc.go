// Package home has what mooring's commands decide about the client's side: where the home folder is, what a REF on the command
// line stands for, which owner's ref is meant, how long a command waits for a server, and what it says when there is none.
//
// Every command that uses an outbox adds the flags (AddFlags), parses its arguments (Ref, Arg), and works within WithClient,
// WithRef or WithSession, which open the client, finish what earlier commands began, call the command's body, and send what can
// be sent at once. The packages beside this one, which have the commands, call it; it prints by package cli, and decides nothing
// for one command alone.
//
// Words:
//
//	REF          an argument: a ref's text, @FILE that holds one, or an id that the home folder knows; RefHelp (refarg.go)
//	home folder  the client's folder: outbox.db, the owner's ref last used, the seal key, the journals of imports, and what
//	             relays, runs, attachments and watches keep (home.go)
//	outbox       the durable queue of ops to send (package outbox)
//	owner        the ref of a space under which sessions are created (owner.go)
//	queued       durable in the outbox, and not answered yet (commit.go)
//	stopped      of a stream: what is pending is not sent until someone decides
//
// # Lock order
//
// Lock is for files of the home folder: imports.lock is held while an import finds or creates its session, relay.lock while a
// relay runs. Neither is taken under the other, and the databases lock for themselves.
//
// # Bounds
//
//	a file with a ref     4112 bytes (maxRefFile)
//	waiting for a server  3 s (SendGrace), less if it is unreachable for 400 ms (GraceUnreachable)
//	a reason to wait      said after 2 s, each once (QuietWait)
//	sending at the end    2 s, for what later commands would send (DrainBriefly)
//	ids to complete       1000 ops
package home
