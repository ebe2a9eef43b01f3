// Package outboxcmd has the commands of mooring outbox: what is pending in the home folder's outbox and why, what became of the
// rest, and the decisions that only a user can take: to send an op again, to drop it, or to give up a stream that has stopped.
//
// Command mooring adds Outbox to its root. The states of ops, and which decisions they allow, are package outbox's; here it is
// decided how they are shown, what is asked before something is given up, and how long a command waits for what it has sent.
//
// Words:
//
//	finished    of an op: acked, failed, skipped or void; it blocks nothing, and is removed 30 days after its answer
//	stopped     of a stream: nothing of it is sent until someone decides, as after a server's restore from a copy
//	reconcile   to commit again the ops that a session has lost, and go on
//	abandon     to give up what a stream has pending, and go on without it
//	at quota    of a session: it holds as much as it may, so its ops wait until someone makes room
//
// # Bounds
//
//	reading the outbox   nothing is sent meanwhile (status, list, abandon)
//	drain                as long as --timeout says, else until all is answered or the command is stopped
package outboxcmd
