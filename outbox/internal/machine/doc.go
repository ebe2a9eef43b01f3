// Package machine decides what the outbox sends when: the logic of queues and streams, without
// database, clock or socket. The loop of package sender passes it events, each with the
// time, and performs the actions that it emits, in order. The same events emit the same actions:
// testdata/machine.txt has transcripts, which the sender in JavaScript is tested by too.
//
// A stream is closed until there is something to send. Then it waits for a free slot
// (Window.Streams) and for its host (while a host is down only one of its streams tries), is
// opened, and keeps a window of batches in flight. Any failure closes it; after a backoff it is
// opened again and resends its unanswered batches, the same ones in the same order: the ledger
// answers those it has recorded as duplicates.
//
// The words:
//
//	stream    a session's ordered queue of batches, at its server
//	entry     a batch with seqs that has no outcome yet
//	backlog   rows of a session that have no seq yet
//	route     the refs through which a stream is opened
//	host      an address; its streams fail together, and one of them probes it
//	pin       a seq that an unanswered batch refers to: it is not acknowledged yet
//	drop      an op that is given up after it may have been sent
//	refused   of a stream: the server does not create it
//	stopped   of a stream: it sends nothing until someone decides
//
// The machine has no lock: the goroutine that has the loop's turn uses it.
//
// It holds WindowsAhead windows of batches a stream, Window.Streams open streams, one timer a
// stream and host, and the streams that have something to do.
package machine
