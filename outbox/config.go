package outbox

// Settings and bounds.

import (
	"log/slog"
	"time"

	"github.com/mooring-rpc/mooring/ledger"
)

// Limits bound what Commit takes. Zero fields take the default.
type Limits struct {
	BatchOps     int   // op intents in a batch; default ledger.DefaultLimits
	BatchBytes   int   // argument bytes of a batch in all
	PayloadBytes int   // one argument
	Rows         int   // unfinished op intents in the outbox; default 1,000,000
	Bytes        int64 // their encoded bytes; default 4 GiB
}

// Window bounds what one stream has in flight, and how many streams there are.
// Zero fields take the default.
type Window struct {
	Batches int // batches sent and not answered, a stream; default 64
	Bytes   int // their bytes; default 4 MiB (one batch may always be in flight)
	Streams int // streams open at once; others wait their turn; default 128
}

// Backoff says how long to wait before what failed is tried again: Initial,
// then Factor times longer each time up to Max, each made random by ±Jitter.
// Zero fields take the default.
type Backoff struct {
	Initial time.Duration // default 200 ms
	Max     time.Duration // default 30 s
	Factor  float64       // default 2
	Jitter  float64       // share of the interval, 0 to 1; default 0.5
}

// Config is how an outbox behaves. The zero Config is a good one.
type Config struct {
	Limits  Limits
	Window  Window
	Backoff Backoff
	Logger  *slog.Logger     // default: discards
	Now     func() time.Time // of row times, and of the lease on SQLite; default time.Now

	Lease     time.Duration // how long the sender's lease lasts without renewal; default 10 s
	Poll      time.Duration // how often the sender looks for what other processes committed; default 100 ms on SQLite, 1 s on Postgres (which also listens)
	AckDelay  time.Duration // how long outcomes may wait to be stored together; default 20 ms
	Retention time.Duration // how long tickets last; default 30 days

	// Connections are how many a process has to one Postgres URL at most, over all its
	// Boxes: default 4 (or pool_max_conns of the URL), 3 at least. One of them listens.
	// What nobody uses is closed after a few seconds.
	Connections int

	AllowUnsafe bool // take a Postgres that is set to lose commits (fsync or synchronous_commit off)

	driver string // SQLite's, other than "sqlite", for tests
}

// withDefaults fills in what is zero.
func (c Config) withDefaults(poll time.Duration) Config {
	lim := ledger.DefaultLimits()
	setDefault(&c.Limits.BatchOps, lim.BatchOps)
	setDefault(&c.Limits.BatchBytes, lim.BatchBytes)
	setDefault(&c.Limits.PayloadBytes, lim.PayloadBytes)
	setDefault(&c.Limits.Rows, 1_000_000)
	setDefault(&c.Limits.Bytes, 4<<30)
	setDefault(&c.Window.Batches, 64)
	setDefault(&c.Window.Bytes, 4<<20)
	setDefault(&c.Window.Streams, 128)
	setDefault(&c.Backoff.Initial, 200*time.Millisecond)
	setDefault(&c.Backoff.Max, 30*time.Second)
	setDefault(&c.Backoff.Factor, 2)
	setDefault(&c.Backoff.Jitter, 0.5)
	setDefault(&c.Lease, 10*time.Second)
	setDefault(&c.Poll, poll)
	setDefault(&c.AckDelay, 20*time.Millisecond)
	setDefault(&c.Retention, 30*24*time.Hour)
	setDefault(&c.driver, "sqlite")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func setDefault[T int | int64 | float64 | string | time.Duration](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// ledger is the part of the limits that the server checks too.
func (l Limits) ledger() ledger.Limits {
	return ledger.Limits{BatchOps: l.BatchOps, BatchBytes: l.BatchBytes, PayloadBytes: l.PayloadBytes}
}
