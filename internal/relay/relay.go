package relay

// The relay: its configuration, start and end.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/writequeue"
)

const (
	maxBody     = 512 << 20
	memoryBytes = 256 << 20
	maxSyncs    = 8
	maxShares   = 10_000
	maxSecrets  = 16
	keepEnded   = 30 * 24 * time.Hour
	dedupeFor   = 10 * time.Minute // a create repeated within it returns the same share
	askTimeout  = 2 * time.Second  // for an answer of the server that a create waits for
)

// Config configures a Relay. Client, Space and Dir are required.
type Config struct {
	Client *client.Client // whose outbox takes what opencode sends; open until Close
	Space  *client.Space  // in which the shares are made; its ref has the right create
	Dir    string         // of the relay's own files; one relay at a time uses it
	Log    *slog.Logger   // nil discards

	// Opencode are the addresses of opencode's own APIs, from which is read what was sent while no relay ran; none: it is missing until
	// opencode sends it again.
	Opencode []*url.URL

	Now func() time.Time // nil is time.Now
}

// Relay serves opencode's share API. It is safe for concurrent use.
type Relay struct {
	cfg    Config
	limits opencode.Limits
	mux    *http.ServeMux
	memory *membudget.Budget
	slots  *semaphore.Weighted
	queue  writequeue.Queue
	http   *http.Client // of opencode's API

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	tasks sync.WaitGroup

	creating sync.Mutex // held by one create at a time
	mu       sync.Mutex // guards shares
	shares   map[string]*share
	missed   chan struct{} // has an element if some share may have missed something
	doubt    atomic.Bool   // the server has refused something, so the space's ref may have ended
}

// New returns a relay that goes on with the shares in cfg.Dir, which Close ends. The client's outbox need not reach a server.
func New(ctx context.Context, cfg Config) (*Relay, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	lim := session.DefaultLimits()
	r := &Relay{cfg: cfg, limits: opencode.Limits{Ops: lim.BatchOps, Bytes: lim.BatchBytes, Payload: lim.PayloadBytes},
		memory: membudget.New(membudget.Config{Total: memoryBytes, MaxWait: slotTimeout}), slots: semaphore.NewWeighted(maxSyncs),
		http: newOpencodeClient(), shares: map[string]*share{}, missed: make(chan struct{}, 1)}
	r.mux = r.newMux()
	r.ctx, r.stop = context.WithCancel(context.Background())
	if err := privatedir.Make(cfg.Dir, "the relay's folder"); err != nil {
		return nil, err
	}
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// load reads the shares, and finishes what the last relay had begun.
func (r *Relay) load(ctx context.Context) error {
	records, err := readRecords(r.cfg.Dir)
	if err != nil {
		return err
	}
	for _, rec := range records {
		s, err := r.newShare(ctx, rec)
		if err == nil {
			err = r.resume(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("the share of %s: %w", rec.External, err)
		}
	}
	return nil
}

// resume finishes what was begun of a share. One that is to be forgotten is not kept.
func (r *Relay) resume(ctx context.Context, s *share) error {
	switch {
	case !s.rec.Made && s.rec.Ended == 0:
		there, err := s.created(ctx)
		if err != nil {
			return err
		}
		if !there { // nobody was answered
			return s.forget()
		}
		s.rec.Made = true
		if err := s.save(); err != nil {
			return err
		}
	case s.rec.Ended != 0 && !s.rec.EndSent:
		if err := s.sendEnd(ctx); err != nil {
			return err
		}
	case s.rec.Ended != 0 && r.cfg.Now().Sub(time.UnixMilli(s.rec.Ended)) > keepEnded:
		return s.forget()
	}
	s.behind = s.rec.Ended == 0
	r.shares[s.rec.ID] = s
	if s.behind {
		r.noteMissed()
	}
	return nil
}

// Close ends what runs in the background and waits for it; the client is not closed.
func (r *Relay) Close() error {
	r.stop()
	r.tasks.Wait()
	r.http.CloseIdleConnections()
	var err error
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shares {
		err = errors.Join(err, s.keys.close())
	}
	return err
}

// find returns a share by its public id; NotFound if there is none, or it has ended.
func (r *Relay) find(id string) (*share, error) {
	r.mu.Lock()
	s := r.shares[id]
	r.mu.Unlock()
	if s == nil {
		return nil, fault.NotFound.With("there is no such share")
	}
	return s, nil
}

// noteMissed wakes Run.
func (r *Relay) noteMissed() {
	select {
	case r.missed <- struct{}{}:
	default:
	}
}
