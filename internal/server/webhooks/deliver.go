package webhooks

// What is done for a webhook that is claimed: its next notice is read, sent, and noted, until there is none.

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/webhook"
)

// Bounds of one claim.
const (
	maxInTurn  = 100 // notices
	pageEvents = 200 // of the log, read at once
)

// peer is who reads, in the audit.
const peer = "webhook"

// deliver sends the notices that there are, until one is not taken.
func (d *Deliverer) deliver(ctx context.Context, w *claimed) {
	target, err := d.sender.Target(w.URL, w.Secret)
	if err != nil { // it was registered where http is allowed
		d.failed(w, &webhook.Error{Class: "url"})
		return
	}
	for range maxInTurn {
		if time.Since(w.renewed) > d.cfg.Lease/3 && !d.save(w, d.cfg.Lease) {
			return
		}
		c, err := d.open(ctx, w)
		var next step
		if err == nil {
			next, err = d.next(ctx, c, w)
		}
		if ctx.Err() != nil {
			return // Run gives it back
		}
		if err != nil {
			d.unread(ctx, c, w, err)
			return
		}
		if next.notice == nil {
			next.note(w)
			if next.more {
				if !d.save(w, d.cfg.Lease) {
					return
				}
				continue
			}
			d.pause(w, d.cfg.Pace)
			return
		}
		began := time.Now()
		err = d.sender.Send(ctx, target, next.notice)
		if err != nil && ctx.Err() != nil {
			return
		}
		if w.Took = time.Since(began).Milliseconds(); err != nil {
			d.failed(w, err)
			return
		}
		d.cfg.Instruments.WebhookTries.WithLabelValues("taken").Inc()
		next.note(w)
		w.Failures, w.Since, w.Error, w.Delivered = 0, 0, "", w.clock()
		if !d.save(w, d.cfg.Lease) {
			return
		}
	}
	d.pause(w, 0)
}

// open returns the session under the ref that the webhook was registered under.
func (d *Deliverer) open(ctx context.Context, w *claimed) (*objects.Capability, error) {
	c := d.cfg.Objects.Caller(ctx, peer).Assume(w.Ref)
	if c.IsSpace() {
		return c.Open(ctx, w.Session)
	}
	return c, nil
}

// step is what comes next for a webhook: a notice, nil if there is none, and its position once that is taken.
type step struct {
	notice *notice.Notice
	cursor uint64
	hash   session.Hash
	opened int64
	more   bool // without a notice: there is more to be read
}

// note moves the webhook on.
func (s *step) note(w *claimed) { w.Cursor, w.Hash, w.Opened = s.cursor, s.hash, s.opened }

// next reads what comes next.
func (d *Deliverer) next(ctx context.Context, c *objects.Capability, w *claimed) (step, error) {
	at := step{cursor: w.Cursor, hash: w.Hash, opened: w.Opened}
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return at, ctx.Err()
	}
	if at.opened >= 0 {
		return at, at.readOpen(ctx, c, w)
	}
	page, err := c.Events(ctx, fanout.Position{Cursor: at.cursor, Hash: at.hash}, nil, pageEvents)
	if err != nil {
		return at, err
	}
	for _, e := range page.Events {
		n, err := notice.OfEvent(w.Session, &notice.Event{Method: e.Method, Key: e.Key, Payload: e.Payload, Hidden: e.Hidden, At: time.UnixMilli(e.At)},
			func(id string) (kind, message string, found bool, err error) { return readRequest(ctx, c, id) })
		if err != nil {
			return at, err
		}
		at.cursor, at.hash = e.Cursor, e.Hash
		if n != nil && slices.Contains(w.Kinds, n.Type) {
			at.notice = n
			return at, nil
		}
	}
	at.more = at.cursor < page.Row.Cursor
	return at, nil
}

// readOpen goes on with the requests that are open and were asked up to the webhook's cursor; later ones are in the log from there on.
func (s *step) readOpen(ctx context.Context, c *objects.Capability, w *claimed) error {
	for slices.Contains(w.Kinds, notice.RequestOpen) {
		page, err := c.Requests(ctx, session.RequestQuery{After: uint64(s.opened)})
		if err != nil {
			return err
		}
		for _, r := range page.Requests {
			if r.Asked.Cursor > w.Cursor {
				break
			}
			s.opened = int64(r.Asked.Cursor)
			if r.State != nil && gjson.GetBytes(r.State.Payload, "state").Str != string(session.RequestOpen) {
				continue
			}
			got := gjson.GetManyBytes(r.Asked.Payload, "kind", "message", "at")
			s.notice = notice.New(notice.RequestOpen, w.Session, time.UnixMilli(got[2].Int()), notice.Data{Request: r.ID, Kind: got[0].Str, Message: got[1].Str})
			return nil
		}
		if page.Next == 0 || page.Next > w.Cursor {
			break
		}
		s.opened = int64(page.Next)
	}
	s.opened, s.more = -1, true
	return nil
}

// readRequest reads the kind and the message of a request.
func readRequest(ctx context.Context, c *objects.Capability, id string) (kind, message string, found bool, err error) {
	page, _, err := c.GetKeys(ctx, []string{session.RequestKey(id)})
	if err != nil || len(page.Entries) == 0 {
		return "", "", false, err
	}
	got := gjson.GetManyBytes(page.Entries[0].Payload, "kind", "message")
	return got[0].Str, got[1].Str, true, nil
}

// ends are the codes of a ref, or a session, that is not there for good.
var ends = []fault.Code{fault.UnknownRef, fault.Revoked, fault.StaleEpoch, fault.Expired, fault.MissingRight, fault.Exhausted, fault.NotAnOwner, fault.Sealed, fault.NotFound, fault.SessionDeleted}

// unread does what follows from an error of reading the session.
func (d *Deliverer) unread(ctx context.Context, c *objects.Capability, w *claimed, err error) {
	switch code := fault.CodeOf(err); {
	case slices.Contains(ends, code):
		d.end(w, code.String())
	case code == fault.CursorExpired || code == fault.ServerBehind:
		d.restart(ctx, c, w, err)
	default:
		d.warn(ctx, "a webhook's session was not read", err)
		d.pause(w, d.cfg.FirstPause)
	}
}

// restart begins anew with the requests that are open.
func (d *Deliverer) restart(ctx context.Context, c *objects.Capability, w *claimed, why error) {
	is, err := c.Describe(ctx)
	if err != nil {
		d.warn(ctx, "a webhook's session was not read", err)
		d.pause(w, d.cfg.FirstPause)
		return
	}
	d.cfg.Log.Warn("a webhook begins anew, with the requests that are open: what happened in between is not sent", "session", w.Session, "webhook", w.ID, "error", why)
	w.Cursor, w.Hash, w.Opened, w.Restarted = is.Row.Cursor, is.Row.Head, 0, w.clock()
	d.pause(w, 0)
}

// failed notes that a notice was not taken, and when it is tried again.
func (d *Deliverer) failed(w *claimed, err error) {
	why, ok := errors.AsType[*webhook.Error](err)
	if !ok {
		why = &webhook.Error{Class: "other"}
	}
	d.cfg.Instruments.WebhookTries.WithLabelValues("failed").Inc()
	if w.Failures == 0 {
		w.Since = w.clock()
		if !why.Gone {
			d.cfg.Log.Info("a webhook does not take a notice; it is tried again", "session", w.Session, "webhook", w.ID, "error", why.Class)
		}
	}
	w.Failures++
	w.Error = why.Class
	pause := max(d.backoff(w.Failures), why.RetryAfter)
	switch {
	case why.Gone:
		d.end(w, session.WebhookGone)
	case time.Duration(w.clock()-w.Since)*time.Millisecond+pause > d.cfg.GiveUp:
		d.end(w, session.WebhookGaveUp)
	default:
		d.pause(w, pause)
	}
}

// backoff returns the pause after some failures, a little random so that many webhooks are not tried at the same moment.
func (d *Deliverer) backoff(failures int) time.Duration {
	pause := d.cfg.LastPause
	if shift := failures - 1; shift < 32 {
		pause = min(d.cfg.FirstPause<<shift, d.cfg.LastPause)
	}
	return pause/2 + rand.N(pause/2+1)
}

// end ends the webhook for good.
func (d *Deliverer) end(w *claimed, why string) {
	w.Ended, w.EndedAt = why, w.clock()
	if d.save(w, 0) {
		d.cfg.Instruments.WebhooksEnded.WithLabelValues(why).Inc()
		d.cfg.Log.Info("a webhook has ended", "session", w.Session, "webhook", w.ID, "why", why)
	}
}

// pause gives the webhook back, until a time.
func (d *Deliverer) pause(w *claimed, pause time.Duration) {
	w.NextAt = w.clock() + pause.Milliseconds()
	if d.save(w, 0) {
		d.wakeAfter(w.Session, pause)
	}
}

// save writes how far the webhook has come, also while the server is stopping, and holds it for a lease, 0: no longer. It reports
// whether it was held; if not, or if that is not known, nothing more may be sent.
func (d *Deliverer) save(w *claimed, lease time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d.cfg.Timeout)
	defer cancel()
	asked := time.Now()
	held, now, err := d.cfg.Store.SaveWebhook(ctx, w.Webhook, d.holder, lease.Milliseconds())
	if err != nil {
		d.cfg.Warn("a webhook was not saved: its last notice is sent again", err)
		return false
	}
	w.now, w.asOf, w.renewed = now, time.Now(), asked
	return held
}
