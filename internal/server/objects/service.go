// Service: what the objects of all connections share, and a connection's state, which its objects
// share.

package objects

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// Config configures a Service. All fields are required, unless zero says what it means.
type Config struct {
	Context context.Context // of work that outlives its caller
	Log     *slog.Logger
	Now     func() time.Time

	// The server's facts in hello's answer, beside the limits.
	Name    string
	History func() string // id of the database's history; "" if it is not known yet
	// Features returns the features in use.
	Features func() session.Features

	Audiences []string // HOST:PORTs at which clients reach this server

	Limits          session.Limits
	MessageBytes    int // of one message
	ReadOnlyStreams int // that may be made under a ref that can change nothing
	WindowBytes     int // of a subscription that asks for none
	MaxWindowBytes  int // that a subscription may ask for
	Conn            ConnLimits

	ReadTimeout   time.Duration // of one read
	CommitTimeout time.Duration // of one transaction
	Transactions  int           // at once, of one call

	Store        Store
	Hub          *fanout.Hub
	Snapshots    *fanout.Snapshots
	Committer    *commit.Committer
	AuthThrottle *admission.AuthThrottle
	Audit        *admission.Auditor
	Usage        *admission.UsageCounter
	Instruments  *admission.Instruments
	LimitHits    *admission.LimitHits

	Webhooks *WebhookConfig // nil: none may be registered
}

// ConnLimits are the limits of one connection.
type ConnLimits struct {
	InFlight      int // bytes in flight to its subscriptions
	Subscriptions int // at once; beyond: overloaded
	Snapshots     int // sent at once, or waiting for that
	Batches       int // unanswered on one stream; beyond: overloaded
}

// Store is the store of the objects. A method that writes is one transaction. A method that
// reads returns authority and rows of one snapshot.
type Store interface {
	authority.RedemptionStore
	fanout.SnapshotStore
	session.Reader

	// Update runs fn in one read-write transaction and commits if fn returns nil; otherwise
	// it returns fn's error unchanged.
	Update(ctx context.Context, fn func(session.Tx) error) error

	// OpenStream opens the stream of the request's secret (session.StreamFor), or makes it,
	// and raises its incarnation. Errors: WrongOutbox, Fenced, session.ErrReadOnlyStreams.
	OpenStream(ctx context.Context, o session.StreamRequest) (*ledger.Stream, error)

	// FindManaged returns a session's row and the grant of a space's ref, and whether the ref has
	// opened the session (maintain.OpenManaged).
	FindManaged(ctx context.Context, id, ref string) (access *session.Access, opened bool, err error)

	// SessionRoots returns the grants of a session that were made from none of it: the owner's that lives, those that
	// it replaced, then others, the first made first.
	SessionRoots(ctx context.Context, id string) ([]*capability.Grant, error)

	// ReadWebhooks returns a session's webhooks. ChangeWebhooks makes, under its session's lock, the change that decide returns, nil for
	// none; decide's error is returned unchanged.
	ReadWebhooks(ctx context.Context, id string, refs []string) (*session.Access, []*session.Webhook, error)
	ChangeWebhooks(ctx context.Context, id string, refs []string, decide func(*session.Access, []*session.Webhook) (*session.WebhookChange, error)) error

	// FindStreams returns the existing streams among keys, with the session's row and grants.
	FindStreams(ctx context.Context, keys []session.StreamKey, refs []string) (*session.Access, map[session.StreamKey]*ledger.Stream, error)
}

// Service is what the objects of all connections share. It is safe for concurrent use.
type Service struct {
	cfg        Config
	redeemer   *authority.Redeemer
	connLimits atomic.Pointer[ConnLimits]

	fastBatches, generatedBatches atomic.Uint64 // batches by decoder
}

// New returns a Service.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, redeemer: authority.NewRedeemer(authority.RedeemerConfig{
		Store: cfg.Store, Audit: cfg.Audit, Now: cfg.Now, ReadTimeout: cfg.ReadTimeout, Audiences: cfg.Audiences})}
	s.SetConnLimits(cfg.Conn)
	return s
}

// SetConnLimits changes the limits of further connections.
func (s *Service) SetConnLimits(l ConnLimits) { s.connLimits.Store(&l) }

// BatchesRead returns how many batches were read by hand, and by the generated code.
func (s *Service) BatchesRead() (byHand, generated uint64) {
	return s.fastBatches.Load(), s.generatedBatches.Load()
}

// commitContext returns the context of a transaction that outlives its caller.
func (s *Service) commitContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.cfg.Context, s.cfg.CommitTimeout)
}

// ConnState is the state that the objects of one connection share.
type ConnState struct {
	log        *slog.Logger
	peer       string             // the remote address, for the audit
	peerConn   admission.PeerConn // the connection
	intake     *intake.Peer       // memory for its messages; nil for a handler in this process
	maxBatches int                // unanswered on one stream
	saved      *savedRefs
	flow       *fanout.Flow // to its subscriptions
}

// NewConnState returns the state of a connection from remote; SetPeer completes it.
func (s *Service) NewConnState(remote string, in *intake.Peer) *ConnState {
	limits := s.connLimits.Load()
	l := &ConnState{log: s.cfg.Log, peer: admission.PeerName(remote), intake: in, maxBatches: limits.Batches, saved: newSavedRefs()}
	l.flow = fanout.NewFlow(fanout.FlowConfig{Address: admission.AddressOf(remote), Done: func() <-chan struct{} { return l.peerConn.Done() },
		InFlight: limits.InFlight, Subscriptions: limits.Subscriptions, Snapshots: limits.Snapshots, LimitHits: s.cfg.LimitHits})
	return l
}

// SetPeer sets the connection itself, before its first call.
func (l *ConnState) SetPeer(conn admission.PeerConn) { l.peerConn = conn }

// Gateway returns the bootstrap object of the connection.
func (s *Service) Gateway(l *ConnState) rpc.Object { return &gateway{service: s, conn: l} }

// InterfaceOf returns the schema's interface of an object that is passed where the schema says any capability: a Session's or
// a Space's; 0 for one that peers cannot call there.
func InterfaceOf(o rpc.Object) uint64 {
	switch o.(type) {
	case *sess:
		return wire.Session_TypeID
	case *space:
		return wire.Space_TypeID
	}
	return 0
}

// Flow returns the flow to the connection's subscriptions.
func (l *ConnState) Flow() *fanout.Flow { return l.flow }

// cursorOf returns the cursor of the session, 0 if there is none.
func cursorOf(at *session.Access) uint64 {
	if at.Row == nil {
		return 0
	}
	return at.Row.Cursor
}
