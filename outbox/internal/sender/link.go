package sender

// Link and Stream: the sender's view of a connection. The client implements them over rpc;
// tests implement them on ledger's rules.

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Link opens streams. It may be called concurrently.
type Link interface {
	// OpenStream restores the ref and opens the stream for the outbox. It need not wait for the
	// server's answer: a failure may also come from the first Apply. It may dial; if it cannot,
	// it fails, and the sender backs off and tries again (Box.Wake: at once).
	OpenStream(ctx context.Context, req StreamRequest) (Stream, error)
}

// StreamRequest describes the stream to open.
type StreamRequest struct {
	Session string
	// Ref is the ref to restore and to open the stream on.
	Ref capability.Ref
	// SpaceRef is set while the stream's first unanswered op is create or fork: restore it and
	// call create(Session, OwnerRef) instead of restoring Ref. The session need not exist yet.
	SpaceRef *capability.Ref
	OwnerRef string // id of the ref which that op mints; set with SpaceRef
	// LiveRefs are refs that must be held live for the batches: fork's via.
	LiveRefs []capability.Ref
	// Redemptions has the redemption id of each ref above, by ref id. It is made once and
	// stored, so that restoring again is free.
	Redemptions map[string]string

	Outbox      string            // obx_ + ULID
	Secret      capability.Secret // the outbox's secret for this session, of no use in any other
	Incarnation uint64
}

// Stream is one opened stream.
type Stream interface {
	// Apply sends a batch and never blocks. done is called exactly once, in the order of the
	// Apply calls, from any goroutine, perhaps before Apply returns, also when the link breaks
	// or Close is called; it does not block. Neither side changes the batch afterwards.
	Apply(b *ledger.Batch, done func(Reply))
	// Acknowledge sends acked_through without a batch. It never blocks and has no answer.
	Acknowledge(through uint64)
	// Opened waits for the server's answer to the opening and returns the last seq that it has
	// recorded. It is called only before a dropped op is replaced.
	Opened(ctx context.Context) (lastSeq uint64, err error)
	// Done is closed when the link broke and the stream is unusable.
	Done() <-chan struct{}
	// Close releases the stream. It does not wait for answers.
	Close()
}

// Reply is the answer to one Apply.
type Reply struct {
	// Outcomes has one outcome per op, in order, if Err is nil. Status 0 with Reason Pruned
	// says that the op's record is gone.
	Outcomes []ledger.Outcome
	// Err is a call-level answer (a fault) or the error that broke the link.
	Err error
}
