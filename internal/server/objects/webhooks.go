// Session.addWebhook, webhooks and removeWebhook: where the servers send notices of a session. Its owner alone registers them:
// what is sent says who is asked for what, to whoever has the URL, and goes on while nobody is connected.

package objects

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/webhook"
	"github.com/mooring-rpc/mooring/rpc"
)

// WebhookConfig is whether sessions' owners may register webhooks.
type WebhookConfig struct {
	AllowPrivate bool                 // at addresses that are not the internet's, and http
	Wake         func(session string) // is called when one was registered
}

// checkOwner returns the grant of the session's owner, and audits the refusal of anybody else.
func (o *sess) checkOwner(at *session.Access, label string) (*capability.Grant, *fault.Error) {
	grant, refused := o.auth.Check(at, 0)
	if refused == nil && !grant.Owner {
		refused = fault.NotAnOwner.With("only the session's owner ref has webhooks")
	}
	if refused != nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.auth.Ref, grant, label, refused)
	}
	return grant, refused
}

// changeWebhooks makes the change that decide returns for the owner.
func (o *sess) changeWebhooks(label string, decide func(owner *capability.Grant, at *session.Access, there []*session.Webhook) (*session.WebhookChange, *fault.Error)) *fault.Error {
	ctx, cancel := o.service.commitContext() // it outlives the connection once begun
	defer cancel()
	err := o.service.cfg.Store.ChangeWebhooks(ctx, o.auth.Session, o.auth.Refs(), func(at *session.Access, there []*session.Webhook) (*session.WebhookChange, error) {
		owner, refused := o.checkOwner(at, label)
		if refused != nil {
			return nil, refused
		}
		c, refused := decide(owner, at, there)
		if refused != nil || c == nil {
			return nil, errOrNil(refused)
		}
		c.Audit.Target, c.Audit.At, c.Audit.Ref, c.Audit.Actor, c.Audit.Cursor, c.Audit.Peer = o.auth.Session, at.Now, owner.ID, owner.Actor, cursorOf(at), o.conn.peer
		return c, nil
	})
	return fault.From(o.conn.log, err, "change the webhooks")
}

// registerWebhook registers w, or returns the same one that is there.
func (o *sess) registerWebhook(w *session.Webhook) (*session.Webhook, *fault.Error) {
	cfg := o.service.cfg.Webhooks
	if cfg == nil {
		return nil, fault.Unsupported.With("this server calls no webhooks: its operator has to allow it (mooring serve --webhooks); mooring watch calls one from a machine of yours")
	}
	if refused := checkWebhook(w, cfg.AllowPrivate); refused != nil {
		return nil, refused
	}
	refused := o.changeWebhooks("addWebhook", func(owner *capability.Grant, at *session.Access, there []*session.Webhook) (*session.WebhookChange, *fault.Error) {
		for _, t := range there {
			switch {
			case t.ID != w.ID:
			case t.URL != w.URL || !slices.Equal(t.Kinds, w.Kinds) || t.Ended == "" && t.Secret != w.Secret:
				return nil, fault.AlreadyExists.With("another webhook of the session has this id: choose another, or remove that one first")
			default:
				w = t
				return nil, nil
			}
		}
		if len(there) >= session.MaxWebhooks {
			return nil, fault.QuotaExceeded.With("the session has %d webhooks, the most: remove one", len(there))
		}
		w.Session, w.Ref, w.Created, w.Cursor, w.Hash = o.auth.Session, owner.ID, at.Now, at.Row.Cursor, at.Row.Head
		if o.auth.Manage {
			w.Ref = o.auth.Ref
		}
		return &session.WebhookChange{Add: w, Audit: &capability.AuditRow{Act: capability.AuditWebhook, Subject: w.ID}}, nil
	})
	if refused == nil && cfg.Wake != nil {
		cfg.Wake(o.auth.Session)
	}
	return w, refused
}

// checkWebhook refuses what cannot be a webhook, and puts its kinds in order; all of them, if there are none.
func checkWebhook(w *session.Webhook, private bool) *fault.Error {
	if w.ID == "" || len(w.ID) > session.MaxWebhookID || strings.ContainsFunc(w.ID, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) {
		return fault.BadArgument.With("a webhook's id is 1 to %d letters, digits, _ and -", session.MaxWebhookID)
	}
	if len(w.URL) > session.MaxWebhookURL {
		return fault.BadArgument.With("a webhook's URL has up to %d bytes", session.MaxWebhookURL)
	}
	if err := cmp.Or(webhook.CheckURL(w.URL, private, webhook.AllowedByServer), webhook.CheckSecret(w.Secret)); err != nil {
		return fault.BadArgument.With("%s", err.Message)
	}
	all := notice.Types()
	for _, kind := range w.Kinds {
		if !slices.Contains(all, kind) {
			return fault.BadArgument.With("a webhook is sent %s, and no %q", strings.Join(all, ", "), fault.Clip(kind))
		}
	}
	if len(w.Kinds) > 0 {
		all = slices.DeleteFunc(all, func(kind string) bool { return !slices.Contains(w.Kinds, kind) })
	}
	w.Kinds = all
	return nil
}

func (o *sess) addWebhook(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_addWebhook_Params(s)
	var r codec.FieldReader
	w := &session.Webhook{ID: r.Text(p.Id()), URL: r.Text(p.Url()), Secret: r.Text(p.Secret())}
	kinds, err := p.Kinds()
	w.Kinds = r.Texts(kinds, err, len(notice.Types()))
	refused := r.Fault("the call")
	if refused == nil {
		w, refused = o.registerWebhook(w)
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		to, err := wire.Session_addWebhook_Results(s).NewWebhook()
		if err != nil {
			return err
		}
		return codec.EncodeWebhook(to, w)
	})
}

func (o *sess) webhooks(ctx context.Context, c *rpc.Call) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	at, list, err := o.service.cfg.Store.ReadWebhooks(ctx, o.auth.Session, o.auth.Refs())
	if err != nil {
		fail(c, fault.From(o.conn.log, err, "read the webhooks"))
		return
	}
	owner, refused := o.checkOwner(at, "webhooks")
	if refused == nil {
		o.service.cfg.Usage.Record(o.conn.peer, owner, "webhooks", cursorOf(at))
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_webhooks_Results(s)
		r.SetNow(at.Now)
		return codec.EncodeList(r.NewWebhooks, list, codec.EncodeWebhook)
	})
}

func (o *sess) removeWebhook(c *rpc.Call) {
	s, _ := c.Params()
	var r codec.FieldReader
	id := r.Text(wire.Session_removeWebhook_Params(s).Id())
	refused := r.Fault("the call")
	removed := false
	if refused == nil {
		refused = o.changeWebhooks("removeWebhook", func(_ *capability.Grant, _ *session.Access, there []*session.Webhook) (*session.WebhookChange, *fault.Error) {
			if removed = slices.ContainsFunc(there, func(w *session.Webhook) bool { return w.ID == id }); !removed {
				return nil, nil
			}
			return &session.WebhookChange{Remove: id, Audit: &capability.AuditRow{Act: capability.AuditUnhook, Subject: id}}, nil
		})
	}
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Session_removeWebhook_Results(s).SetRemoved(removed)
		return nil
	})
}
