package webhooks

// The loop that claims webhooks, and what runs for each.

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/periodic"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/webhook"
)

// Store keeps the rows of webhooks. A method is one transaction.
type Store interface {
	// FindHooked returns those of sessions that have webhooks.
	FindHooked(ctx context.Context, sessions []string) ([]string, error)
	// ClaimWebhooks takes webhooks that have something to do and that no other server holds, for a time. now is the database's clock.
	ClaimWebhooks(ctx context.Context, c session.WebhookClaim) (claimed []*session.Webhook, now int64, err error)
	// SaveWebhook writes how far a webhook has come, and holds it for lease ms from now on, 0: no longer. held is false, and
	// nothing is written, if holder does not hold it any more.
	SaveWebhook(ctx context.Context, w *session.Webhook, holder string, lease int64) (held bool, now int64, err error)
	// ReleaseWebhooks gives back what holder holds, or "" any server.
	ReleaseWebhooks(ctx context.Context, holder string) error
}

// Config configures a Deliverer. The fields before Times are required.
type Config struct {
	Log          *slog.Logger
	Store        Store
	Objects      *objects.Service
	Instruments  *admission.Instruments
	Warn         func(label string, err error) // logs that something was not done
	Agent        string                        // of HTTP
	AllowPrivate bool                          // addresses that are not the internet's, and http
	SoleServer   bool                          // no other server uses the database
	Timeout      time.Duration                 // of one transaction

	Times
	Fast, Slow int // deliveries at a time, to webhooks that were quick the last time and to the others; default 8 each
}

// Times are the times of a Deliverer. A zero field has its default.
type Times struct {
	Lease                 time.Duration // default 60 s, and at least three times one try
	Poll                  time.Duration // default 1 s
	Pace                  time.Duration // between two looks at one session; default 200 ms
	Gather                time.Duration // for commits, before they are looked at; default 20 ms
	SlowAfter             time.Duration // of a try; default 2 s
	FirstPause, LastPause time.Duration // between tries; default 1 s to 1 h
	GiveUp                time.Duration // for which a notice is tried; default 72 h
}

func (t *Times) setDefaults() {
	defaults.Set(&t.Lease, 3*webhook.TryTimeout)
	defaults.Set(&t.Poll, time.Second)
	defaults.Set(&t.Pace, 200*time.Millisecond)
	defaults.Set(&t.Gather, 20*time.Millisecond)
	defaults.Set(&t.SlowAfter, 2*time.Second)
	defaults.Set(&t.FirstPause, time.Second)
	defaults.Set(&t.LastPause, webhook.LastPause)
	defaults.Set(&t.GiveUp, 72*time.Hour)
}

// maxRunning bounds deliveries, slow ones included that began as fast ones. maxReading bounds those that read a page.
const (
	maxRunning = 64
	maxReading = 8
)

// maxWoken bounds the sessions that are woken.
const maxWoken = 1000

// Deliverer delivers for one server. Wake may be called concurrently, also before and after Run.
type Deliverer struct {
	cfg    Config
	sender *webhook.Sender
	holder string // this server, in claims

	wake    chan struct{} // has room for one
	reading chan struct{} // held by who reads

	mu      sync.Mutex
	woken   map[string]struct{}
	all     bool   // look at all webhooks, not at those of woken
	full    bool   // there was no room for all that had something to do
	running [2]int // deliveries: fast ones, slow ones
}

// New returns a Deliverer.
func New(cfg Config) *Deliverer {
	cfg.setDefaults()
	defaults.Set(&cfg.Fast, 8)
	defaults.Set(&cfg.Slow, 8)
	return &Deliverer{cfg: cfg, holder: ulid.Make().String(), wake: make(chan struct{}, 1), reading: make(chan struct{}, maxReading), woken: map[string]struct{}{}, all: true,
		sender: webhook.NewSender(webhook.Config{Agent: cfg.Agent, AllowPrivate: cfg.AllowPrivate, HowAllowed: webhook.AllowedByServer, IdleConns: cfg.Fast})}
}

// Wake has a session looked at. It does not block.
func (d *Deliverer) Wake(id string) {
	d.mu.Lock()
	if d.woken[id] = struct{}{}; len(d.woken) > maxWoken {
		d.all = true
		clear(d.woken)
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// wakeAfter has a session looked at after a while. Long ones are left to the poll.
func (d *Deliverer) wakeAfter(id string, pause time.Duration) {
	if pause < 2*d.cfg.Poll {
		time.AfterFunc(pause+time.Millisecond, func() { d.Wake(id) })
	}
}

// Run delivers until ctx ends. What it holds then is given back.
func (d *Deliverer) Run(ctx context.Context) {
	var deliveries sync.WaitGroup
	defer d.release(d.holder)
	defer d.sender.Close()
	defer deliveries.Wait()
	if d.cfg.SoleServer { // so whoever holds some has died
		d.release("")
	}
	poll := time.NewTimer(0)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
			poll.Reset(periodic.Jitter(d.cfg.Poll))
			d.mu.Lock()
			d.all = true
			d.mu.Unlock()
		case <-d.wake:
			select {
			case <-ctx.Done():
				return
			case <-time.After(d.cfg.Gather):
			}
		}
		for _, w := range d.claim(ctx) {
			deliveries.Go(func() {
				defer d.ended(w)
				defer time.AfterFunc(d.cfg.SlowAfter, func() { d.demote(w) }).Stop()
				_ = admission.CatchPanic(d.cfg.Log, "deliver to a webhook", func() { d.deliver(ctx, w) }) // it is logged, and tried again when the lease is over
			})
		}
	}
}

// claimed is a webhook that this server holds.
type claimed struct {
	*session.Webhook
	class int // 0 fast, 1 slow; guarded by Deliverer.mu

	now     int64     // the database's clock
	asOf    time.Time // at this time here
	renewed time.Time // when the lease began, at the latest
}

// clock returns the database's time, in Unix ms.
func (w *claimed) clock() int64 { return w.now + time.Since(w.asOf).Milliseconds() }

// claim takes what there is to do and room for.
func (d *Deliverer) claim(ctx context.Context) (list []*claimed) {
	d.mu.Lock()
	all, woken := d.all, make([]string, 0, len(d.woken))
	for id := range d.woken {
		woken = append(woken, id)
	}
	clear(d.woken)
	d.all = false
	c := session.WebhookClaim{Holder: d.holder, Lease: d.cfg.Lease.Milliseconds(), SlowAfter: d.cfg.SlowAfter.Milliseconds(),
		Fast: min(d.cfg.Fast-d.running[0], maxRunning-d.running[0]-d.running[1]), Slow: d.cfg.Slow - d.running[1]}
	d.full = c.Fast <= 0 && c.Slow <= 0
	nothing := d.full || !all && len(woken) == 0
	d.mu.Unlock()
	if nothing {
		return nil
	}
	once, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	if !all {
		var err error
		if c.Sessions, err = d.cfg.Store.FindHooked(once, woken); err != nil || len(c.Sessions) == 0 {
			d.warn(ctx, "webhooks were not looked up", err)
			return nil
		}
	}
	asked := time.Now()
	rows, now, err := d.cfg.Store.ClaimWebhooks(once, c)
	if err != nil {
		d.warn(ctx, "webhooks were not claimed", err)
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range rows {
		w := &claimed{Webhook: row, now: now, asOf: time.Now(), renewed: asked}
		if row.Took > c.SlowAfter {
			w.class = 1
		}
		d.running[w.class]++
		list = append(list, w)
	}
	d.full = d.running[0] >= d.cfg.Fast || d.running[1] >= d.cfg.Slow
	return list
}

// demote counts a delivery as a slow one, so that others have its room. It may be one more than there are to be.
func (d *Deliverer) demote(w *claimed) {
	d.mu.Lock()
	if w.class == 0 {
		w.class = 1
		d.running[0]--
		d.running[1]++
	}
	d.mu.Unlock()
	d.again()
}

// ended gives back the room of a webhook.
func (d *Deliverer) ended(w *claimed) {
	d.mu.Lock()
	d.running[w.class]--
	d.mu.Unlock()
	d.again()
}

// again has all webhooks looked at, if there was no room for them before.
func (d *Deliverer) again() {
	d.mu.Lock()
	again := d.full
	d.all = d.all || again
	d.mu.Unlock()
	if again {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
}

// release gives back what a server holds, also when this one is stopping.
func (d *Deliverer) release(holder string) {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Timeout)
	defer cancel()
	if err := d.cfg.Store.ReleaseWebhooks(ctx, holder); err != nil {
		d.cfg.Warn("webhooks were not given back: other servers take them when the lease is over", err)
	}
}

// warn logs an error, unless the server is stopping.
func (d *Deliverer) warn(ctx context.Context, label string, err error) {
	if err != nil && ctx.Err() == nil {
		d.cfg.Warn(label, err)
	}
}
