// Package writecmd has the commands of mooring session that make sessions, write to them and end them: create, fork, append,
// abort-turns, revert, unrevert, compact, ask, answer, withdraw, webhook, purge and delete.
//
// Command mooring adds Commands to mooring session, whose home folder they share. What goes through the outbox is durable before it
// is sent (package home waits for the answers); what asks the server alone says so in its help. Whether an op applies is decided
// by the server; here it is refused only what no server would take.
//
// Words:
//
//	op line   one op as JSON, the input of append (opline.go); lines are parsed before any is committed
//	label     a name for an op line, by which later lines refer to its result
//	single    of an op: committed alone, and its outcome printed (singleOp, Result)
//	older     the sessions of a space in which nothing has changed for some time (older.go)
//
// # Bounds
//
//	an op line           64 MiB (maxOpLine)
//	an input kept whole  1 GiB (maxInput)
//	a prompt             4 MiB (maxPromptBytes)
//	deletes at once      128 (maxConcurrentDeletes)
//	after a signal       5 s for the request under way (removalGrace)
package writecmd
