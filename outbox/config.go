package outbox

// Config and its limits; and the Link that Run gets.

import (
	"log/slog"
	"time"

	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/sender"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// Limits bound Commit. Zero fields take the default.
type Limits struct {
	BatchOps     int   // op intents in a batch; default ledger.DefaultLimits
	BatchBytes   int   // argument bytes of a batch in all; default ledger.DefaultLimits
	PayloadBytes int   // bytes of one argument; default ledger.DefaultLimits
	Rows         int   // unfinished op intents in the outbox; default 1,000,000
	Bytes        int64 // encoded bytes of unfinished op intents; default 4 GiB
}

// Window bounds what a stream has in flight, and the number of streams. Zero fields take the
// default.
type Window struct {
	Batches int // batches in flight per stream; default 64
	Bytes   int // bytes in flight per stream; default 4 MiB (one batch may always be in flight)
	Streams int // streams open at once; others wait their turn; default 128
}

// Backoff is the wait before a retry: Initial, then Factor times longer each time up to Max,
// each randomized by ±Jitter. Zero fields take the default.
type Backoff struct {
	Initial time.Duration // default 200 ms
	Max     time.Duration // default 30 s
	Factor  float64       // default 2
	Jitter  float64       // share of the interval, 0 to 1; default 0.5
}

// Config configures an outbox. The zero Config is a good one.
type Config struct {
	Limits  Limits
	Window  Window
	Backoff Backoff
	Logger  *slog.Logger     // default: discards
	Now     func() time.Time // for row times, and for the lease on SQLite; default time.Now

	Lease     time.Duration // how long the sender's lease lasts without renewal; default 10 s
	Poll      time.Duration // how often to poll for others' commits; default 100 ms on SQLite, 1 s on Postgres (it also listens)
	AckDelay  time.Duration // how long outcomes may wait to be stored together; default 20 ms
	Retention time.Duration // how long tickets last; default 30 days

	// Connections bounds a process's connections to one Postgres URL, over all its Boxes:
	// default 4 (or pool_max_conns of the URL), at least 3. One of them listens. Idle
	// connections are closed after a few seconds.
	Connections int

	AllowUnsafe bool // accept a Postgres that may lose commits (fsync or synchronous_commit off)
}

// withDefaults replaces zero fields by their defaults.
func (c Config) withDefaults() Config {
	lim := ledger.DefaultLimits()
	defaults.Set(&c.Limits.BatchOps, lim.BatchOps)
	defaults.Set(&c.Limits.BatchBytes, lim.BatchBytes)
	defaults.Set(&c.Limits.PayloadBytes, lim.PayloadBytes)
	defaults.Set(&c.Limits.Rows, 1_000_000)
	defaults.Set(&c.Limits.Bytes, 4<<30)
	defaults.Set(&c.Window.Batches, 64)
	defaults.Set(&c.Window.Bytes, 4<<20)
	defaults.Set(&c.Window.Streams, 128)
	defaults.Set(&c.Backoff.Initial, 200*time.Millisecond)
	defaults.Set(&c.Backoff.Max, 30*time.Second)
	defaults.Set(&c.Backoff.Factor, 2)
	defaults.Set(&c.Backoff.Jitter, 0.5)
	defaults.Set(&c.Lease, sqlstore.DefaultLease)
	defaults.Set(&c.AckDelay, 20*time.Millisecond)
	defaults.Set(&c.Retention, 30*24*time.Hour)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// ledger returns the limits that the server checks too.
func (l Limits) ledger() ledger.Limits {
	return ledger.Limits{BatchOps: l.BatchOps, BatchBytes: l.BatchBytes, PayloadBytes: l.PayloadBytes}
}

// Link opens streams, for Run. The client implements it over rpc.
type Link = sender.Link

// StreamRequest describes the stream to open.
type StreamRequest = sender.StreamRequest

// Stream is one opened stream.
type Stream = sender.Stream

// Reply is the answer to one Stream.Apply.
type Reply = sender.Reply
