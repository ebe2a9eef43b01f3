package machine

// The machine's types: a stream, its entries and its host.

import (
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// Route is how a stream is opened.
type Route struct {
	Ref            string // id of the ref to go through
	Space          string // id of the space's ref, until the session is created
	ForkVia        string // id of fork's or create's via, a ref that must be held live
	Host           string // the ref's address: its streams fail together
	Fingerprint    uint64 // changes with any of the refs, including its secret
	RefsGeneration uint64 // the ref cache's generation when the route was found, if it was found outside the loop
	Confirmed      bool   // the ref is known to be good
	Rotating       bool   // another ref is about to replace the ref: nothing new is sent until it has
}

// Opens reports whether the route's ref is not one of the session, but opens it: one of its space, by the right
// manage, or of a session above, which reaches it.
func (r Route) Opens(session string) bool {
	return r.Space == "" && capability.Target(r.Ref) != session
}

// Entry is a batch with seqs that has no outcome yet. As a stream's unsequenced one it holds
// only what finding the route takes, and firstSeq is 0.
type Entry struct {
	Num              int64
	ID               string
	Session          string
	Via              string
	FirstSeq         uint64
	SeqCount         int // seqs
	Bytes            int
	PinSeq           uint64 // lowest seq of its stream it still refers to; 0: none
	Route            Route
	RouteErr         *fault.Error // why there is no route
	RetryRoute       bool         // RouteErr may be gone at the next lookup
	Damaged          bool         // RouteErr is permanent: the row cannot be read
	Body             *intent.Batch
	MarkedInFlight   bool // its row says in flight
	Attempts         int
	WireBatch        *ledger.Batch // the batch as sent, but for incarnation and acked_through
	sentAuthority    authority     // of the openings on which it was sent; zero: not sent
	authorityUnknown bool          // it was sent under several authorities, or by a former sender
}

func (e *Entry) LastSeq() uint64 { return e.FirstSeq + uint64(e.SeqCount) - 1 }

// WithBodies returns the entries that have a body in bodies, by num, with that body.
func WithBodies(entries []*Entry, bodies map[int64]*intent.Batch) (changed []*Entry) {
	for _, e := range entries {
		if bd := bodies[e.Num]; bd != nil {
			n := *e
			n.Body = bd
			n.WireBatch = bd.Wire(n.Session, n.ID, n.FirstSeq)
			changed = append(changed, &n)
		}
	}
	return changed
}

// Phase is a stream's stage.
type Phase uint8

const (
	PhaseClosed Phase = iota
	PhaseOpening
	PhaseResolvingDrops // open, but requested drops are resolved before anything is sent
	PhaseOpen
)

// Stream is the queue of one session.
type Stream struct {
	Session       string
	Phase         Phase
	connID        int      // number of the present opening; events of others are ignored
	OpenRoute     Route    // the route of the present opening
	Queue         []*Entry // with seqs, unanswered, in order
	InFlight      int      // batches of queue sent in this opening
	inFlightBytes int      // bytes of inFlight
	queuedBytes   int      // bytes of queue
	pins          int      // entries of queue with a PinSeq
	Unsequenced   *Entry   // first batch without a seq, as last loaded
	unread        bool     // Unsequenced was not loaded, but committed just now
	hasBacklog    bool     // there may be rows without a seq
	Loading       bool     // ActPeek or ActLoad is under way
	loadAgain     bool     // more rows came while loading
	BlockedOn     []string // batches of other sessions that unsequenced waits for: any may decide it
	loadedAt      time.Time
	Recheck       bool // a load was asked for within RecheckInterval of the last: load when it is over

	unstored      int    // answered batches whose outcomes are not stored
	storeFailed   bool   // outcomes of a batch cannot be stored: nothing more is acknowledged or sent in this term
	StoredThrough uint64 // outcomes are stored up to this seq
	ackedThrough  uint64 // the server knows that outcomes are stored up to this seq
	ackAt         time.Time

	Drops               map[int64]*fault.Error // batches with ops to void, by row num; the error is why, nil if requested
	dropsOnArrival      map[int64]bool         // batches to drop that were not in queue when the drop was requested
	needsNewIncarnation bool                   // raise the incarnation before opening again
	resolvingDrops      bool                   // ActResolveDrops is under way: send nothing
	recordedThrough     uint64                 // the server's last seq when drops were last resolved
	refusal             *Refusal               // the server does not create the stream: nothing is sent until ActEndRefused is done

	cwnd            int  // congestion window: batches that may be in flight
	acksAtCwnd      int  // answers since cwnd last grew
	sawOverload     bool // the server has reported overload
	answered        bool // an answer came in this opening
	consecutiveGaps int  // Gap answers in a row
	backoff         backoff.BackOff
	RetryAt         time.Time
	Stopped         *fault.Error
	inOpenQueue     bool
	inHostQueue     bool
	hostEpoch       int       // host.epoch when the opening began
	openedAt        time.Time // when it was opened
	idleSince       time.Time
	timer           timer
}

// host is an address whose streams fail together.
type host struct {
	name    string
	down    bool
	epoch   int // raised when it goes down
	probe   *Stream
	retryAt time.Time
	backoff backoff.BackOff
	waiting []*Stream
	timer   timer
}

// Window bounds what a stream has in flight, and the number of streams (outbox.Window).
type Window struct{ Batches, Bytes, Streams int }
