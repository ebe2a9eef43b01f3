// The named steps of the corridor, in the order an op passes them.

package crashpoint

import "slices"

// The client's side, before the op leaves and after its answer came.
const (
	OutboxCommitBefore = "outbox.commit.before" // the batch is not durable yet
	OutboxCommitAfter  = "outbox.commit.after"  // durable; Commit has not returned
	OutboxSeqBefore    = "outbox.seq.before"    // the sender is about to give out seqs
	OutboxSeqAfter     = "outbox.seq.after"     // seqs are durable, nothing is sent
	OutboxSendAfter    = "outbox.send.after"    // the batch is with the link
	OutboxAckBefore    = "outbox.ack.before"    // the answer came, its outcomes are not stored
	OutboxAckAfter     = "outbox.ack.after"     // outcomes are stored, waiters not notified
)

// The server's side.
const (
	ServerStartBefore     = "server.start.before"      // the owner's ref is written, its grant is not
	ServerStartAfter      = "server.start.after"       // both are
	ServerRestoreAfter    = "server.restore.after"     // a redemption is counted, the answer not sent
	ServerOpenStreamAfter = "server.open_stream.after" // a stream is registered, the answer not sent
	ServerApplyReceived   = "server.apply.received"    // a batch has come to its stream object, nothing is read of it
	ServerApplyQueued     = "server.apply.queued"      // a batch is decoded and waits for its transaction
	ServerDecided         = "server.decided"           // proof, ledger and authority have decided, nothing is written
	ServerCommitBefore    = "server.commit.before"     // everything is decided and written, not committed
	ServerCommitAfter     = "server.commit.after"      // committed; no answer is sent, no subscriber notified
	ServerOutcomeBefore   = "server.outcome.before"    // an answer is to be written; those before it are with the link
	ServerAckAfter        = "server.ack.after"         // answers are with the link, subscribers not notified unless authority changed
	ServerPublishAfter    = "server.publish.after"     // subscribers are notified
)

// The steps of a prompt on its way to an agent, which mooring run takes.
const (
	RunStartBefore = "run.start.before" // the journal has the agent's mark, no process is started
	RunStartAfter  = "run.start.after"  // the journal has the process
	RunClaimBefore = "run.claim.before" // the journal says that the prompt is being claimed
	RunClaimAfter  = "run.claim.after"  // the claim was answered, the journal does not say so
	RunHandBefore  = "run.hand.before"  // the turn has begun, the journal does not say that the prompt is handed over
	RunHanding     = "run.handing"      // the journal says so, nothing is sent
	RunHanded      = "run.handed"       // the prompt was written
	RunHeard       = "run.heard"        // the agent has said something
	RunEndBefore   = "run.end.before"   // the agent has answered, the end is not committed
	RunEndAfter    = "run.end.after"    // the end is committed, the journal does not say so
)

// OfRuns lists the points of mooring run, in their order.
func OfRuns() []string {
	return []string{RunStartBefore, RunStartAfter, RunClaimBefore, RunClaimAfter, RunHandBefore, RunHanding, RunHanded, RunHeard, RunEndBefore, RunEndAfter}
}

// All lists every point, in the corridor's order.
func All() []string {
	return []string{
		OutboxCommitBefore, OutboxCommitAfter, OutboxSeqBefore, OutboxSeqAfter, OutboxSendAfter,
		OutboxAckBefore, OutboxAckAfter,
		ServerStartBefore, ServerStartAfter, ServerRestoreAfter, ServerOpenStreamAfter,
		ServerApplyReceived, ServerApplyQueued, ServerDecided, ServerCommitBefore, ServerCommitAfter,
		ServerOutcomeBefore, ServerAckAfter, ServerPublishAfter,
	}
}

func isKnown(name string) bool { return slices.Contains(append(All(), OfRuns()...), name) }
