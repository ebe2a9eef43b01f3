package watch

// Delivery by a webhook.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/webhook"
)

// WebhookConfig is where notices are sent.
type WebhookConfig struct {
	URL          string
	Secret       string // whsec_ and base64 of 24 to 64 bytes, by which what is sent is signed
	Agent        string // of HTTP
	AllowPrivate bool   // addresses that are not the internet's, and http
	Report       func(line string)

	FirstPause, LastPause time.Duration // between tries; default 1 s to 1 h
	GiveUp                time.Duration // for which a notice is tried; default 72 h
}

// Webhook sends notices to a URL.
type Webhook struct {
	cfg    WebhookConfig
	sender *webhook.Sender
	target *webhook.Target
}

// NewWebhook returns a webhook. The error is a Usage.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	defaults.Set(&cfg.FirstPause, time.Second)
	defaults.Set(&cfg.LastPause, webhook.LastPause)
	defaults.Set(&cfg.GiveUp, 72*time.Hour)
	w := &Webhook{cfg: cfg, sender: webhook.NewSender(webhook.Config{Agent: cfg.Agent, AllowPrivate: cfg.AllowPrivate, HowAllowed: webhook.AllowedByWatch})}
	var err error
	w.target, err = w.sender.Target(cfg.URL, cfg.Secret)
	return w, err
}

// Deliver sends a notice until it is taken, with pauses that grow. The error is Revoked if the receiver wants no more (410), and that of ctx; a
// notice that is not taken for too long is reported, and is no error.
func (w *Webhook) Deliver(ctx context.Context, n *notice.Notice) error {
	pause := &afterAnswer{BackOff: backoff.NewExponentialBackOff(backoff.WithInitialInterval(w.cfg.FirstPause), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(w.cfg.LastPause), backoff.WithMaxElapsedTime(w.cfg.GiveUp))}
	reported := false
	err := backoff.RetryNotify(func() error {
		err := w.sender.Send(ctx, w.target, n)
		pause.least = 0
		if failed, ok := errors.AsType[*webhook.Error](err); ok {
			if pause.least = failed.RetryAfter; failed.Gone {
				return backoff.Permanent(err)
			}
		}
		return err
	}, backoff.WithContext(pause, ctx), func(err error, _ time.Duration) {
		if !reported {
			w.cfg.Report(fmt.Sprintf("%v is not taken yet: %v; it is tried again", n, err))
		}
		reported = true
	})
	switch {
	case ctx.Err() != nil:
		return fault.Canceled.With("stopped while %v was being delivered", n)
	case errors.Is(err, fault.Revoked):
		return err
	case err != nil:
		w.cfg.Report(fmt.Sprintf("%v was not delivered: %v", n, err))
	}
	return nil
}

// afterAnswer is pauses of which one is at least as long as an answer wants.
type afterAnswer struct {
	backoff.BackOff
	least time.Duration
}

func (b *afterAnswer) NextBackOff() time.Duration {
	next := b.BackOff.NextBackOff()
	if next == backoff.Stop {
		return next
	}
	return max(next, b.least)
}
