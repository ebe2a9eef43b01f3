package relay

// The relay: its configuration, start and end.

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
	"github.com/mooring-rpc/mooring/internal/periodic"
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
	retryFirst  = time.Second      // after which Run tries again what could not be done; then after twice as long each time, up to retryLast
	retryLast   = 30 * time.Second
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

	// Ties, if not nil, are what mooring attach records with the same home folder: a session of these is shared and not recorded a second time.
	Ties Ties

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
	apis   []*opencodeapi.API // of Config.Opencode

	ctx   context.Context // ends with Close
	stop  context.CancelFunc
	tasks sync.WaitGroup

	creating sync.Mutex // held by one create at a time
	mu       sync.Mutex // guards shares
	shares   map[string]*share
	doubt    atomic.Bool // the server has refused something, so the space's ref may have ended

	// Each has an element if there may be something to do for Run.
	missed, unsettled chan struct{}
	forgetEvery       time.Duration
	away              bool       // opencode did not answer when it was asked last; of Run
	lastUnsettled     fault.Code // why something could not be settled when that was logged last; of Run
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
		shares: map[string]*share{}, missed: make(chan struct{}, 1), unsettled: make(chan struct{}, 1), forgetEvery: 24 * time.Hour}
	for _, at := range cfg.Opencode {
		r.apis = append(r.apis, opencodeapi.New(at))
	}
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

// load reads the shares, and goes on with what the last relay had begun.
func (r *Relay) load(ctx context.Context) error {
	records, err := readRecords(r.cfg.Dir)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if err := r.resume(ctx, rec); err != nil {
			return fmt.Errorf("the share of %s: %w", rec.External, err)
		}
	}
	r.forgetEnded()
	return nil
}

// resume goes on with a share. It commits nothing: what is left to be done of it, Run does, as there may be no room for it yet.
func (r *Relay) resume(ctx context.Context, rec record) error {
	finding := !rec.Made && rec.Ended == 0
	if finding {
		there, err := r.committed(ctx, rec.Batch)
		if err != nil {
			return err
		}
		if !there { // nobody was answered
			return rec.remove(r.cfg.Dir)
		}
		rec.Made = true
	}
	s, err := r.newShare(ctx, rec)
	if err != nil {
		return err
	}
	s.unsaved = finding
	s.behind = true
	r.noteMissed()
	if s.unsettled() {
		r.noteUnsettled()
	}
	r.shares[rec.ID] = s
	return nil
}

// Run does what goes on in the background until ctx ends: it settles what could not be saved or committed at once, forgets what has long
// ended, and with Config.Opencode catches up.
func (r *Relay) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { repeat(ctx, r.unsettled, r.settleAll) })
	loops.Go(func() { periodic.Do(ctx, r.forgetEvery, r.forgetEnded) })
	if len(r.cfg.Opencode) > 0 {
		loops.Go(func() { repeat(ctx, r.missed, r.catchUpAll) })
	}
	loops.Wait()
	return nil
}

// repeat calls do when wake has an element, and again with longer and longer pauses until it reports that nothing is left.
func repeat(ctx context.Context, wake <-chan struct{}, do func(context.Context) (done bool)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for pause := retryFirst; !do(ctx); pause = min(2*pause, retryLast) {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				pause = retryFirst
			case <-time.After(pause):
			}
		}
	}
}

// Close ends what runs in the background and waits for it; the client is not closed.
func (r *Relay) Close() error {
	r.stop()
	r.tasks.Wait()
	for _, api := range r.apis {
		api.Close()
	}
	return nil
}

// all returns all shares.
func (r *Relay) all() []*share {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.shares))
}

// find returns a share by its public id, also one that has ended; NotFound if there is none.
func (r *Relay) find(id string) (*share, error) {
	r.mu.Lock()
	s := r.shares[id]
	r.mu.Unlock()
	if s == nil {
		return nil, fault.NotFound.With("there is no such share")
	}
	return s, nil
}

// noteMissed has Run catch up.
func (r *Relay) noteMissed() { wake(r.missed) }

// noteUnsettled has Run settle shares.
func (r *Relay) noteUnsettled() { wake(r.unsettled) }

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
