// What a client refuses: secrets in clear, refs that nobody knows, and all work once it is closed.

package client_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

type object = map[string]any

func TestSecretsDoNotGoInClear(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	foreign := capability.Ref{Hosts: []string{"mooring.example:7600"}}.New(r.owner.Target())
	dialed := false
	c := r.open(t, "a", func(cfg *client.Config) {
		cfg.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dialed = true
			return nil, errors.New("dialed")
		}
	})
	_, err := c.Redeem(t.Context(), foreign)
	if !errors.Is(err, fault.Plaintext) || dialed {
		t.Errorf("redeem: %v, dialed %v", err, dialed)
	}
}

func TestRefsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.RetryTimeout = 200 * time.Millisecond })
	s := r.newSession(t, c)
	wrong := s.Ref().With(s.Ref().ID, capability.NewSecret())
	if _, err := c.Redeem(t.Context(), wrong); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a secret that does not fit its id: %v", err)
	}
	unseen := s.Ref().New(s.ID())
	if _, err := c.Redeem(t.Context(), unseen); !errors.Is(err, fault.NotYetKnown) {
		t.Errorf("a ref whose share has not arrived: %v", err)
	}
	served := s.Ref().With(s.ID()+".s01JABCDEFGHJKMNPQRSTVWXYZ0", capability.NewSecret())
	if _, err := c.Redeem(t.Context(), served); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a made up ref: %v", err)
	}
	if _, err := c.Outbox().Ref(t.Context(), served.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("the made up ref is kept: %v", err)
	}
	if _, err := s.Describe(t.Context()); err != nil {
		t.Errorf("the right ref stopped working: %v", err)
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		ended <- s.Subscribe(context.Background(), client.SubscribeOptions{}, func(client.Event) error {
			if first {
				close(started)
			}
			first = false
			return nil
		})
	}()
	<-started
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fault.Canceled) {
		t.Errorf("the subscription ended with %v", err)
	}
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, fault.Canceled) {
		t.Errorf("a snapshot of a closed client: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}
