// Package sender sends an outbox's batches: it takes the lease, gives the machine its events, performs the machine's actions on
// streams and on the database, and stores the outcomes.
//
// Package outbox makes one Sender a Box, runs it, and tells it of what this process has committed, dropped, restarted and stored.
// A Sender touches the outbox's database, in transactions of package writer, and the Link that Run gets.
//
// The words:
//
//	term     one holding of the lease; the loop lasts for one
//	turn     the right to handle events: mostly of the goroutine in which one occurs
//	event    an input of the machine, or a step that changes its entries
//	decided  of a row: it needs no server
//	denied   of a row: the server refuses its stream's refs
//	drop     an op that is given up after it may have been sent
//
// Sender.mu and loop.mu are leaves. The machine and the open streams belong to the goroutine with the turn, which may wait for the
// database.
//
// A term has Window.Streams open streams, each with a goroutine and a window of batches in flight. Queued events have no bound of
// their own: each belongs to a batch, a stream or a call of the Box.
package sender
