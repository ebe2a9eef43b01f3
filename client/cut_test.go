// Which errors a client's verbs give when the outbox's database goes away under them.

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// TestErrorsWhenTheDatabaseIsCut cuts the connections to the outbox's database before, and
// within, what each verb is answered there: every error has a code, and who waits goes on.
func TestErrorsWhenTheDatabaseIsCut(t *testing.T) {
	t.Parallel()
	proxy, url := pgtest.ViaProxy(t, pgtest.URL(t))
	r := testRig(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.OpenOutbox = pgclient.Outbox(url, "") })
	sp, s := r.space(t, c), r.newSession(t, c)
	ticket, err := s.Put(t.Context(), message(1), object{"role": "user"})
	if err != nil {
		t.Fatal(err)
	}
	waited(t, ticket)
	verbs := map[string]func(ctx context.Context) error{
		"Client.Session":     func(ctx context.Context) error { _, err := c.Session(ctx, s.Ref()); return err },
		"Client.Space":       func(ctx context.Context) error { _, err := c.Space(ctx, r.owner); return err },
		"Client.SessionByID": func(ctx context.Context) error { _, err := c.SessionByID(ctx, s.ID()); return err },
		"Client.Redeem":      func(ctx context.Context) error { _, err := c.Redeem(ctx, s.Ref()); return err },
		"Client.Refs":        func(ctx context.Context) error { _, err := c.Refs(ctx); return err },
		"Client.Forget":      func(ctx context.Context) error { return c.Forget(ctx, "ref_none") },
		"Client.Status":      func(ctx context.Context) error { _, err := c.Status(ctx); return err },
		"Session.Put":        func(ctx context.Context) error { _, err := s.Put(ctx, "session", object{}); return err },
		"Session.Share": func(ctx context.Context) error {
			_, _, err := s.Share(ctx, client.ShareOptions{Rights: capability.Read})
			return err
		},
		"Session.Snapshot": func(ctx context.Context) error { _, err := s.Snapshot(ctx); return err },
		"Session.Describe": func(ctx context.Context) error { _, err := s.Describe(ctx); return err },
		"Space.Describe":   func(ctx context.Context) error { _, err := sp.Describe(ctx); return err },
		"Batch.CommitWait": func(ctx context.Context) error {
			b := s.Batch()
			b.Put("session", object{})
			_, err := b.CommitWait(ctx)
			return err
		},
		"Client.Open": func(ctx context.Context) error {
			cfg := r.config("", func(cfg *client.Config) { cfg.OpenOutbox = pgclient.Outbox(url, "other") })
			other, err := client.Open(ctx, cfg)
			if err == nil {
				err = other.Close()
			}
			return err
		},
	}
	waits := map[string]func(ctx context.Context) error{
		"Ticket.Wait":  func(ctx context.Context) error { _, err := c.Ticket(ticket.Batch).Wait(ctx); return err },
		"Client.Drain": func(ctx context.Context) error { return c.Drain(ctx, nil) },
	}
	try := func(name string, verb func(ctx context.Context) error, waits bool) {
		for _, bytes := range []int64{0, 5, 100} { // of an answer: what it is for has arrived
			proxy.CutAfter(faultproxy.ToClient, bytes)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := verb(ctx)
			cancel()
			var f *fault.Error
			if err != nil && (waits || !errors.As(err, &f) || f.Code == fault.Internal) {
				t.Errorf("%s, cut after %d bytes: %v", name, bytes, err)
			}
		}
	}
	for name, verb := range verbs {
		try(name, verb, false)
	}
	for name, verb := range waits {
		try(name, verb, true)
	}
}
