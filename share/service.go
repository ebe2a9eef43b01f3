// Package share serves opencode's share API: what an unmodified opencode calls when
// a session is shared becomes a session, refs and ops of this server. It is a face of
// the server (server.Mount), over HTTP (http.go) and over Cap'n Web (rpc.go).
//
// What a share is made of, a line a ref, each minted from the one before:
//
//	the maker's space ref, with the right to create and nothing else (creator.go)
//	  owner      of the session; nobody holds it, its secret is thrown away
//	    share    everything under the share; nobody holds it. Revoked, the share is over
//	      reader of whoever has the public id; nobody holds it
//	      writer one for each create: its secret is what opencode calls the secret
//
// The public id is random and names none of them; the table of public shares does.
// Its row is written before the session is made, so that a crash at any step leaves
// what the same create, said again, finishes (create.go). A sync (sync.go) becomes
// puts, and is answered when they are committed. A DELETE revokes the share's ref: one
// cut for readers and writers. A create after that makes another session with a share:
// what was synced before is in the old one, which is the space's owner's alone.
package share

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/opencode"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
)

// Store keeps the rows of public shares. The package store has one.
type Store interface {
	// PublishShare writes a share's row unless the same was asked for a moment ago
	// and stands: that is given then; FindShare gives one by id (NotFound); SharesOf
	// the living ones of sessions, ListShares all that live, a page at a time.
	PublishShare(ctx context.Context, share capability.PublicShare, ask capability.ShareRequest) (standing *capability.PublicShare, err error)
	FindShare(ctx context.Context, id string) (*capability.PublicShare, error)
	SharesOf(ctx context.Context, sessions []string) (map[string]*capability.PublicShare, error)
	ListShares(ctx context.Context, after string, limit int) (list []session.SharedListing, next string, err error)

	// Refusals gives what a session lacks of what was synced to it, by key;
	// ChangeRefusals adds to that and takes away from it.
	Refusals(ctx context.Context, session string) ([]Refusal, error)
	ChangeRefusals(ctx context.Context, session string, add []Refusal, drop []string) error

	// MintedFrom gives the living refs that were minted from one, the oldest first;
	// Look the rows of a session and refs.
	MintedFrom(ctx context.Context, ref string, limit int) ([]*capability.Grant, error)
	ReadAccess(ctx context.Context, session string, refs []string) (*session.Access, error)

	// FirstSpace is the space that the first start made; MintUnderRoot mints a ref
	// of a space as its operator, once, and gives its row.
	FirstSpace(ctx context.Context) (space string, err error)
	MintUnderRoot(ctx context.Context, m capability.MintRequest) (*capability.Grant, error)
}

// Config says what a Service works with. Store and Server are required; every other
// zero field takes its value from DefaultConfig, but where zero says something.
type Config struct {
	Store  Store
	Server *server.Server
	Log    *slog.Logger // nil discards

	// Base is what public URLs begin with, "https://host[/prefix]"; "" takes the
	// host that a request names.
	Base string
	// Key is what x-opencode-share-key must be to create from anywhere and to list;
	// "" lets nobody in that way.
	Key string
	// NoLoopback refuses creates of those on this machine that show neither key nor ref.
	NoLoopback bool
	// OriginPatterns are the browser origins let in to /rpc/share and /ws besides the
	// server's own.
	OriginPatterns []string

	CommitLimits   opencode.Limits // what the session takes in one commit
	BodyBytes      int             // of one sync, which is read as it comes; beyond: refused
	MessageBytes   int             // of one message of Cap'n Web, which is held whole; beyond: refused
	MaxOrdered     int             // messages, or parts, of a share that are put in order at once; more take more passes
	Requests       int             // syncs and reads of one address at once; beyond: they wait, then are refused
	CreatesPerHour int             // of one address; beyond: refused
	CreateBurst    int             // of one address at once, before that rate begins to count
	Writers        int             // secrets of a share that are good at once; beyond: the oldest ends
	DedupeWindow   time.Duration   // a create that is said again within it gives the same share

	BodyTimeout  time.Duration // for a body to arrive
	SyncTimeout  time.Duration // for what has arrived to be committed, and for room for it
	StallTimeout time.Duration // a reader that takes nothing for so long is cut off
	PingInterval time.Duration // a silent /ws is pinged so often
	RPCTimeout   time.Duration // a batch of Cap'n Web, from its request's head to the last answer
}

// DefaultConfig is for a small machine. Store and Server are missing.
func DefaultConfig() Config {
	return Config{
		Log:          slog.New(slog.DiscardHandler),
		CommitLimits: opencode.Limits{Ops: 1000, Bytes: 8 << 20, Payload: 4 << 20},
		BodyBytes:    512 << 20, MessageBytes: 32 << 20, MaxOrdered: 1 << 17, Requests: 32,
		CreatesPerHour: 3600, CreateBurst: 120, Writers: 16, DedupeWindow: 10 * time.Minute,
		BodyTimeout: 2 * time.Minute, SyncTimeout: 30 * time.Second, StallTimeout: 30 * time.Second,
		PingInterval: 20 * time.Second, RPCTimeout: 2 * time.Minute,
	}
}

func (c Config) withDefaults() Config {
	d := DefaultConfig()
	if c.Log == nil {
		c.Log = d.Log
	}
	if c.CommitLimits == (opencode.Limits{}) {
		c.CommitLimits = d.CommitLimits
	}
	for _, f := range []struct {
		have *int
		want int
	}{
		{&c.BodyBytes, d.BodyBytes}, {&c.MessageBytes, d.MessageBytes}, {&c.MaxOrdered, d.MaxOrdered}, {&c.Requests, d.Requests},
		{&c.CreatesPerHour, d.CreatesPerHour}, {&c.CreateBurst, d.CreateBurst}, {&c.Writers, d.Writers},
	} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	for _, f := range []struct {
		have *time.Duration
		want time.Duration
	}{
		{&c.DedupeWindow, d.DedupeWindow}, {&c.BodyTimeout, d.BodyTimeout}, {&c.SyncTimeout, d.SyncTimeout}, {&c.StallTimeout, d.StallTimeout},
		{&c.PingInterval, d.PingInterval}, {&c.RPCTimeout, d.RPCTimeout},
	} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	c.MessageBytes = min(c.MessageBytes, c.BodyBytes)
	return c
}

// Service is the API behind all its wires. Its methods may be called concurrently;
// their errors are faults.
type Service struct {
	cfg            Config                 // of the start
	liveConfig     atomic.Pointer[Config] // those that SetLimits names
	createThrottle *createThrottle
	slots          *addressSlots
	writeQueue     writeQueue

	mu          sync.Mutex
	serverRefID string // of the server's own ref, once it is known to be there
}

// New makes a service. Mount puts it on its server.
func New(cfg Config) *Service {
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, createThrottle: newCreateThrottle(cfg.CreateBurst, cfg.CreatesPerHour), slots: newAddressSlots(cfg.Requests, cfg.SyncTimeout)}
	s.liveConfig.Store(&cfg)
	return s
}

// SetLimits has those limits of cfg hold from now on that are of bodies, requests, creates and
// secrets. What has begun ends under those that it began with.
func (s *Service) SetLimits(cfg Config) {
	cfg = cfg.withDefaults()
	s.liveConfig.Store(&cfg)
	s.createThrottle.setRate(cfg.CreatesPerHour)
	s.slots.setLimits(cfg.Requests, cfg.SyncTimeout)
}

// Public is the session that a public share id shows, as its read-only ref does.
// Errors: NotFound if there is no such share, which may take long to hear, as that a
// ref is wrong does; Revoked, StaleEpoch, SessionDeleted … come from using what it
// gives.
func (s *Service) Public(ctx context.Context, c *server.Caller, id string) (*server.Capability, error) {
	p, err := s.findShare(ctx, c, id)
	if err != nil {
		return nil, err
	}
	return c.Assume(p.Reader), nil
}

// PublicIDs gives the ids of the living public shares of sessions, by session id.
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

// findShare is a share by its id. Who guesses waits.
func (s *Service) findShare(ctx context.Context, c *server.Caller, id string) (*capability.PublicShare, error) {
	if !isPublicID(id) {
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

// throttled is why, once the caller may be told that it was wrong.
func (s *Service) throttled(c *server.Caller, why *fault.Error) error {
	if err := c.ThrottleFailure(); err != nil {
		return err
	}
	return why
}

// toFault is what a caller is told of err. What is no fault is a defect of ours, and
// goes to the log.
func (s *Service) toFault(ctx context.Context, err error, doing string) error {
	if err == nil {
		return nil
	}
	return s.faultOf(ctx, err, doing)
}

// faultOf is fault of an error that there is.
func (s *Service) faultOf(ctx context.Context, err error, doing string) *fault.Error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.ContextError(err, nil)
	}
	return fault.Unexpected(s.cfg.Log, err, doing, "request", server.RequestID(ctx))
}
