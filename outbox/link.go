package outbox

// What the sender needs of a connection. The client implements it over rpc;
// tests implement it on ledger's rules.

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Link opens streams. It is called from several goroutines at once.
type Link interface {
	// OpenStream restores the ref and opens the stream for the outbox. It need
	// not wait for the server's answer: a failure may come out of the first
	// Apply as well. It may dial; if it cannot, it fails, and the sender backs
	// off and tries again (Box.Wake: at once).
	OpenStream(ctx context.Context, req StreamRequest) (Stream, error)
}

// StreamRequest says what to open, and with what.
type StreamRequest struct {
	Session string
	// Ref is the ref to go through: restore it and open the stream on it.
	Ref capability.Ref
	// SpaceRef is set while the stream's first unanswered op is create or fork:
	// restore it and call create(Session, OwnerRef) instead of restoring Ref. The
	// session need not be there yet.
	SpaceRef *capability.Ref
	OwnerRef string // id of the ref which that op mints; set with SpaceRef
	// LiveRefs are refs the batches speak of and must hold live: fork's via.
	LiveRefs []capability.Ref
	// Redemptions has the redemption id of each ref above, by ref id: made once,
	// kept, so that coming back is free.
	Redemptions map[string]string

	Outbox      string            // obx_ + ULID
	Secret      capability.Secret // to show for the outbox in this session, and of no use in any other
	Incarnation uint64
}

// Stream is one opened stream.
type Stream interface {
	// Apply sends a batch and never blocks. done is called exactly once, in the
	// order of the Apply calls, from any goroutine, perhaps before Apply
	// returns, also when the link breaks or Close is called; it does not block.
	// The batch is not changed by either side afterwards.
	Apply(b *ledger.Batch, done func(Reply))
	// Acknowledge tells acked_through without a batch. It never blocks and
	// nobody waits for it.
	Acknowledge(through uint64)
	// Opened waits for the server's answer to the opening and gives the last seq
	// it has recorded. It is asked only before a dropped op is replaced.
	Opened(ctx context.Context) (lastSeq uint64, err error)
	// Done is closed when the stream is of no more use: the link broke.
	Done() <-chan struct{}
	// Close lets go of it. It does not wait for answers.
	Close()
}

// Reply is the answer to one Apply.
type Reply struct {
	// Outcomes has one outcome an op, in order, if Err is nil. One with Status 0
	// and Reason Pruned says that its record is gone.
	Outcomes []ledger.Outcome
	// Err is a call-level answer (a fault) or what broke the link.
	Err error
}
