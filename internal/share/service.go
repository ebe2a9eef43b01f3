package share

// The service: its configuration, and the shares it looks up.

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/writequeue"
)

// Store holds the rows of public shares. Package store implements it.
type Store interface {
	// PublishShare writes a share's row, unless the same request has one from within the dedupe
	// window: that row is returned then. FindShare returns a share by id (NotFound); SharesOf the
	// living ones of sessions; ListShares all living ones, a page at a time.
	PublishShare(ctx context.Context, share capability.PublicShare, ask capability.ShareRequest) (standing *capability.PublicShare, err error)
	FindShare(ctx context.Context, id string) (*capability.PublicShare, error)
	SharesOf(ctx context.Context, sessions []string) (map[string]*capability.PublicShare, error)
	ListShares(ctx context.Context, after string, limit int) (list []session.SharedListing, next string, err error)

	// Refusals returns the refusals of a session; ChangeRefusals adds some and drops others by
	// key.
	Refusals(ctx context.Context, session string) ([]refusal, error)
	ChangeRefusals(ctx context.Context, session string, add []refusal, drop []string) error

	// MintedFrom returns the living refs minted from one, oldest first; ReadAccess the rows of a
	// session and refs.
	MintedFrom(ctx context.Context, ref string, limit int) ([]*capability.Grant, error)
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)

	// FirstSpace returns the space made at the first start; MintUnderRoot mints a ref of a space
	// as its operator, once, and returns its row.
	FirstSpace(ctx context.Context) (space string, err error)
	MintUnderRoot(ctx context.Context, m capability.MintRequest) (*capability.Grant, error)
}

// Config configures a Service. Store and Server are required; other zero fields take their value
// from DefaultConfig, except where zero has a meaning.
type Config struct {
	Store  Store
	Server *node.Server
	Log    *slog.Logger // nil discards

	// Base is the start of public URLs, "https://host[/prefix]"; "" takes the host that a request
	// names.
	Base string
	// Key is the x-opencode-share-key that allows creating from anywhere, and listing; "" allows
	// neither.
	Key string
	// NoLoopback refuses creates from this machine that present neither key nor ref.
	NoLoopback bool
	// OriginPatterns are the browser origins allowed at /rpc/share and /ws besides the server's
	// own.
	OriginPatterns []string

	CommitLimits   opencode.Limits // the session's limits for one commit
	BodyBytes      int             // of one sync, which is read as a stream; beyond: refused
	MessageBytes   int             // of one message of Cap'n Web, which is held whole; beyond: refused
	MaxOrdered     int             // messages, or parts, of a share sorted at once; more take more passes
	Requests       int             // syncs and reads of one address at once; beyond: they wait, then are refused
	CreatesPerHour int             // of one address; beyond: refused
	CreateBurst    int             // of one address at once, before that rate applies
	Writers        int             // secrets of a share that are valid at once; beyond: the oldest ends
	DedupeWindow   time.Duration   // a create repeated within it returns the same share

	BodyTimeout  time.Duration // for a body to arrive
	SyncTimeout  time.Duration // to commit received items, and to wait for a slot
	StallTimeout time.Duration // a reader that takes nothing for this long is disconnected
	PingInterval time.Duration // a /ws to which nothing was written for this long is pinged, and has as long to answer
	RPCTimeout   time.Duration // a batch of Cap'n Web, from its request's head to the last answer
}

// DefaultConfig returns the defaults, for a small machine. Store and Server are not set.
func DefaultConfig() Config {
	return Config{
		Log:          slog.New(slog.DiscardHandler),
		CommitLimits: opencode.Limits{Ops: 1000, Bytes: 8 << 20, Payload: 4 << 20},
		BodyBytes:    512 << 20, MessageBytes: 32 << 20, MaxOrdered: 1 << 17, Requests: 32,
		CreatesPerHour: 3600, CreateBurst: 120, Writers: 16, DedupeWindow: 10 * time.Minute,
		BodyTimeout: 2 * time.Minute, SyncTimeout: 30 * time.Second, StallTimeout: 30 * time.Second,
		PingInterval: 30 * time.Second, RPCTimeout: 2 * time.Minute,
	}
}

func (c Config) withDefaults() Config {
	defaults.Fill(&c, DefaultConfig())
	c.MessageBytes = min(c.MessageBytes, c.BodyBytes)
	return c
}

// Service is the API over all its protocols. Its methods may be called concurrently; their errors
// are faults.
type Service struct {
	cfg            Config                 // as of the start
	liveConfig     atomic.Pointer[Config] // with the limits that SetLimits changes
	createThrottle *createThrottle
	slots          *addressSlots
	writeQueue     writequeue.Queue
	mux            *http.ServeMux

	mu          sync.Mutex
	serverRefID string // of the server's own ref, once it is known to exist
}

// New returns a service. Mount registers it with its server.
func New(cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, createThrottle: newCreateThrottle(cfg.CreateBurst, cfg.CreatesPerHour), slots: newAddressSlots(cfg.Requests, cfg.SyncTimeout)}
	s.liveConfig.Store(&cfg)
	s.mux = s.newMux()
	return s
}

// SetLimits applies cfg's limits of bodies, requests, creates and secrets from now on. Requests
// in progress end under the limits they began with.
func (s *Service) SetLimits(cfg Config) {
	cfg = cfg.withDefaults()
	s.liveConfig.Store(&cfg)
	s.createThrottle.setRate(cfg.CreatesPerHour)
	s.slots.setLimits(cfg.Requests, cfg.SyncTimeout)
}

// Public returns the session that a public share id shows, under its read-only ref. The error is
// NotFound if there is no such share, which like a wrong ref may be delayed by the throttle;
// Revoked, StaleEpoch, SessionDeleted and others are returned by the capability's methods.
func (s *Service) Public(ctx context.Context, c *objects.Caller, id string) (*objects.Capability, error) {
	p, err := s.findShare(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return c.Assume(p.Reader), nil
}

// PublicIDs returns the ids of the living public shares of sessions, by session id.
func (s *Service) PublicIDs(ctx context.Context, sessions []string) (map[string]string, error) {
	shares, err := s.cfg.Store.SharesOf(ctx, sessions)
	if err != nil {
		return nil, s.toFault(ctx, err, "find shares")
	}
	ids := make(map[string]string, len(shares))
	for of, p := range shares {
		ids[of] = p.ID
	}
	return ids, nil
}

// findShare returns a share by its id. Unknown ids are throttled.
func (s *Service) findShare(ctx context.Context, c *objects.Caller, id string) (*capability.PublicShare, error) {
	if !capability.IsPublicID(id) {
		return nil, s.throttled(c, fault.NotFound.With("there is no such share"))
	}
	p, err := s.cfg.Store.FindShare(ctx, id)
	switch {
	case errors.Is(err, fault.NotFound):
		return nil, s.throttled(c, fault.NotFound.With("there is no such share"))
	case err != nil:
		return nil, s.toFault(ctx, err, "find the share")
	}
	return p, nil
}

// throttled returns why after the delay for a wrong guess.
func (s *Service) throttled(c *objects.Caller, why *fault.Error) error {
	if err := c.ThrottleFailure(); err != nil {
		return err
	}
	return why
}

// toFault returns err as a fault, nil for nil.
func (s *Service) toFault(ctx context.Context, err error, doing string) error {
	if err == nil {
		return nil
	}
	return fault.From(s.cfg.Log, err, doing, "request", incident.FromContext(ctx))
}
