// Webhooks of a session, which the servers call: they are registered by its owner.

package client

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/rpc"
)

// Webhook is where the servers send notices of a session.
type Webhook struct {
	ID     string   // 1 to 64 letters, digits, _ and -: chosen by who registers it
	URL    string   // https://HOST/PATH
	Secret string   // by which notices are signed (NewWebhookSecret); "" in lists
	Kinds  []string // of notices: request.open, request.answered, turn.finished; nil: all
}

// WebhookInfo is a webhook and how it does. Times are the server's, zero for never.
type WebhookInfo struct {
	Webhook
	Ref          string // it was registered under: it ends with that
	Created      time.Time
	Cursor       uint64    // how far it has come in the log
	Delivered    time.Time // when a notice was taken last
	FailingSince time.Time // zero: the last try did not fail
	Failures     int       // tries since then
	Error        string    // what kind of failure the last one was, such as status_500, timeout or private_address
	Next         time.Time // when it is tried again
	Restarted    time.Time // when it began anew with the requests that were open, since the log before was not there any more
	Ended        string    // why nothing more is sent: gone (the receiver answered 410), gave_up (after three days), or the name of the code by which its ref is refused; else ""
	EndedAt      time.Time
}

// NewWebhookSecret returns a new secret of a webhook. Its receiver needs it to check what it is sent.
func NewWebhookSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// AddWebhook has the servers send notices of the session to a URL, each at least once, signed as https://www.standardwebhooks.com specifies,
// beginning with the requests that are open. They have ids and kinds, no contents. The same webhook again changes nothing. Only the
// session's owner may (else NotAnOwner). The error is Unsupported where the server's operator has not allowed
// webhooks, AlreadyExists if another one has the id, QuotaExceeded if the session has 8.
func (s *Session) AddWebhook(ctx context.Context, w Webhook) (info WebhookInfo, err error) {
	err = s.call(ctx, capability.SessionRights, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SessionAddWebhook, func(args capnp.Struct, _ *rpc.CapTable) error {
			p := wire.Session_addWebhook_Params(args)
			if err := p.SetId(w.ID); err != nil {
				return err
			}
			if err := p.SetUrl(w.URL); err != nil {
				return err
			}
			if err := p.SetSecret(w.Secret); err != nil {
				return err
			}
			return calls.SetTexts(p.NewKinds, w.Kinds)
		})
	}, func(results capnp.Struct) error {
		r, err := wire.Session_addWebhook_Results(results).Webhook()
		if err != nil {
			return err
		}
		info, err = decodeWebhook(r)
		return err
	})
	return info, err
}

// Webhooks returns the session's webhooks, in the order in which they were registered, without their secrets. Only the session's owner may (else NotAnOwner).
func (s *Session) Webhooks(ctx context.Context) (list []WebhookInfo, err error) {
	err = s.call(ctx, capability.SessionRights, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SessionWebhooks, nil)
	}, func(results capnp.Struct) error {
		found, err := wire.Session_webhooks_Results(results).Webhooks()
		list = make([]WebhookInfo, 0, found.Len())
		for i := 0; err == nil && i < found.Len(); i++ {
			var info WebhookInfo
			info, err = decodeWebhook(found.At(i))
			list = append(list, info)
		}
		return err
	})
	return list, err
}

// RemoveWebhook ends a webhook. removed is false if the session has none of this id. Only the session's owner may (else NotAnOwner).
func (s *Session) RemoveWebhook(ctx context.Context, id string) (removed bool, err error) {
	err = s.call(ctx, capability.SessionRights, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SessionRemoveWebhook, func(args capnp.Struct, _ *rpc.CapTable) error {
			return wire.Session_removeWebhook_Params(args).SetId(id)
		})
	}, func(results capnp.Struct) error {
		removed = wire.Session_removeWebhook_Results(results).Removed()
		return nil
	})
	return removed, err
}

func decodeWebhook(w wire.WebhookInfo) (WebhookInfo, error) {
	var t calls.Texts
	info := WebhookInfo{Webhook: Webhook{ID: t.Get(w.Id()), URL: t.Get(w.Url())}, Ref: t.Get(w.Ref()), Created: timeOf(w.Created()), Cursor: w.Cursor(),
		Delivered: timeOf(w.Delivered()), FailingSince: timeOf(w.FailingSince()), Failures: int(w.Failures()), Error: t.Get(w.Error()), Next: timeOf(w.Next()),
		Restarted: timeOf(w.Restarted()), Ended: t.Get(w.Ended()), EndedAt: timeOf(w.EndedAt())}
	kinds, err := w.Kinds()
	for i := 0; err == nil && i < kinds.Len(); i++ {
		info.Kinds = append(info.Kinds, t.Get(kinds.At(i)))
	}
	if err == nil {
		err = t.Err
	}
	return info, err
}
