// Package readcmd has the commands of mooring session that look at sessions and change nothing: list, children, show, stat, ls, get,
// search, tail, verify and requests.
//
// Command mooring adds Commands to mooring session, whose home folder they share. What a ref shows is the server's to decide; here
// it is decided how it is printed: a table or a line for people, and with --json an object a line, whose types are in the file of
// the command. Package writecmd prints requests and their answers by this one.
//
// Words:
//
//	entry     a key of a session with what is known of its value (Entry)
//	claim     who works on a key, and until when (shownClaim)
//	state     the values of a session at a cursor, which tail prints when it starts over (shownState)
//	hidden    of events: the ref does not show them; a mark stands for them, so that positions go on (shownMark)
//
// # Bounds
//
//	keys aligned with each other   1000 (lsTable)
//	events asked for at once       1000 (tailPage)
package readcmd
