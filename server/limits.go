// Limits: the bounds on clients.

package server

import (
	"time"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/share"
)

// Limits bound the memory, the work and the storage that clients can make a server use. A field
// that is not above 0 takes its default, in parentheses. Beyond a bound a call is overloaded,
// unless the field's comment says otherwise.
type Limits struct {
	Connections           int           // at once; beyond: refused (10,000)
	ConnectionsPerAddress int           // of those from one address, or IPv6 /64; behind a proxy all clients have the proxy's (1,000)
	Handshakes            int           // HTTP connections that are no WebSocket yet; beyond: the address with most loses its oldest (2,000)
	HandshakeTimeout      time.Duration // for a connection to become a WebSocket, and to send its first message (10s)
	BatchTimeout          time.Duration // for an HTTP batch of Cap'n Web or a request to the API, from its head to the last answer; beyond: cut off (1m)
	IdleTimeout           time.Duration // after which a silent connection is closed over which nothing is held (5m)
	PingInterval          time.Duration // between pings of a silent WebSocket (6s)
	PingTimeout           time.Duration // for it to answer; beyond: closed (3s)
	WriteTimeout          time.Duration // after which a peer that takes nothing is closed (10s)

	MessageBytes   int // of one Cap'n Proto message, or of half of one of Cap'n Web; beyond: aborted (16 MiB)
	Segments       int // of one message; beyond: aborted (64)
	Nesting        int // of pointers, and steps of a pipelined path; beyond: the call fails (64)
	TraversalBytes int // that may be read out of one message, repeats counted; beyond: the call fails (64 MiB)
	Questions      int // calls to one peer (events to subscribers) that it has not answered; beyond: they wait (8,192)
	Answers        int // calls of one peer that are not answered; beyond: overloaded, and aborted at twice as many unfinished (16,384)
	AnswerBytes    int // that one peer's calls and results hold (64 MiB)
	Exports        int // capabilities that one peer holds of the server (65,536)
	Imports        int // capabilities that the server holds of one peer; beyond: aborted (65,536)
	QueuedCalls    int // that wait on one unresolved promise (4,096)
	QueuedBytes    int // that wait for a peer to read them; beyond: overloaded, and closed at four times as much (16 MiB)

	StrangerBytes    int           // held by all peers that have shown no ref, an address half of it; beyond: they wait 10 s first (256 MiB)
	PeerBytes        int           // held by unanswered messages of all others; beyond: as for StrangerBytes (1 GiB)
	RefBytes         int           // of that by those under one ref (256 MiB)
	Subscriptions    int           // of one connection (1,024)
	BatchesInFlight  int           // unanswered batches of one stream (64)
	WrongTries       int           // unknown or wrong refs that one address may try at once; beyond: their answers wait, and 64 later it is aborted (10)
	WrongTryInterval time.Duration // for which each of those waits for the one before; refs that are right never wait (1s)
	CommitQueue      int           // op intents that wait for a transaction, of all connections (50,000)

	SessionQuota int // bytes of one session's log and state; beyond: quota_exceeded, but for what takes something away (1 GiB)
	RefQuota     int // bytes of those written under one ref that is no owner's; beyond: quota_exceeded (1 GiB)
	CreateQuota  int // bytes of all sessions made under one ref of the space, or one made from it, about; beyond: quota_exceeded (10 GiB)

	ShareBytes        int           // of one sync of opencode's, which is read item by item; beyond: 413 (512 MiB)
	ShareMessageBytes int           // of one message of the same over Cap'n Web, which is held whole; beyond: closed (32 MiB)
	ShareRequests     int           // such requests of one address at once; beyond: they wait, then 429 (32)
	ShareCreates      int           // shares that one address creates an hour, repeats counted; beyond: 429 (3,600)
	ShareSecrets      int           // secrets of one share that are good at once; beyond: the oldest ends (16)
	ShareBodyTimeout  time.Duration // for a sync to arrive; beyond: cut off (2m)
	ShareSyncTimeout  time.Duration // for it to be committed while the database is busy or away; beyond: 429 or 503 (30s)
}

// DefaultLimits returns the limits of a server on a small machine.
func DefaultLimits() Limits {
	var l Limits
	nodeCfg, shareCfg := node.DefaultConfig(), share.DefaultConfig()
	l.apply(&nodeCfg, &shareCfg)
	return l
}

// apply sets the fields that l limits, and takes the limits that l leaves open from them.
func (l *Limits) apply(nodeCfg *node.Config, shareCfg *share.Config) {
	rpc, quota := &nodeCfg.RPC, &nodeCfg.Session.Limits
	for _, f := range []struct{ limit, of *int }{
		{&l.Connections, &nodeCfg.Connections}, {&l.ConnectionsPerAddress, &nodeCfg.ConnectionsPerAddress}, {&l.Handshakes, &nodeCfg.Handshakes},
		{&l.MessageBytes, &rpc.MessageBytes}, {&l.Segments, &rpc.Segments}, {&l.Nesting, &rpc.Nesting}, {&l.TraversalBytes, &rpc.Traversal},
		{&l.Questions, &rpc.Questions}, {&l.Answers, &rpc.Answers}, {&l.AnswerBytes, &rpc.AnswerBytes}, {&l.Exports, &rpc.Exports},
		{&l.Imports, &rpc.Imports}, {&l.QueuedCalls, &rpc.QueuedCalls}, {&l.QueuedBytes, &rpc.QueuedBytes},
		{&l.StrangerBytes, &nodeCfg.StrangerBytes}, {&l.PeerBytes, &nodeCfg.KnownBytes}, {&l.RefBytes, &nodeCfg.RefBytes},
		{&l.Subscriptions, &nodeCfg.Subscriptions}, {&l.BatchesInFlight, &nodeCfg.BatchesInFlight}, {&l.WrongTries, &nodeCfg.WrongTries}, {&l.CommitQueue, &nodeCfg.QueueOps},
		{&l.SessionQuota, &quota.SessionBytes}, {&l.RefQuota, &quota.RefBytes}, {&l.CreateQuota, &quota.AccountBytes},
		{&l.ShareBytes, &shareCfg.BodyBytes}, {&l.ShareMessageBytes, &shareCfg.MessageBytes}, {&l.ShareRequests, &shareCfg.Requests},
		{&l.ShareCreates, &shareCfg.CreatesPerHour}, {&l.ShareSecrets, &shareCfg.Writers},
	} {
		defaults.Set(f.limit, *f.of)
		*f.of = *f.limit
	}
	for _, f := range []struct{ limit, of *time.Duration }{
		{&l.HandshakeTimeout, &rpc.HandshakeTimeout}, {&l.BatchTimeout, &nodeCfg.BatchTimeout}, {&l.IdleTimeout, &rpc.IdleTimeout},
		{&l.PingInterval, &rpc.PingInterval}, {&l.PingTimeout, &rpc.PingTimeout}, {&l.WriteTimeout, &rpc.WriteTimeout},
		{&l.WrongTryInterval, &nodeCfg.WrongTryInterval}, {&l.ShareBodyTimeout, &shareCfg.BodyTimeout}, {&l.ShareSyncTimeout, &shareCfg.SyncTimeout},
	} {
		defaults.Set(f.limit, *f.of)
		*f.of = *f.limit
	}
}

const (
	minStrangerBytes = 8 << 20 // the first messages of a few clients that have shown no ref
	batchOverhead    = 1 << 20 // a batch's message besides its arguments, at most
)

// Validate returns which limits do not go together, as a *fault.Error with code Usage that
// names their fields.
func (l Limits) Validate() error {
	nodeCfg, shareCfg := node.DefaultConfig(), share.DefaultConfig()
	l.apply(&nodeCfg, &shareCfg)
	least := session.DefaultLimits().BatchBytes + batchOverhead
	switch {
	case l.MessageBytes < least:
		return fault.Usage.With("Limits.MessageBytes must hold a batch: at least %s", humanize.IBytes(uint64(least)))
	case l.TraversalBytes < l.MessageBytes:
		return fault.Usage.With("Limits.TraversalBytes must be at least Limits.MessageBytes")
	case l.StrangerBytes < minStrangerBytes:
		return fault.Usage.With("Limits.StrangerBytes must be at least %s", humanize.IBytes(minStrangerBytes))
	case min(l.RefBytes, l.PeerBytes) < 4*l.MessageBytes:
		return fault.Usage.With("Limits.RefBytes and Limits.PeerBytes must be at least four times Limits.MessageBytes")
	}
	return nil
}
