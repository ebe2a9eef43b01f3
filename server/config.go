// Config: everything a server is told from outside, with its bounds.

package server

import (
	"log/slog"
	"time"

	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// Config says what a Server works with. Store is required; every other zero
// field takes its value from DefaultConfig, but where zero says something.
type Config struct {
	Store Store
	Log   *slog.Logger // nil discards; never gets a secret
	Name  string       // what hello tells: "mooring/v1.2.3"

	Session session.Config // limits of ops, and the turns' lease
	RPC     rpc.Limits     // of one connection

	Prefix         string   // path below which /capnp and /rpc are served as well, without slashes at its ends; "" for none
	OriginPatterns []string // browser origins let in besides the server's own host
	Hosts          []string // HOST[:PORT]s by which the server is called over loopback, besides localhost and loopback's addresses; beyond: 421

	// PollInterval is how often the rows of followed sessions are looked at for
	// what other replicas commit. 0 switches polling off: then notifications,
	// which may be lost, are all there is.
	PollInterval time.Duration
	// IgnoreNotify drops notifications, for tests of polling.
	IgnoreNotify bool

	// KeepLog is for how long events stay in the logs; what is older is trimmed,
	// the state kept. 0 keeps everything.
	KeepLog time.Duration
	// KeepDeleted is for how long the events, streams and refs of deleted sessions stay, whose
	// payloads are gone. 0 keeps them.
	KeepDeleted time.Duration

	// SoleServer says that no other server can be on the database: when this one
	// starts, nobody is streaming.
	SoleServer bool

	// Transactions is how many group commits may run at once: 1 on a database
	// with a single writer.
	Transactions int
	GroupOps     int // op intents in one transaction; a larger batch goes alone
	GroupBytes   int // argument bytes in one transaction; a larger batch goes alone
	QueueOps     int // op intents that may wait for one, of one session three quarters; beyond: overloaded
	QueueBytes   int // argument bytes that may wait for one, of one session three quarters; beyond: overloaded

	BatchesInFlight int // unanswered applies on one stream; beyond: overloaded

	// ReadOnlyStreams is how many streams may be made under a ref that can change nothing in
	// the session (dead, or with read alone), of a space's ref in all sessions: beyond
	// that the ref's own code answers. Their outcomes are session.MaxIdleUnacked each.
	ReadOnlyStreams int

	// Audiences are the HOST:PORTs at which clients reach this server: a proof for
	// a sealed ref that names none of them was made for another server.
	Audiences []string

	// WrongTries is how many unknown or wrong refs one address may try at once, and
	// WrongTryInterval how long it then has to wait for the answer to each more. A
	// ref that is right is answered at once whatever others of its address try.
	WrongTries       int
	WrongTryInterval time.Duration

	// StrangerBytes is what all peers that have shown no ref yet may have the server
	// hold, an address half of it. KnownBytes is what the others may, and RefBytes
	// those under one ref: what is being read of them, decoded, and not answered.
	// Beyond: they wait a while, and are refused as overloaded then.
	StrangerBytes int
	KnownBytes    int
	RefBytes      int

	Connections           int // at once; beyond: 503, or an abort on a byte stream
	ConnectionsPerAddress int // at once from one address (an IPv6 /64, a Unix socket); beyond: as above
	Handshakes            int // HTTP connections that are no WebSocket yet; beyond: the address with most of them loses its oldest
	Subscriptions         int // on one connection; beyond: overloaded
	WindowBytes           int // of a subscription that does not say
	MaxWindowBytes        int // of one that does
	Snapshots             int // sent at once, half of them of a connection and not all of an address or a ref; beyond: they wait, for StallTimeout, and then: overloaded
	FoldBytes             int // of a log that a snapshot of an earlier cursor holds in memory; beyond: too_large

	BatchTimeout  time.Duration // a batch of Cap'n Web, from its request's head to the last answer
	CommitTimeout time.Duration // one transaction
	ReadTimeout   time.Duration // one read of the database
	StallTimeout  time.Duration // a snapshot's subscriber that takes nothing for so long is ended
	SweepInterval time.Duration // how often lapsed turns are looked for
	DrainTimeout  time.Duration // stopping may take so long, and what runs then three quarters of it

	// DrainDelay is how long, before it drains, a server that is to stop goes on as ever but
	// for /readyz, by which balancers send nobody new there. 0 drains at once.
	DrainDelay time.Duration

	// MeasureInterval is how often what a session holds is measured anew while it meets its quota.
	MeasureInterval time.Duration

	// CountInterval is how often all sessions are counted, for the metrics.
	CountInterval time.Duration

	// AuditWindow is how long uses of a ref, and strangers' tries, are counted for
	// one row of the audit.
	AuditWindow time.Duration

	probe probeConfig // whether commits succeed, when one has failed

	Now func() time.Time // this machine's clock, for hello and timers; the database's decides
}

// DefaultConfig is a server for a small machine. Store is missing.
func DefaultConfig() Config {
	limits := rpc.DefaultLimits()
	limits.MessageBytes, limits.SendBytes = 16<<20, 64<<20                 // a fork's event is larger than any batch
	limits.PingInterval, limits.PingTimeout = 6*time.Second, 3*time.Second // clients ping after 5, and spare us ours
	limits.HandshakeTimeout, limits.IdleTimeout = 10*time.Second, 5*time.Minute
	return Config{
		Log: slog.New(slog.DiscardHandler), Name: "mooring",
		Session: session.DefaultConfig(), RPC: limits,
		PollInterval: time.Second,
		Transactions: 2, GroupOps: 4000, GroupBytes: 8 << 20, QueueOps: 50_000, QueueBytes: 64 << 20,
		BatchesInFlight: 64, ReadOnlyStreams: 16,
		StrangerBytes: 256 << 20, KnownBytes: 1 << 30, RefBytes: 256 << 20,
		WrongTries: 10, WrongTryInterval: time.Second,
		Connections: 10_000, ConnectionsPerAddress: 1000, Handshakes: 2000, Subscriptions: 1024, WindowBytes: 1 << 20, MaxWindowBytes: 8 << 20, Snapshots: 4, FoldBytes: 128 << 20,
		BatchTimeout: time.Minute, CommitTimeout: 30 * time.Second, ReadTimeout: 30 * time.Second, StallTimeout: 30 * time.Second,
		SweepInterval: 5 * time.Second, DrainTimeout: 10 * time.Second, AuditWindow: time.Minute, MeasureInterval: 10 * time.Minute, CountInterval: 5 * time.Minute,
		probe: probeConfig{interval: time.Second, timeout: 5 * time.Second, slowCommit: 2 * time.Second},
		Now:   time.Now,
	}
}

// withDefaults fills the zero fields for which zero says nothing.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.Log == nil {
		c.Log = d.Log
	}
	if c.Name == "" {
		c.Name = d.Name
	}
	if c.Session.Limits.BatchOps == 0 {
		c.Session.Limits = d.Session.Limits
	}
	if c.probe == (probeConfig{}) {
		c.probe = d.probe
	}
	if c.Now == nil {
		c.Now = d.Now
	}
	for _, f := range []struct {
		have *int
		want int
	}{
		{&c.Transactions, d.Transactions}, {&c.GroupOps, d.GroupOps}, {&c.GroupBytes, d.GroupBytes},
		{&c.QueueOps, d.QueueOps}, {&c.QueueBytes, d.QueueBytes}, {&c.BatchesInFlight, d.BatchesInFlight},
		{&c.ReadOnlyStreams, d.ReadOnlyStreams}, {&c.WrongTries, d.WrongTries},
		{&c.StrangerBytes, d.StrangerBytes}, {&c.KnownBytes, d.KnownBytes}, {&c.RefBytes, d.RefBytes},
		{&c.Connections, d.Connections}, {&c.ConnectionsPerAddress, d.ConnectionsPerAddress}, {&c.Handshakes, d.Handshakes},
		{&c.Subscriptions, d.Subscriptions},
		{&c.WindowBytes, d.WindowBytes}, {&c.MaxWindowBytes, d.MaxWindowBytes}, {&c.Snapshots, d.Snapshots}, {&c.FoldBytes, d.FoldBytes},
		{&c.RPC.MessageBytes, d.RPC.MessageBytes}, {&c.RPC.SendBytes, d.RPC.SendBytes}, {&c.RPC.QueuedBytes, d.RPC.QueuedBytes}, {&c.RPC.Questions, d.RPC.Questions},
	} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	for _, f := range []struct {
		have *time.Duration
		want time.Duration
	}{
		{&c.BatchTimeout, d.BatchTimeout}, {&c.CommitTimeout, d.CommitTimeout}, {&c.ReadTimeout, d.ReadTimeout}, {&c.StallTimeout, d.StallTimeout},
		{&c.SweepInterval, d.SweepInterval}, {&c.WrongTryInterval, d.WrongTryInterval}, {&c.DrainTimeout, d.DrainTimeout}, {&c.AuditWindow, d.AuditWindow}, {&c.MeasureInterval, d.MeasureInterval}, {&c.CountInterval, d.CountInterval},
		{&c.RPC.HandshakeTimeout, d.RPC.HandshakeTimeout}, {&c.RPC.IdleTimeout, d.RPC.IdleTimeout},
		{&c.RPC.PingInterval, d.RPC.PingInterval}, {&c.RPC.PingTimeout, d.RPC.PingTimeout}, {&c.Session.Lease, d.Session.Lease},
	} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	return c
}
