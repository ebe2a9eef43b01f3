package watch

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
)

// Config is what is watched, and how notices are delivered.
type Config struct {
	Session *client.Session
	File    string   // has the position between watches; "" keeps none. One watch at a time has it
	Types   []string // of the notices that are delivered

	// Deliver delivers a notice. Its error ends the watch, and the notice is delivered again by the next.
	Deliver func(ctx context.Context, n *notice.Notice) error
	// Trouble, if not nil, is called with each error that is retried.
	Trouble func(error)
}

// requestKeys and messageKeys are the keys whose events give cause for notices.
const (
	requestKeys = "request/"
	messageKeys = "message/"
	saveEvery   = 1000 // events, after which the position is saved
)

// watcher is a running watch.
type watcher struct {
	cfg      Config
	progress progress
	unsaved  int // events since the progress was saved
}

// Run watches until ctx ends (Canceled), Deliver or the position's file fails, or the session cannot be followed any more: the errors are those of
// client.Session.Subscribe. The file being another watch's is InUse.
func Run(ctx context.Context, cfg Config) (err error) {
	w := &watcher{cfg: cfg}
	unlock, err := w.progress.open(cfg.File)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.progress.save(), unlock()) }()
	if w.progress.Cursor == 0 {
		if err := w.begin(ctx); err != nil {
			return err
		}
	}
	o := client.SubscribeOptions{
		After: w.progress.Cursor, Hash: w.progress.Hash, Keys: []string{messageKeys, requestKeys}, Trouble: cfg.Trouble,
		StartOver: func(state *client.State) error { return w.open(ctx, state) },
	}
	return cfg.Session.Subscribe(ctx, o, func(e client.Event) error { return w.event(ctx, &e) })
}

// begin delivers the requests that are open.
func (w *watcher) begin(ctx context.Context) error {
	state, err := retry(ctx, w.cfg.Trouble, func() (*client.State, error) {
		return w.cfg.Session.SnapshotWith(ctx, client.SnapshotOptions{Keys: []string{requestKeys}})
	})
	if err != nil {
		return err
	}
	return w.open(ctx, state)
}

// open delivers the requests of a state that are open, and goes on from there.
func (w *watcher) open(ctx context.Context, state *client.State) error {
	list, err := state.Requests()
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.State != client.RequestOpen {
			continue
		}
		if err := w.deliver(ctx, notice.New(notice.RequestOpen, w.cfg.Session.ID(), r.AskedAt, notice.Data{Request: r.ID, Kind: r.Kind, Message: r.Message})); err != nil {
			return err
		}
	}
	w.progress.Position = state.Position()
	return w.progress.save()
}

// event takes the next event.
func (w *watcher) event(ctx context.Context, e *client.Event) error {
	n, err := notice.OfEvent(w.cfg.Session.ID(), &notice.Event{Method: e.Method, Key: e.Key, Payload: e.Payload, Hidden: e.Hidden, At: e.At},
		func(id string) (kind, message string, found bool, err error) {
			r, err := w.request(ctx, id)
			if err != nil || r == nil {
				return "", "", false, err
			}
			return r.Kind, r.Message, true, nil
		})
	if err == nil && n != nil {
		err = w.deliver(ctx, n)
	}
	if err != nil {
		return err
	}
	w.progress.Position = client.Position{Cursor: e.Cursor, Hash: e.Hash}
	if w.unsaved++; w.unsaved < saveEvery {
		return nil
	}
	w.unsaved = 0
	return w.progress.save()
}

// request reads a request; nil if there is none.
func (w *watcher) request(ctx context.Context, id string) (*client.Request, error) {
	return retry(ctx, w.cfg.Trouble, func() (*client.Request, error) {
		for r, err := range w.cfg.Session.ListRequests(ctx, client.RequestOptions{ID: id, Ended: true}) {
			return r, err
		}
		return nil, nil
	})
}

// deliver delivers a notice, unless nobody wants it or it is among those that were delivered last, and notes durably that it did.
func (w *watcher) deliver(ctx context.Context, n *notice.Notice) error {
	if !slices.Contains(w.cfg.Types, n.Type) || slices.Contains(w.progress.Delivered, n.ID) {
		return nil
	}
	if err := w.cfg.Deliver(ctx, n); err != nil {
		return err
	}
	w.progress.delivered(n.ID)
	return w.progress.save()
}

// retry calls read until it succeeds, or fails for good.
func retry[T any](ctx context.Context, trouble func(error), read func() (T, error)) (T, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(0), backoff.WithMaxInterval(10*time.Second))
	return backoff.RetryNotifyWithData(func() (T, error) {
		got, err := read()
		if err != nil && !fault.CodeOf(err).Transient() {
			err = backoff.Permanent(err)
		}
		return got, err
	}, backoff.WithContext(wait, ctx), func(err error, _ time.Duration) {
		if trouble != nil {
			trouble(err)
		}
	})
}
