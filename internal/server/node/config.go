// Config: the settings of a Server, with their bounds.

package node

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/server/webhooks"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config configures a Server. Store is required. Every other zero field takes its value from
// DefaultConfig, except the fields for which zero is documented to mean something.
type Config struct {
	Store Store
	Log   *slog.Logger // nil discards; never gets a secret
	Name  string       // server name that hello sends: "mooring/v1.2.3"

	Session decide.Config // limits of ops, and the lease of turns
	RPC     rpc.Limits    // of one connection

	Prefix         string   // path under which /capnp and /rpc are served too, without slashes at its ends; "" for none
	OriginPatterns []string // browser origins accepted besides the server's own host
	Hosts          []string // HOST[:PORT]s accepted over loopback, besides localhost and loopback addresses; others get 421

	// PollInterval is the interval at which the rows of followed sessions are polled for
	// commits of other replicas. 0 switches polling off, which leaves only notifications,
	// and those may be lost.
	PollInterval time.Duration
	// ObserveCommit, if not nil, is called with the cursors of the events of each commit of this
	// server to a session, before followers are sent them. It must not block.
	ObserveCommit func(session string, first, last uint64)
	// IgnoreNotify drops notifications, so that tests exercise polling.
	IgnoreNotify bool

	// KeepLog is the retention of events: older ones are trimmed from the logs, and the
	// folded state stays. 0 keeps everything.
	KeepLog time.Duration
	// KeepDeleted is the retention of the events, streams and refs of deleted sessions,
	// whose payloads are removed at once. 0 keeps them.
	KeepDeleted time.Duration

	// Webhooks says how notices are delivered to the webhooks that sessions' owners register; nil: none may be.
	Webhooks *WebhookConfig

	// SoleServer declares that no other server uses the database, so that no turn can be
	// streaming when this server starts.
	SoleServer bool

	// Transactions is the number of group commits that may run at once, and of transactions that
	// one call may run: 1 on a database with a single writer.
	Transactions int
	GroupOps     int // op intents in one transaction; a larger batch gets a transaction of its own
	GroupBytes   int // argument bytes in one transaction; a larger batch gets a transaction of its own
	QueueOps     int // pending op intents, one session at most three quarters of them; beyond: overloaded
	QueueBytes   int // pending argument bytes, one session at most three quarters of them; beyond: overloaded

	BatchesInFlight int // unanswered applies on one stream; beyond: overloaded

	// ReadOnlyStreams is the number of streams that may be made under a ref that can change
	// nothing in the session (a dead ref, or one with read alone); for a space's ref, in all
	// sessions. Beyond it OpenStream returns the ref's own code. Each stream keeps at most
	// session.MaxIdleUnacked outcomes.
	ReadOnlyStreams int

	// Audiences are the HOST:PORTs at which clients reach this server. A proof for a sealed
	// ref that names none of them was made for another server and is refused.
	Audiences []string

	// WrongTries is the number of unknown or wrong refs that one address may try at once;
	// each further answer is delayed by WrongTryInterval. A correct ref is always answered
	// at once, whatever else its address tries.
	WrongTries       int
	WrongTryInterval time.Duration

	// StrangerBytes bounds the memory for messages of peers that have not shown a ref yet;
	// one address gets at most half of it. KnownBytes bounds it for all other peers, and
	// RefBytes for the peers under one ref. Messages count while they are read, decoded
	// and unanswered. Beyond a bound a peer waits, and is refused as overloaded after that.
	StrangerBytes int
	KnownBytes    int
	RefBytes      int

	Connections           int // at once; beyond: 503, or an abort on a byte stream
	ConnectionsPerAddress int // at once from one address (an IPv6 /64, a Unix socket); beyond: as for Connections
	Handshakes            int // HTTP connections that are not a WebSocket yet; beyond: the address with most of them loses its oldest
	Subscriptions         int // on one connection; beyond: overloaded
	WindowBytes           int // window of a subscription that asks for none
	MaxWindowBytes        int // largest window that a subscription may ask for
	Snapshots             int // sent at once; one connection at most half of them, one address or ref not all of them; beyond: they wait for StallTimeout, and then: overloaded
	FoldBytes             int // bytes held in memory to fold the log for a snapshot of an earlier cursor; beyond: too_large

	BatchTimeout  time.Duration // a batch of Cap'n Web, from the head of its request to the last answer
	CommitTimeout time.Duration // one transaction
	ReadTimeout   time.Duration // one read of the database
	StallTimeout  time.Duration // a snapshot whose subscriber acks nothing for this long is ended
	SweepInterval time.Duration // interval at which lapsed turns are swept
	DrainTimeout  time.Duration // bound on stopping; running calls get three quarters of it

	// DrainDelay is the time for which a stopping server serves as usual before it drains,
	// except that /readyz reports it as not ready, so that balancers stop routing to it.
	// 0 drains at once.
	DrainDelay time.Duration

	// MeasureInterval is the interval at which a session that meets its quota is measured again.
	MeasureInterval time.Duration

	// CountInterval is the interval at which all sessions are counted for the metrics.
	CountInterval time.Duration

	// replicaInterval is the interval at which the server records that it is alive.
	replicaInterval time.Duration

	// AuditWindow is the window over which the uses of a ref, and the tries of strangers,
	// are summed into one row of the audit.
	AuditWindow time.Duration

	probe operator.ProbeConfig // checks whether commits succeed again after one has failed

	Now func() time.Time // this machine's clock, for hello and timers; the database's clock decides
}

// DefaultConfig returns the configuration of a server on a small machine. Store is missing.
func DefaultConfig() Config {
	limits := rpc.DefaultLimits()
	limits.MessageBytes, limits.SendBytes = 16<<20, 64<<20                 // the event of a fork is larger than any batch
	limits.PingInterval, limits.PingTimeout = 6*time.Second, 3*time.Second // clients ping after 5 seconds, so that the server seldom does
	limits.HandshakeTimeout, limits.IdleTimeout = 10*time.Second, 5*time.Minute
	return Config{
		Log: slog.New(slog.DiscardHandler), Name: "mooring",
		Session: decide.DefaultConfig(), RPC: limits,
		PollInterval: time.Second,
		Transactions: 2, GroupOps: 4000, GroupBytes: 8 << 20, QueueOps: 50_000, QueueBytes: 64 << 20,
		BatchesInFlight: 64, ReadOnlyStreams: 16,
		StrangerBytes: 256 << 20, KnownBytes: 1 << 30, RefBytes: 256 << 20,
		WrongTries: 10, WrongTryInterval: time.Second,
		Connections: 10_000, ConnectionsPerAddress: 1000, Handshakes: 2000, Subscriptions: 1024, WindowBytes: 1 << 20, MaxWindowBytes: 8 << 20, Snapshots: 4, FoldBytes: 128 << 20,
		BatchTimeout: time.Minute, CommitTimeout: 30 * time.Second, ReadTimeout: 30 * time.Second, StallTimeout: 30 * time.Second,
		SweepInterval: 5 * time.Second, DrainTimeout: 10 * time.Second, AuditWindow: time.Minute, MeasureInterval: 10 * time.Minute, CountInterval: 5 * time.Minute,
		probe: operator.ProbeConfig{Interval: time.Second, Timeout: 5 * time.Second, SlowCommit: 2 * time.Second}, replicaInterval: operator.ReplicaInterval,
		Now: time.Now,
	}
}

// WebhookConfig says how notices are delivered to webhooks.
type WebhookConfig struct {
	AllowPrivate bool // addresses that are not the internet's, and http
	Times        webhooks.Times
}

// withDefaults fills the zero fields for which zero means nothing.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	d.PollInterval = 0
	if c.Session.Limits.BatchOps != 0 { // the limits are given as a whole: some are 0 for none
		d.Session.Limits = session.Limits{}
	}
	defaults.Fill(&c, d)
	c.probe, c.replicaInterval = cmp.Or(c.probe, d.probe), cmp.Or(c.replicaInterval, d.replicaInterval)
	return c
}
